//! Checks the arguments of a call against the tool's own `inputSchema`, before the call is made.
//!
//! If the arguments cannot be checked, the call is made all the same: the server knows its schema
//! best, and checks as well.
//!
//! Must not: fetch a reference, change the arguments (a lossy copy is what is checked), or let the
//! schema of one server take so much time or memory that another one's tools suffer.

mod api;
mod cost;
mod output;
mod pattern;
mod usable;
mod walk;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::lossy;
use super::limits::{MAX_DEPTH, MAX_SCHEMA, Shape};
use super::sentences;
use super::{Members, ParamHeaders, visible};
use usable::Usable;

pub use api::for_api;
pub use output::is_good_output;

/// How deep arguments may be nested, in levels of JSON: the parser of the copy that is checked goes
/// hardly deeper.
const MAX_NESTING: usize = 126;
/// How many values arguments may have: one of two bytes takes over 32 in the copy that is checked.
const MAX_VALUES: usize = 512 * 1024;
/// The most mistakes that an answer lists, the longest text of one, and of all together, in bytes.
const MAX_MISTAKES: usize = 10;
const MAX_MISTAKE: usize = 300;
const MAX_TEXT: usize = 4_000;

/// The schema of one tool's arguments, compiled when it is first needed.
#[derive(Debug)]
pub struct InputSchema {
    /// The tool as its server sent it, or as the configuration has it.
    tool: Arc<RawValue>,
    /// The member of `tool` that is its schema.
    key: &'static str,
    compiled: OnceLock<Result<Option<Usable>, String>>,
    /// The parts of it that cannot be used, once they were looked for.
    unchecked: OnceLock<Vec<String>>,
    /// The arguments that HTTP headers repeat, once they were looked for.
    param_headers: OnceLock<ParamHeaders>,
    /// Whether the log says already that the schema cannot be used.
    told: AtomicBool,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The arguments fit, or the tool has no schema.
    Valid,
    /// They do not fit. The answer for the model says what is wrong, and where.
    Invalid(String),
    /// They could not be checked.
    Unchecked {
        /// For the log.
        why: String,
        /// The schema is the cause, and this is the first time that it was found.
        news: bool,
    },
}

impl InputSchema {
    /// The schema of `tool`, a whole `Tool` object.
    pub fn new(tool: Arc<RawValue>) -> Self {
        Self::under("inputSchema", tool)
    }

    /// The `parameters` of a local tool.
    pub fn of_local(definition: Arc<RawValue>) -> Self {
        Self::under("parameters", definition)
    }

    /// A schema without its tool, of which nothing else is known any more.
    pub fn alone(schema: &RawValue) -> Self {
        let tool = RawValue::from_string(format!("{{\"inputSchema\":{}}}", schema.get()));
        Self::new(tool.expect("JSON in an object is JSON").into())
    }

    /// The schema itself, verbatim; `None` where the tool has none.
    pub fn schema(&self) -> Option<&RawValue> {
        Members::read(self.tool.get()).ok()?.get(self.key)
    }

    /// The definition of the tool, verbatim.
    pub fn definition(&self) -> &RawValue {
        &self.tool
    }

    /// The arguments that HTTP headers repeat. A tool with marks that no client may follow is not
    /// offered, so that it has none here. They are looked for once: a definition may have a
    /// megabyte, and each call would read all of it.
    pub fn param_headers(&self) -> &ParamHeaders {
        self.param_headers.get_or_init(|| ParamHeaders::read(self.tool.get()).unwrap_or_default())
    }

    /// The parts of the schema that arguments are not checked against, each with its place and the
    /// reason. What is compiled for that is not kept: most tools are never called.
    pub fn unchecked(&self) -> &[String] {
        self.unchecked.get_or_init(|| match compile(self.tool.get(), self.key) {
            Ok(usable) => usable.map(|usable| usable.left_out).unwrap_or_default(),
            Err(why) => vec![why],
        })
    }

    /// [`Self::unchecked`], without looking: `None` if nothing has looked yet. A look compiles the
    /// schema, which takes too long where all tools of a backend are listed.
    pub fn unchecked_so_far(&self) -> Option<&[String]> {
        self.unchecked.get().map(Vec::as_slice)
    }

    fn under(key: &'static str, tool: Arc<RawValue>) -> Self {
        Self {
            tool,
            key,
            compiled: OnceLock::new(),
            unchecked: OnceLock::new(),
            param_headers: OnceLock::new(),
            told: AtomicBool::new(false),
        }
    }

    /// Checks the arguments of one call, the JSON text `arguments`.
    pub fn check(&self, arguments: &str) -> Verdict {
        if !arguments.trim_start().starts_with('{') {
            return invalid("the arguments: they are not a JSON object");
        }
        match self.check_value(arguments) {
            Verdict::Invalid(mistakes) => invalid(&mistakes),
            verdict => verdict,
        }
    }

