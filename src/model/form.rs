//! The forms that MCP gives to definitions and results, as its official clients read them.
//!
//! A client refuses a whole list, or a whole result, for one member of another form. Many libraries
//! write `null` for a member that they leave out, which some of those clients refuse, too.
//!
//! Must not: change the value of a member, or look into what MCP leaves to servers (`_meta`,
//! schemas, structured content).

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::json;
use serde_json::value::RawValue;

use super::json::{lossy, quoted};
use super::{Members, elements};

mod content;
mod surrogates;

pub use content::block;
pub use surrogates::without_lone_surrogates;

/// The members of an object that MCP gives a form.
pub type Shape = [Member];

/// One of them.
#[derive(Debug)]
pub struct Member {
    key: &'static str,
    kind: Kind,
    required: bool,
}

/// The form of a value.
#[derive(Debug)]
enum Kind {
    Text,
    /// Bytes in the alphabet that browsers read.
    Base64,
    /// A URI with its scheme.
    Uri,
    /// One of these texts.
    Word(&'static [&'static str]),
    Flag,
    Number,
    /// A number without a fraction.
    Whole,
    /// A number from 0 to 1.
    Share,
    /// A date and a time with its offset.
    Time,
    Object,
    /// A list of texts.
    Texts,
    /// A list of these texts.
    Words(&'static [&'static str]),
    /// Schemas by name.
    Schemas,
    Members(&'static Shape),
    /// A list of such objects.
    Items(&'static Shape),
    /// The same as `Members`; if the object has another form, it is left out, and nothing else is.
    Hints(&'static Shape),
}

const fn may(key: &'static str, kind: Kind) -> Member {
    Member { key, kind, required: false }
}

const fn must(key: &'static str, kind: Kind) -> Member {
    Member { key, kind, required: true }
}

const TITLE: Member = may("title", Kind::Text);
const DESCRIPTION: Member = may("description", Kind::Text);
const MIME_TYPE: Member = may("mimeType", Kind::Text);
const META: Member = may("_meta", Kind::Object);
const ICONS: Member = may("icons", Kind::Items(&ICON));
const ANNOTATIONS: Member = may("annotations", Kind::Hints(&HINTS));
const NAME: Member = must("name", Kind::Text);

static ICON: [Member; 4] = [
    must("src", Kind::Text),
    MIME_TYPE,
    may("sizes", Kind::Texts),
    may("theme", Kind::Word(&["light", "dark"])),
];

/// The annotations of resources and of content.
static HINTS: [Member; 3] = [
    may("audience", Kind::Words(&["user", "assistant"])),
    may("priority", Kind::Share),
    may("lastModified", Kind::Time),
];

static TOOL_ANNOTATIONS: [Member; 5] = [
    TITLE,
    may("readOnlyHint", Kind::Flag),
    may("destructiveHint", Kind::Flag),
    may("idempotentHint", Kind::Flag),
    may("openWorldHint", Kind::Flag),
];

static EXECUTION: [Member; 1] =
    [may("taskSupport", Kind::Word(&["required", "optional", "forbidden"]))];

static INPUT: [Member; 4] = [
    may("$schema", Kind::Text),
    must("type", Kind::Word(&["object"])),
    may("properties", Kind::Schemas),
    may("required", Kind::Texts),
];

pub static TOOL: [Member; 9] = [
    NAME,
    TITLE,
    DESCRIPTION,
    must("inputSchema", Kind::Members(&INPUT)),
    // Its own form differs between revisions.
    may("outputSchema", Kind::Object),
    may("annotations", Kind::Members(&TOOL_ANNOTATIONS)),
    ICONS,
    may("execution", Kind::Members(&EXECUTION)),
    META,
];

pub static RESOURCE: [Member; 9] = [
    must("uri", Kind::Uri),
    NAME,
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    may("size", Kind::Whole),
    ANNOTATIONS,
    ICONS,
    META,
];

pub static TEMPLATE: [Member; 8] = [
    must("uriTemplate", Kind::Text),
    NAME,
    TITLE,
    DESCRIPTION,
    MIME_TYPE,
    ANNOTATIONS,
    ICONS,
    META,
];

pub static PROMPT: [Member; 6] =
    [NAME, TITLE, DESCRIPTION, may("arguments", Kind::Items(&PROMPT_ARGUMENT)), ICONS, META];

static PROMPT_ARGUMENT: [Member; 4] = [NAME, TITLE, DESCRIPTION, may("required", Kind::Flag)];

/// What `resources/read` is answered with.
pub static CONTENTS: [Member; 2] = [must("contents", Kind::Items(&RESOURCE_CONTENT)), META];

static RESOURCE_CONTENT: [Member; 5] =
    [must("uri", Kind::Uri), MIME_TYPE, may("text", Kind::Text), may("blob", Kind::Base64), META];

/// What `completion/complete` is answered with.
pub static COMPLETION: [Member; 2] = [must("completion", Kind::Members(&COMPLETION_VALUES)), META];

static COMPLETION_VALUES: [Member; 3] =
    [must("values", Kind::Texts), may("total", Kind::Whole), may("hasMore", Kind::Flag)];

/// What `prompts/get` is answered with.
pub static MESSAGES: [Member; 2] = [DESCRIPTION, META];

/// The parameters of a question for the user.
pub static QUESTION: [Member; 6] = [
    must("message", Kind::Text),
    may("mode", Kind::Text),
    may("requestedSchema", Kind::Members(&INPUT)),
    may("url", Kind::Text),
    may("elicitationId", Kind::Text),
    META,
];

/// The parameters of a notification of progress.
pub static PROGRESS: [Member; 3] = [may("total", Kind::Number), may("message", Kind::Text), META];

/// The first member of `object` that has not the form of `shape`, with the reason, such as
/// "`annotations.readOnlyHint` is not true or false". A `null` counts as left out.
pub fn flaw(object: &str, shape: &Shape) -> Option<String> {
    let Ok(members) = Members::read(object) else { return Some("it is no object".to_owned()) };
    let (path, what) = flaw_of(&members, shape)?;
    Some(format!("`{path}` {what}"))
}

/// [`flaw`] of the members of an object: the path, and the reason.
fn flaw_of(members: &Members<'_>, shape: &Shape) -> Option<(String, String)> {
    for Member { key, kind, required } in shape {
        let mut present = false;
        let values = members.0.iter().filter(|(name, value)| name == key && !is_null(value));
        for (_, value) in values {
            present = true;
            if let Some((inner, what)) = kind.flaw(value) {
                return Some((format!("{key}{inner}"), what));
            }
        }
        if *required && !present {
            return Some(((*key).to_owned(), "is missing".to_owned()));
        }
    }
    None
}

impl Kind {
    /// What is wrong with `value`: the rest of the path to it, and the reason.
    fn flaw(&self, value: &RawValue) -> Option<(String, String)> {
        let json = value.get();
        let what = match self {
            Self::Text if json.starts_with('"') => return None,
            Self::Text => "is no text".to_owned(),
            Self::Base64 if is_base64(json) => return None,
            Self::Base64 => "is no base64".to_owned(),
            Self::Uri => match lossy(json).map(|text| url::Url::parse(&text).is_ok()) {
                Some(true) => return None,
                Some(false) => "is no whole URI".to_owned(),
                None => "is no text".to_owned(),
            },
            Self::Word(words) if is_one_of(json, words) => return None,
            Self::Word(words) => format!("is not {}", words.join(" or ")),
            Self::Flag if matches!(json, "true" | "false") => return None,
            Self::Flag => "is not true or false".to_owned(),
            Self::Number if number(json).is_some() => return None,
            Self::Number => "is no number".to_owned(),
            Self::Whole if number(json).is_some_and(|number| number.fract() == 0.0) => return None,
            Self::Whole => "is no whole number".to_owned(),
            Self::Share if number(json).is_some_and(|share| (0.0..=1.0).contains(&share)) => {
                return None;
            }
            Self::Share => "is no number from 0 to 1".to_owned(),
            Self::Time if lossy(json).is_some_and(|text| is_time(&text)) => return None,
            Self::Time => "is no time with its date and offset".to_owned(),
            Self::Object if json.starts_with('{') => return None,
            Self::Object => "is no object".to_owned(),
            Self::Texts | Self::Words(_) => return self.flaw_of_list(json),
            Self::Schemas => return flaw_of_schemas(json),
            Self::Members(shape) => match Members::read(json) {
                Ok(members) => {
                    let (path, what) = flaw_of(&members, shape)?;
                    return Some((format!(".{path}"), what));
                }
                Err(_) => "is no object".to_owned(),
            },
            Self::Items(shape) => match elements(json) {
                Ok(items) => return flaw_of_items(&items, shape),
                Err(_) => "is no list".to_owned(),
            },
            Self::Hints(_) => return None,
        };
        Some((String::new(), what))
    }

    fn flaw_of_list(&self, json: &str) -> Option<(String, String)> {
        let Ok(items) = elements(json) else {
            return Some((String::new(), "is no list".to_owned()));
        };
        let place = items.iter().position(|item| match self {
            Self::Words(words) => !is_one_of(item.get(), words),
            _ => !item.get().starts_with('"'),
        })?;
        Some((format!("[{place}]"), "is not one of its texts".to_owned()))
    }

    /// `value` without its null members, if it has some; or [`Trimmed::Gone`].
    fn trim(&self, value: &RawValue) -> Trimmed {
        let json = value.get();
        let changed = match self {
            Self::Hints(shape) => match flaw(json, shape) {
                Some(_) => return Trimmed::Gone,
                None => trimmed(json, shape),
            },
            Self::Members(shape) => trimmed(json, shape),
            Self::Items(shape) => trimmed_items(json, |item| trimmed(item, shape)),
            _ => return Trimmed::Same,
        };
        match changed {
            Cow::Borrowed(_) => Trimmed::Same,
            Cow::Owned(changed) => Trimmed::Changed(changed),
        }
    }
}

/// What becomes of a value.
enum Trimmed {
    Same,
    Changed(String),
    Gone,
}

/// `object` without those members of `shape` that are `null`, and without hints of another form;
/// all else keeps its bytes.
pub fn trimmed<'a>(object: &'a str, shape: &Shape) -> Cow<'a, str> {
    let Ok(members) = Members::read(object) else { return object.into() };
    let mut differs = false;
    let mut rest = Vec::with_capacity(members.0.len());
    for (key, value) in &members.0 {
        let member = shape.iter().find(|member| member.key == key);
        let change = match member {
            Some(_) if is_null(value) => Trimmed::Gone,
            Some(member) => member.kind.trim(value),
            None => Trimmed::Same,
        };
        differs |= !matches!(change, Trimmed::Same);
        match change {
            Trimmed::Same => rest.push((key, Cow::Borrowed(value.get()))),
            Trimmed::Changed(value) => rest.push((key, value.into())),
            Trimmed::Gone => {}
        }
    }
    if !differs {
        return object.into();
    }
    let texts = rest.iter().map(|(key, value)| format!("{}:{value}", quoted(key)));
    format!("{{{}}}", texts.collect::<Vec<_>>().join(",")).into()
}

