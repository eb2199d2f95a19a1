//! A value of the arguments, looked at once for all conditions on it.
//!
//! Must not: know which conditions these are, or build a `Value` of objects and lists.

use std::cell::OnceCell;

use super::{GlobTest, Limit};
use crate::model::rules::plain_path;

/// A number with more characters may be rounded to a limit that it is not equal to.
const EXACT: usize = 15;

/// A value, and what conditions compare.
pub(super) struct Value<'v> {
    json: &'v str,
    /// The number that it is.
    number: Option<f64>,
    scalar: OnceCell<Scalar>,
}

enum Scalar {
    /// What globs cannot be compared with.
    Other,
    Bool(bool),
    Number,
    Text(Text),
}

struct Text {
    text: String,
    /// The number that some servers take it for.
    number: Option<f64>,
    /// As plain paths, each with a slash at its end.
    paths: Vec<String>,
}

impl<'v> Value<'v> {
    pub(super) fn new(json: &'v str) -> Self {
        // What is written as 1e-400 is no zero, and 1e400 is not infinite.
        let mantissa = json.split(['e', 'E']).next().unwrap_or_default();
        let zero = !mantissa.contains(|c| matches!(c, '1'..='9'));
        let number: Option<f64> = json.parse().ok();
        let number = number.filter(|number| number.is_finite() && (*number == 0.0) == zero);
        Self { json, number, scalar: OnceCell::new() }
    }

    /// Whether it is beyond `limit`, or of another type than can be compared.
    pub(super) fn is_beyond(&self, limit: Limit) -> bool {
        let may_equal = |number, limit: f64| number == limit && self.json.len() > EXACT;
        self.number.is_none_or(|number| match limit {
            Limit::Gt(limit) => number > limit || may_equal(number, limit),
            Limit::Lt(limit) => number < limit || may_equal(number, limit),
        })
    }

    /// Whether it fits `test`, or is of another type than can be compared. `is_match` says whether
    /// the glob matches one of its forms.
    pub(super) fn fits(&self, test: &GlobTest, is_match: impl FnOnce() -> bool) -> bool {
        let scalar = self.scalar();
        if let Some(meant) = test.meant {
            // Servers differ in what they take for `true` and `false`: `"yes"`, `1`, `"True"`.
            return match scalar {
                Scalar::Bool(is) => *is == meant,
                Scalar::Text(value) => {
                    !value.text.eq_ignore_ascii_case(if meant { "false" } else { "true" })
                }
                Scalar::Number | Scalar::Other => true,
            };
        }
        match scalar {
            Scalar::Other => true,
            Scalar::Text(value) => {
                // Only the server knows where a relative path begins.
                test.is_absolute && !value.text.starts_with('/')
                    // Some servers take a text for the number that it is.
                    || test.number.is_some() && value.number == test.number
                    || is_match()
            }
            Scalar::Bool(_) | Scalar::Number => {
                self.number.is_some() && self.number == test.number || is_match()
            }
        }
    }

    /// Whether one of the texts that globs are compared with is one that `visit` wants; it is shown
    /// no more then.
    pub(super) fn any_form(&self, mut visit: impl FnMut(&str) -> bool) -> bool {
        match self.scalar() {
            Scalar::Other => false,
            Scalar::Text(Text { text, paths, .. }) => {
                // With a slash, as `/etc/**` is meant to match `/etc`.
                paths.iter().any(|path| visit(plain(path)) || visit(path))
                    || !paths.iter().any(|path| plain(path) == text) && visit(text)
            }
            Scalar::Bool(_) | Scalar::Number => {
                visit(self.json) || self.number.is_some_and(|number| visit(&number.to_string()))
            }
        }
    }

    fn scalar(&self) -> &Scalar {
        self.scalar.get_or_init(|| match self.json.trim_start().as_bytes().first() {
            // Objects and lists may be large, and no glob is about them.
            Some(b'{' | b'[') => Scalar::Other,
            _ => match serde_json::from_str(self.json) {
                Ok(serde_json::Value::Bool(is)) => Scalar::Bool(is),
                Ok(serde_json::Value::Number(_)) => Scalar::Number,
                Ok(serde_json::Value::String(text)) => Scalar::Text(Text::new(text)),
                _ => Scalar::Other,
            },
        })
    }
}

impl Text {
    fn new(text: String) -> Self {
        let mut paths = vec![plain_path(&text) + "/"];
        // Servers written in C read up to the first `\0`.
        if let Some((before, _)) = text.split_once('\0') {
            paths.push(plain_path(before) + "/");
        }
        Self { number: text.trim().parse().ok(), text, paths }
    }
}

/// `path` without the slash at its end.
fn plain(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}