    /// Checks any JSON text. If it does not fit, the verdict has its mistakes alone.
    pub fn check_value(&self, arguments: &str) -> Verdict {
        let compiled = match self.compiled.get_or_init(|| compile(self.tool.get(), self.key)) {
            Ok(Some(compiled)) => compiled,
            Ok(None) => return Verdict::Valid,
            Err(why) => return self.unusable(why),
        };
        // Each level and each value has two bytes or more, so that most arguments need no look.
        if arguments.len() > 2 * MAX_NESTING {
            let Shape { depth, values, .. } = Shape::measure(arguments);
            if depth > MAX_NESTING {
                return Verdict::Invalid(format!("the arguments: nested over {MAX_NESTING} deep"));
            }
            if values > MAX_VALUES {
                return Verdict::Invalid(format!(
                    "the arguments: they have over {MAX_VALUES} values"
                ));
            }
        }
        let copy = match serde_json::from_str(arguments).or_else(|_| approximate(arguments)) {
            Ok(copy) => copy,
            Err(error) => {
                return Verdict::Invalid(format!("the arguments: a key cannot be read: {error}"));
            }
        };
        if let Err(why) = cost::affordable(&compiled.schema, &copy) {
            return self.unusable(why);
        }
        if compiled.validator.is_valid(&copy) {
            return Verdict::Valid;
        }
        explain(compiled, &copy).map_or_else(|why| self.unusable(why), Verdict::Invalid)
    }

    /// The verdict if the schema cannot be used.
    fn unusable(&self, why: &str) -> Verdict {
        let news = !self.told.swap(true, Ordering::Relaxed);
        Verdict::Unchecked { why: why.to_owned(), news }
    }
}

/// Schemas are equal if their tools are.
impl PartialEq for InputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.tool.get() == other.tool.get()
    }
}

impl Eq for InputSchema {}

/// The mistakes of `arguments`, which are invalid; or why that is not certain.
fn explain(usable: &Usable, arguments: &Value) -> Result<String, &'static str> {
    let mut mistakes = String::new();
    let mut count = 0;
    let mut more = 0_usize;
    for error in usable.validator.iter_errors(arguments) {
        if matches!(error.kind(), ValidationErrorKind::RegexEngineFailure { .. }) {
            return Err("a regular expression of its schema makes the engine fail");
        }
        let mistake = mistake(&error);
        if count == MAX_MISTAKES || mistakes.len() + mistake.len() > MAX_TEXT {
            more += 1;
            continue;
        }
        if count > 0 {
            mistakes.push_str("; ");
        }
        mistakes.push_str(&mistake);
        count += 1;
    }
    if more > 0 {
        write!(mistakes, "; and {more} more").expect("writing to a String cannot fail");
    }
    Ok(mistakes)
}

/// The closest [`Value`] for JSON text that no [`Value`] can hold: the largest number for 1e400,
/// and U+FFFD for a lone surrogate. What is beside them is checked all the same.
fn approximate(json: &str) -> serde_json::Result<Value> {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => {
            let mut object = serde_json::Map::new();
            for (name, value) in Members::read(json)?.0 {
                object.insert(name.into_owned(), approximate(value.get())?);
            }
            Ok(object.into())
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            items.into_iter().map(|item| approximate(item.get())).collect()
        }
        _ => serde_json::from_str(json).or_else(|error| match lossy(json) {
            Some(text) => Ok(text.into()),
            // Only a number can be left.
            None if json.trim_start().starts_with('-') => Ok(f64::MIN.into()),
            None if json.trim_start().starts_with(|first: char| first.is_ascii_digit()) => {
                Ok(f64::MAX.into())
            }
            None => Err(error),
        }),
    }
}

fn invalid(mistakes: &str) -> Verdict {
    Verdict::Invalid(refusal(mistakes))
}

/// The answer for the model to arguments with these mistakes.
pub(crate) fn refusal(mistakes: &str) -> String {
    sentences::arguments_invalid(mistakes)
}

/// `None` for a tool without a schema.
fn compile(tool: &str, key: &str) -> Result<Option<Usable>, String> {
    let members = Members::read(tool).map_err(|error| format!("the tool: {error}"))?;
    match members.get(key).filter(|schema| schema.get() != "null") {
        Some(schema) => Usable::read(read(schema.get())?).map(Some),
        None => Ok(None),
    }
}

/// The schema `text`, if it is small enough.
fn read(text: &str) -> Result<Value, String> {
    if text.len() > MAX_SCHEMA {
        return Err(format!("its schema has {} bytes, over {MAX_SCHEMA}", text.len()));
    }
    if Shape::measure(text).depth > MAX_DEPTH {
        return Err(format!("its schema is nested over {MAX_DEPTH} deep"));
    }
    let value = serde_json::from_str(text).or_else(|_| approximate(text));
    value.map_err(|error| format!("its schema: {error}"))
}

/// One mistake: its place as a JSON pointer and what is wrong, without the value.
fn mistake(error: &ValidationError<'_>) -> String {
    let pointer = error.instance_path().as_str();
    let path = if pointer.is_empty() { "the arguments" } else { pointer };
    let what = match error.kind() {
        ValidationErrorKind::Required { property } => format!("{property} is required"),
        // The error is about the name; the place is that of the object.
        ValidationErrorKind::PropertyNames { error } => {
            format!("a property name is not allowed: {}", error.masked_with("it"))
        }
        _ => error.masked_with("the value").to_string(),
    };
    format!("{}: {}", visible::line(path, MAX_MISTAKE), visible::line(&what, MAX_MISTAKE))
}

#[cfg(test)]
mod tests;