/// The list `json` with its items changed by `change`; as it is if nothing changes.
pub fn trimmed_items(json: &str, change: impl Fn(&str) -> Cow<'_, str>) -> Cow<'_, str> {
    let Ok(items) = elements(json) else { return json.into() };
    let items: Vec<Cow<'_, str>> = items.into_iter().map(|item| change(item.get())).collect();
    if items.iter().all(|item| matches!(item, Cow::Borrowed(_))) {
        return json.into();
    }
    format!("[{}]", items.join(",")).into()
}

/// A tool for a client with sessions. Those revisions know only output of one object, and such a
/// client refuses the whole list for another `outputSchema`; and a schema of an argument is an
/// object there.
pub fn tool_for_sessions(tool: &str, keeps_output: bool) -> Cow<'_, str> {
    let Ok(members) = Members::read(tool) else { return tool.into() };
    let mut differs = false;
    let mut texts = Vec::with_capacity(members.0.len());
    for (key, value) in &members.0 {
        let changed = match &**key {
            "outputSchema" if !keeps_output => {
                differs = true;
                continue;
            }
            "inputSchema" | "outputSchema" => with_object_schemas(value.get()),
            _ => Cow::Borrowed(value.get()),
        };
        differs |= matches!(changed, Cow::Owned(_));
        texts.push(format!("{}:{changed}", quoted(key)));
    }
    if differs { format!("{{{}}}", texts.join(",")).into() } else { tool.into() }
}

