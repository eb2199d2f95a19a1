//! A question of an MCP server for the user (elicitation), as a person answers it: its form, the
//! check of an answer against it, and the server's `ElicitResult`.
//!
//! Must not: ask a person, or open a URL.

use serde_json::{Value, value::RawValue};
use url::Url;

use super::{
    approval::Outcome,
    json::{Members, member, string_member},
    schema::{InputSchema, Verdict},
};

/// The results for the server without an answer (2025-11-25, Elicitation: Response Actions).
pub const DECLINE: &str = r#"{"action":"decline"}"#;
pub const CANCEL: &str = r#"{"action":"cancel"}"#;

/// A question, with what its answer must be.
#[derive(Debug)]
pub struct Question {
    /// The parameters of `elicitation/create`, verbatim.
    pub params: Box<RawValue>,
    /// The error says why the question has no answer but a denial.
    form: Result<Form, String>,
}

#[derive(Debug)]
enum Form {
    /// The person opens a URL, and says so without a content.
    Url,
    Fields {
        names: Vec<String>,
        schema: InputSchema,
    },
}

/// What a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Flag,
    /// Several of the field's choices.
    List,
}

impl Kind {
    /// The kind of a field with this schema; `None` if a form cannot have it.
    pub fn of(property: &Value) -> Option<Self> {
        match property["type"].as_str()? {
            "string" => Some(Self::Text),
            "number" | "integer" => Some(Self::Number),
            "boolean" => Some(Self::Flag),
            "array" if property["items"].is_object() => Some(Self::List),
            _ => None,
        }
    }

    /// What a person typed for the field, as JSON; of a list, one element.
    fn json(self, typed: &str) -> Option<String> {
        match self {
            Self::Text | Self::List => Some(Value::from(typed).to_string()),
            Self::Flag => matches!(typed, "true" | "false").then(|| typed.to_owned()),
            Self::Number => {
                serde_json::from_str::<serde_json::Number>(typed).ok().map(|_| typed.to_owned())
            }
        }
    }
}

impl Question {
    pub fn new(params: Box<RawValue>) -> Self {
        let form = form(params.get());
        Self { params, form }
    }

    pub fn message(&self) -> String {
        string_member(self.params.get(), "message").unwrap_or_default()
    }

    /// Why it has no answer but a denial.
    pub fn flaw(&self) -> Option<&str> {
        self.form.as_ref().err().map(String::as_str)
    }

    /// Checks the answer of a person. The error is a sentence for the person.
    pub fn check(&self, content: Option<&str>) -> Result<(), String> {
        let form = self.form.as_ref();
        match (form.map_err(|flaw| format!("It can only be denied: {flaw}."))?, content) {
            (Form::Url, None) => Ok(()),
            (Form::Url, Some(_)) => Err("A question with a URL is answered without `content`, \
                                         once the person has opened the URL."
                .to_owned()),
            (Form::Fields { names, schema }, Some(content)) => fits(names, schema, content),
            (Form::Fields { names, .. }, None) => {
                Err(format!("`content` must be an object with its fields: {}.", names.join(", ")))
            }
        }
    }
}

/// Checks a decision on `question`, or on a call if that itself waits. The error is a sentence for
/// the person.
pub fn may_be(
    question: Option<&Question>,
    outcome: Outcome,
    content: Option<&str>,
) -> Result<(), String> {
    match (question, outcome) {
        (Some(question), Outcome::Answered) => question.check(content),
        _ if content.is_some() => Err("Only an answer has `content`.".to_owned()),
        (_, Outcome::Denied) | (None, Outcome::Approved) => Ok(()),
        (Some(_), _) => Err("The server of the call asks a question: answer it with \
                             {\"decision\":\"answer\",\"content\":{…}}, or deny it."
            .to_owned()),
        (None, _) => {
            Err("The call itself waits, and no question of its server: approve or deny it."
                .to_owned())
        }
    }
}

