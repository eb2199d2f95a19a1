//! What a rule means, written plainly: each condition scans the whole arguments. One reading for
//! all rules must not answer differently.
//!
//! Must not: share code with the reading, beyond keys and plain paths.

use super::super::*;
use crate::model::json::{each_member, elements};

const EXACT: usize = 15;

/// Whether all conditions of `rule` hold, each tried alone.
pub(super) fn holds(rule: &Rule, arguments: &str) -> bool {
    rule.when.iter().all(|one| fits_under(arguments, &one.keys, &one.test))
}

impl Test {
    /// Whether the JSON text `value` fits, or is of another type than can be compared.
    fn fits(&self, value: &str) -> bool {
        // What is written as 1e-400 is no zero, and 1e400 is not infinite.
        let mantissa = value.split(['e', 'E']).next().unwrap_or_default();
        let is_held = |it: &f64| {
            it.is_finite() && (*it != 0.0) == mantissa.contains(|c| matches!(c, '1'..='9'))
        };
        let number = value.parse::<f64>().ok().filter(is_held);
        let may_equal = |it, limit: f64| it == limit && value.len() > EXACT;
        match self {
            Self::Gt(limit) => number.is_none_or(|it| it > *limit || may_equal(it, *limit)),
            Self::Lt(limit) => number.is_none_or(|it| it < *limit || may_equal(it, *limit)),
            Self::Glob(glob) => glob_fits(glob, value, number),
        }
    }
}

/// [`Test::Glob`] for the JSON text `value`, and the `number` that it is.
fn glob_fits(glob: &GlobMatcher, value: &str, number: Option<f64>) -> bool {
    let pattern = glob.glob().glob();
    let as_number = pattern.parse::<f64>().ok();
    match serde_json::from_str::<Value>(value) {
        // Servers differ in what they take for `true` and `false`: `"yes"`, `1`, `"True"`.
        Ok(value) if let Ok(meant) = pattern.parse::<bool>() => match value {
            Value::Bool(is) => is == meant,
            Value::String(text) => !text.eq_ignore_ascii_case(if meant { "false" } else { "true" }),
            _ => true,
        },
        Ok(Value::String(text)) => {
            // Servers written in C read up to the first `\0`.
            let read = text.split('\0').next().unwrap_or_default();
            [&text, read].map(plain_path).iter().any(|plain| {
                // With a slash, as `/etc/**` is meant to match `/etc`.
                glob.is_match(plain) || glob.is_match(format!("{plain}/"))
            }) || glob.is_match(&text)
                // Only the server knows where a relative path begins.
                || pattern.starts_with('/') && !text.starts_with('/')
                // Some servers take a text for the number that it is.
                || as_number.is_some() && text.trim().parse().ok() == as_number
        }
        Ok(Value::Number(_) | Value::Bool(_)) => {
            glob.is_match(value)
                || number.is_some_and(|it| as_number == Some(it) || glob.is_match(it.to_string()))
        }
        _ => true,
    }
}

/// Whether one of the values under `keys` in the JSON text `value` fits, or what is there has no
/// keys.
fn fits_under(value: &str, keys: &[String], test: &Test) -> bool {
    let Some((key, rest)) = keys.split_first() else { return test.fits(value) };
    if let (Ok(index), Ok(items)) = (key.parse::<usize>(), elements(value)) {
        return items.get(index).is_some_and(|item| fits_under(item.get(), rest, test));
    }
    let mut found = false;
    let read = each_member(value, |name, value| {
        found |= is_key(&name, key) && fits_under(value.get(), rest, test);
    });
    found || read.is_err()
}