/// `object` with `json` as its member `key`, which it has.
pub fn replaced<'a>(object: &'a str, key: &str, json: &str) -> Cow<'a, str> {
    match super::json::around(object, key) {
        Some((before, after)) => [before, json, after].concat().into(),
        None => object.into(),
    }
}

/// Whether `schema` says that its values are objects, in the form that clients with sessions read.
pub fn is_of_object(schema: &str) -> bool {
    flaw(schema, &INPUT).is_none()
}

/// `object` without its members called `key`.
pub fn without(object: &str, key: &str) -> String {
    let Ok(Members(members)) = Members::read(object) else { return object.to_owned() };
    let others = members.iter().filter(|(name, _)| name != key);
    let others: Vec<String> =
        others.map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
    format!("{{{}}}", others.join(","))
}

/// The schema of an object, in which the schemas of its properties are objects: `{}` for `true`.
fn with_object_schemas(schema: &str) -> Cow<'_, str> {
    let Some((before, after)) = super::json::around(schema, "properties") else {
        return schema.into();
    };
    let properties = schema.get(before.len()..schema.len() - after.len()).unwrap_or_default();
    let Ok(members) = Members::read(properties) else { return schema.into() };
    if members.0.iter().all(|(_, value)| value.get().starts_with('{')) {
        return schema.into();
    }
    let texts = members.0.iter().map(|(key, value)| {
        let value = match value.get() {
            "true" | "null" => "{}",
            "false" => r#"{"not":{}}"#,
            schema => schema,
        };
        format!("{}:{value}", quoted(key))
    });
    format!("{before}{{{}}}{after}", texts.collect::<Vec<_>>().join(",")).into()
}