/// The result for the server with an answer that was checked.
pub fn accepted(content: Option<&str>) -> String {
    let content = content.map(|content| format!(r#","content":{content}"#)).unwrap_or_default();
    format!(r#"{{"action":"accept"{content}}}"#)
}

/// The content of what a person typed, each `key=value`, by the schema of the fields. A key of a
/// list may come several times. The error is a sentence.
pub fn typed(schema: &Value, given: &[String]) -> Result<String, String> {
    let mut members: Vec<(&str, Kind, Vec<String>)> = Vec::new();
    for pair in given {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair} is no key=value"))?;
        let property = &schema["properties"][key];
        let kind = Kind::of(property).ok_or_else(|| format!("{key} is none of its fields"))?;
        let what = property["type"].as_str().unwrap_or_default();
        let json = kind.json(value).ok_or_else(|| format!("{key} must be a {what}"))?;
        match members.iter_mut().find(|(known, ..)| *known == key) {
            Some((.., values)) if kind == Kind::List => values.push(json),
            Some(_) => return Err(format!("{key} takes one value")),
            None => members.push((key, kind, vec![json])),
        }
    }
    let member = |(key, kind, values): &(&str, Kind, Vec<String>)| match kind {
        Kind::List => format!("{}:[{}]", Value::from(*key), values.join(",")),
        _ => format!("{}:{}", Value::from(*key), values.join("")),
    };
    Ok(format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(",")))
}

fn form(params: &str) -> Result<Form, String> {
    match string_member(params, "mode").as_deref() {
        Some("url") => {
            let url = string_member(params, "url").and_then(|url| Url::parse(&url).ok());
            let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
            url.filter(is_web).map(|_| Form::Url).ok_or_else(|| {
                "its `url` is not one of http or https, and no other is opened".to_owned()
            })
        }
        None | Some("form") => fields(params),
        Some(_) => Err("its `mode` is unknown".to_owned()),
    }
}

fn fields(params: &str) -> Result<Form, String> {
    let schema = member(params, "requestedSchema").ok_or("it has no `requestedSchema`")?;
    let unusable = |why: &str| format!("its `requestedSchema` cannot be used: {why}");
    let read: Value =
        serde_json::from_str(schema.get()).map_err(|error| unusable(&error.to_string()))?;
    let properties = read["properties"].as_object().filter(|_| read["type"] == "object");
    let properties =
        properties.ok_or_else(|| unusable("it must be of the type `object`, with `properties`"))?;
    if let Some((name, _)) = properties.iter().find(|(_, it)| Kind::of(it).is_none()) {
        return Err(unusable(&format!(
            "`{name}` is no string, number, boolean or list of choices"
        )));
    }
    let names = properties.keys().cloned().collect();
    let schema = InputSchema::alone(schema);
    match schema.flaw() {
        Some(why) => Err(unusable(why)),
        None => Ok(Form::Fields { names, schema }),
    }
}

fn fits(names: &[String], schema: &InputSchema, content: &str) -> Result<(), String> {
    let members = Members::read(content).map_err(|_| "`content` must be an object.".to_owned())?;
    let is_unknown = |key: &&str| !names.iter().any(|name| name == key);
    if let Some(key) = members.0.iter().map(|(key, _)| &**key).find(is_unknown) {
        let names = names.join(", ");
        return Err(format!("`content` has `{key}`, which is none of its fields: {names}."));
    }
    match schema.check_value(content) {
        Verdict::Valid => Ok(()),
        Verdict::Invalid(mistakes) => {
            let mistakes = mistakes.replace("the arguments:", "content:");
            Err(format!("The answer does not fit the form: {mistakes}."))
        }
        Verdict::Unchecked { why, .. } => Err(format!("The answer cannot be checked: {why}.")),
    }
}

#[cfg(test)]
mod tests {
    //! Which questions have an answer, and which answers fit.

    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn form_of(properties: &Value) -> Value {
        let schema = json!({"type": "object", "properties": properties, "required": ["name"]});
        json!({"message": "Who?", "requestedSchema": schema})
    }

    #[test]
    fn what_is_no_form_can_only_be_denied() {
        let schema = |schema: Value| json!({"message": "?", "requestedSchema": schema});
        let object =
            |properties: Value| schema(json!({"type": "object", "properties": properties}));
        let url = |url: &str| json!({"mode": "url", "message": "?", "url": url});
        for (params, part) in [
            (json!({"message": "?"}), "no `requestedSchema`"),
            (schema(json!(7)), "type `object`"),
            (schema(json!({"type": "string"})), "type `object`"),
            (object(json!([])), "`properties`"),
            (object(json!({"a": {"type": "object"}})), "`a`"),
            (object(json!({"a": 7})), "`a`"),
            (object(json!({"a": {"type": "array"}})), "`a`"),
            (object(json!({"a": {"type": "string", "minLength": "x"}})), "cannot be used"),
            (object(json!({"a": {"type": "string", "pattern": "(?=x)"}})), "cannot be used"),
            (url("javascript:alert(1)"), "http"),
            (url("/relative"), "http"),
            (json!({"mode": "url", "message": "?"}), "http"),
            (json!({"mode": "voice", "message": "?"}), "`mode`"),
        ] {
            let question = Question::new(raw(&params));
            let flaw = question.flaw().unwrap_or_else(|| panic!("{params}"));
            assert!(flaw.contains(part), "{params}: {flaw}");
            let told = question.check(Some("{}")).unwrap_err();
            assert!(told.starts_with("It can only be denied"), "{told}");
        }
        let question = Question::new(raw(&url("https://login.example/x")));
        assert_eq!(question.flaw(), None);
        assert_eq!(question.check(None), Ok(()));
        assert!(question.check(Some("{}")).is_err());
    }

    #[test]
    fn an_answer_fits_the_form() {
        let question = Question::new(raw(&form_of(&json!({
            "name": {"type": "string", "minLength": 2},
            "age": {"type": "integer", "minimum": 0},
            "sure": {"type": "boolean"},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        }))));
        assert_eq!(question.flaw(), None);
        let all = json!({"name": "Ada", "age": 1, "sure": true, "size": "s", "tags": ["b"]});
        for good in [json!({"name": "Ada"}), all] {
            assert_eq!(question.check(Some(&good.to_string())), Ok(()), "{good}");
        }
        for (bad, part) in [
            (json!({}), "content: name is required"),
            (json!({"name": "A"}), "/name"),
            (json!({"name": "Ada", "age": "1"}), "/age"),
            (json!({"name": "Ada", "size": "m"}), "/size"),
            (json!({"name": "Ada", "tags": ["c"]}), "/tags/0"),
            (json!({"name": "Ada", "colour": "red"}), "`colour`"),
            (json!(["Ada"]), "an object"),
        ] {
            let told = question.check(Some(&bad.to_string())).unwrap_err();
            assert!(told.contains(part), "{bad}: {told}");
        }
        assert!(question.check(None).unwrap_err().contains("name, "), "its fields are named");
    }

    #[test]
    fn what_is_typed_becomes_what_the_field_takes() {
        let schema = &form_of(&json!({
            "name": {"type": "string"}, "n": {"type": "number"}, "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        }))["requestedSchema"];
        let typed = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|&one| one.to_owned()).collect();
            typed(schema, &given)
        };
        assert_eq!(typed(&[]).unwrap(), "{}");
        let all = ["name=7", "tags=b", "n=1.10", "sure=true", "tags=a=\"c\""];
        let content = r#"{"name":"7","tags":["b","a=\"c\""],"n":1.10,"sure":true}"#;
        assert_eq!(typed(&all).unwrap(), content);
        for (given, part) in [
            (&["name"][..], "key=value"),
            (&["colour=red"], "none of its fields"),
            (&["n=many"], "must be a number"),
            (&["sure=yes"], "must be a boolean"),
            (&["name=a", "name=b"], "one value"),
        ] {
            let told = typed(given).unwrap_err();
            assert!(told.contains(part), "{given:?}: {told}");
        }
    }

    #[test]
    fn an_answer_goes_to_the_server_as_it_was_written() {
        assert_eq!(
            accepted(Some(r#"{"n": 1.10}"#)),
            r#"{"action":"accept","content":{"n": 1.10}}"#
        );
        assert_eq!(accepted(None), r#"{"action":"accept"}"#);
    }
}