fn flaw_of_items(items: &[&RawValue], shape: &Shape) -> Option<(String, String)> {
    for (place, item) in items.iter().enumerate() {
        let Ok(members) = Members::read(item.get()) else {
            return Some((format!("[{place}]"), "is no object".to_owned()));
        };
        if let Some((path, what)) = flaw_of(&members, shape) {
            return Some((format!("[{place}].{path}"), what));
        }
    }
    None
}

fn flaw_of_schemas(json: &str) -> Option<(String, String)> {
    let Ok(members) = Members::read(json) else {
        return Some((String::new(), "is no object".to_owned()));
    };
    let (key, _) = members.0.iter().find(|(_, value)| !may_be_schema(value))?;
    Some((format!(".{key}"), "is no schema".to_owned()))
}

fn may_be_schema(value: &RawValue) -> bool {
    value.get().starts_with('{') || matches!(value.get(), "true" | "false" | "null")
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

fn is_one_of(json: &str, words: &[&str]) -> bool {
    lossy(json).is_some_and(|text| words.contains(&&*text))
}

/// Whether the JSON text `json` is a string that a browser's `atob` reads.
fn is_base64(json: &str) -> bool {
    let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return false;
    };
    // `\/` and line ends are written with escapes.
    let text = if inner.contains('\\') { lossy(json).unwrap_or_default() } else { inner.into() };
    let body = text.trim_ascii_end().trim_end_matches('=');
    let mut count = 0_usize;
    for byte in body.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if !byte.is_ascii_alphanumeric() && !matches!(byte, b'+' | b'/') {
            return false;
        }
        count += 1;
    }
    count % 4 != 1
}

fn number(json: &str) -> Option<f64> {
    json.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether `text` is a time of RFC 3339, in the capital letters that clients want.
fn is_time(text: &str) -> bool {
    static TIME: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&json!({ "format": "date-time" })).expect("the constant is a schema")
    });
    !text.contains(['t', 'z', ' ']) && TIME.is_valid(&text.into())
}

#[cfg(test)]
mod tests;
