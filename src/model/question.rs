//! A question of an MCP server for the user (elicitation), as a person answers it: whether it has a
//! form, whether an answer fits that, and the result for the server.
//!
//! Must not: ask a person, or open a URL.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::approval::Outcome;
use super::visible::hides;
use super::{InputSchema, Members, Verdict, form, member, string_member};

/// What a question must be to have an answer: a URL of the web, or a form with the fields that
/// 2025-11-25 knows.
static FORM: LazyLock<InputSchema> = LazyLock::new(|| of_text(include_str!("question.json")));

/// A question, with what its answer must be.
#[derive(Debug, Deserialize)]
#[serde(from = "Box<RawValue>")]
pub struct Question {
    /// The parameters of `elicitation/create`, verbatim.
    pub params: Box<RawValue>,
    /// Why it has no answer but a denial.
    pub flaw: Option<String>,
    content: InputSchema,
}

impl From<Box<RawValue>> for Question {
    fn from(params: Box<RawValue>) -> Self {
        let trimmed = form::trimmed(params.get(), &form::QUESTION).into_owned();
        let params = RawValue::from_string(trimmed).unwrap_or(params);
        let url_mode = string_member(params.get(), "mode").as_deref() == Some("url");
        let url = string_member(params.get(), "url").filter(|_| url_mode);
        let schema = member(params.get(), "requestedSchema").filter(|_| !url_mode);
        // A field that the form does not have is a mistake, unless the server says otherwise.
        let fields = schema.and_then(|schema| schema.get().strip_prefix('{'));
        let content = match fields {
            Some(fields) => of_text(&format!(r#"{{"additionalProperties":false,{fields}"#)),
            None => of_text(r#"{"type":"null"}"#),
        };
        let flaw = match (FORM.check_value(params.get()), content.check_value("{}")) {
            (Verdict::Invalid(why), _) => Some(why.replace("the arguments:", "the question:")),
            (Verdict::Unchecked { why, .. }, _) | (_, Verdict::Unchecked { why, .. }) => Some(why),
            // An answer that nothing checks could be any.
            _ if !content.unchecked().is_empty() => {
                Some(format!("its schema cannot be used: {}", content.unchecked().join("; ")))
            }
            _ if url
                .as_ref()
                .is_some_and(|url| url.contains(|c: char| c.is_control() || hides(c))) =>
            {
                Some("/url: it has characters that cannot be seen".to_owned())
            }
            _ if url.is_some_and(|url| url::Url::parse(&url).is_err()) => {
                Some("/url: no browser can open it".to_owned())
            }
            _ => None,
        };
        Self { params, flaw, content }
    }
}

impl Serialize for Question {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.params.serialize(serializer)
    }
}

fn of_text(schema: &str) -> InputSchema {
    // An empty schema is no JSON here, and no form either.
    let schema = RawValue::from_string(schema.to_owned());
    InputSchema::alone(&schema.unwrap_or_default())
}

impl Question {
    fn check(&self, content: Option<&str>) -> Result<(), String> {
        if let Some(flaw) = &self.flaw {
            return Err(format!("The question can only be denied, as it has no form: {flaw}."));
        }
        let members = content.and_then(|content| Members::read(content).ok());
        if let Some(key) = members.as_ref().and_then(Members::duplicate) {
            return Err(format!("The answer has the field `{key}` twice."));
        }
        match self.content.check_value(content.unwrap_or("null")) {
            Verdict::Valid => Ok(()),
            Verdict::Invalid(why) | Verdict::Unchecked { why, .. } => {
                let why = why.replace("the arguments:", "`content`:");
                Err(format!("The answer is not what the question takes: {why}."))
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
        (_, Outcome::Denied) | (None, Outcome::Approved) if content.is_none() => Ok(()),
        _ => {
            let rule = "A server's question is answered or denied, a call is approved or denied, and \
                        only an answer has `content`.";
            Err(rule.to_owned())
        }
    }
}

/// The result for the server; an answer was checked before.
pub fn result(outcome: Outcome, content: Option<&str>) -> String {
    let action = match outcome {
        Outcome::Answered => "accept",
        Outcome::Denied => "decline",
        _ => "cancel",
    };
    let content = content.map(|content| format!(r#","content":{content}"#)).unwrap_or_default();
    format!(r#"{{"action":"{action}"{content}}}"#)
}

/// What a person typed, each `key=value`, as an object of this schema; or all of it as JSON. A key
/// of a list may come several times. The error is a sentence.
pub fn typed(schema: &Value, words: &[String]) -> Result<String, String> {
    if let [whole] = words
        && whole.starts_with('{')
    {
        return Ok(whole.clone());
    }
    let mut members: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pair in words {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair} is no key=value"))?;
        let json_value = serde_json::from_str::<&RawValue>(value).is_ok();
        let kind = match (field_type(schema, key), &schema["properties"]) {
            (None, Value::Null) => "any",
            (Some(kind), _) => kind,
            (None, properties) => {
                let fields = properties.as_object().into_iter().flatten();
                let names: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
                let all = names.join(", ");
                return Err(format!("there is no field `{key}`; the fields are: {all}"));
            }
        };
        let json = match kind {
            // A list may come whole, which is the way to an empty one.
            "array" if json_value && value.starts_with('[') => value.to_owned(),
            _ if takes_text(schema, key) => Value::from(value).to_string(),
            _ if json_value => value.to_owned(),
            "any" | "array" => Value::from(value).to_string(),
            kind => return Err(format!("/{key}: the value is not of type \"{kind}\"")),
        };
        members.entry(key).or_default().push(json);
    }
    let mut texts = Vec::new();
    for (key, values) in members {
        let value = match (field_type(schema, key), values.as_slice()) {
            (Some("array"), [whole]) if whole.starts_with('[') => whole.clone(),
            (Some("array"), _) => format!("[{}]", values.join(",")),
            (_, [value]) => value.clone(),
            _ => return Err(format!("{key} takes one value")),
        };
        texts.push(format!("{}:{value}", Value::from(key)));
    }
    Ok(format!("{{{}}}", texts.join(",")))
}

/// The type of the field `key`. A field may have no type, or may be `null`, too.
fn field_type<'s>(schema: &'s Value, key: &str) -> Option<&'s str> {
    let kind = &schema["properties"].get(key)?["type"];
    let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
    let mut names = kinds.iter().filter_map(Value::as_str);
    Some(names.find(|name| *name != "null").unwrap_or("any"))
}

/// Whether what a person types for the field `key` is a text, and needs no quotation marks.
fn takes_text(schema: &Value, key: &str) -> bool {
    match field_type(schema, key) {
        Some("array") => {
            matches!(schema["properties"][key]["items"]["type"].as_str(), None | Some("string"))
        }
        kind => kind == Some("string"),
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
    fn member_that_is_null_counts_as_left_out() {
        let schema = json!({"type": "object", "properties": {}, "required": null});
        let params = json!({"message": "?", "mode": null, "url": null, "requestedSchema": schema});
        assert_eq!(Question::from(raw(&params)).flaw, None);
    }

    #[test]
    fn question_without_a_form_can_only_be_denied() {
        let schema = |schema: Value| json!({"message": "?", "requestedSchema": schema});
        let object =
            |properties: Value| schema(json!({"type": "object", "properties": properties}));
        let url = |url: &str| json!({"mode": "url", "message": "?", "url": url});
        for (params, part) in [
            (json!({"message": "?"}), r#""requestedSchema" is required"#),
            (schema(json!(7)), "/requestedSchema"),
            (schema(json!({})), "/requestedSchema"),
            (schema(json!({"type": "string"})), "/requestedSchema/type"),
            (object(json!([])), "/requestedSchema/properties"),
            (object(json!({"a": {"type": "object"}})), "/requestedSchema/properties/a/type"),
            (object(json!({"a": 7})), "/requestedSchema/properties/a"),
            (object(json!({"a": {"type": "array"}})), "/requestedSchema/properties/a"),
            (object(json!({"a": {"type": "string", "minLength": "x"}})), "cannot be used"),
            (object(json!({"a": {"type": "string", "pattern": "(?=x)"}})), "cannot be used"),
            (url("javascript:alert(1)"), "/url"),
            (url("/relative"), "/url"),
            (json!({"mode": "url", "message": "?"}), r#""url" is required"#),
            (url("https://good.example/\u{202e}moc.live"), "/url"),
            (url("https://good.exa\u{200b}mple/"), "/url"),
            (url("https://good.example/\n@evil.example"), "/url"),
            (url("https://good.example/\u{1b}[2K"), "/url"),
            (json!({"mode": "voice", "message": "?"}), "/mode"),
        ] {
            let question = Question::from(raw(&params));
            let flaw = question.flaw.as_deref().unwrap_or_else(|| panic!("{params}"));
            println!("{flaw}");
            assert!(flaw.contains(part), "{params}: {flaw}");
            let told = question.check(Some("{}")).unwrap_err();
            assert!(told.contains("can only be denied"), "{told}");
        }
        let question = Question::from(raw(&url("https://login.example/x")));
        assert_eq!(question.flaw, None);
        assert_eq!(question.check(None), Ok(()));
        assert!(question.check(Some("{}")).is_err());
    }

    #[test]
    fn an_answer_fits_the_form() {
        let form = form_of(&json!({
            "name": {"type": "string", "minLength": 2},
            "age": {"type": "integer", "minimum": 0},
            "sure": {"type": "boolean"},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        }));
        let form = serde_json::to_string_pretty(&form).unwrap();
        let question = Question::from(RawValue::from_string(form).unwrap());
        assert_eq!(question.flaw, None);
        let all = json!({"name": "Ada", "age": 1, "sure": true, "size": "s", "tags": ["b"]});
        for good in [json!({"name": "Ada"}), all] {
            assert_eq!(question.check(Some(&good.to_string())), Ok(()), "{good}");
        }
        for (bad, part) in [
            (json!({}), r#"`content`: "name" is required"#),
            (json!({"name": "A"}), "/name"),
            (json!({"name": "Ada", "age": "1"}), "/age"),
            (json!({"name": "Ada", "size": "m"}), "/size"),
            (json!({"name": "Ada", "tags": ["c"]}), "/tags/0"),
            (json!({"name": "Ada", "colour": "red"}), "dditional properties are not allowed"),
            (json!(["Ada"]), "\"object\""),
        ] {
            let told = question.check(Some(&bad.to_string())).unwrap_err();
            println!("{told}");
            assert!(told.contains(part), "{bad}: {told}");
        }
        assert!(question.check(None).is_err());
        let twice = question.check(Some(r#"{"name":"Ada","age":9,"age":1}"#)).unwrap_err();
        assert!(twice.contains("`age` twice"), "{twice}");
    }

    #[test]
    fn typed_text_becomes_the_type_of_its_field() {
        let schema = &form_of(&json!({
            "name": {"type": "string"}, "n": {"type": "number"}, "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        }))["requestedSchema"];
        let typed = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|&one| one.to_owned()).collect();
            typed(schema, &given)
        };
        assert_eq!(typed(&[]).unwrap(), "{}");
        assert_eq!(typed(&[r#"{"n": 1}"#]).unwrap(), r#"{"n": 1}"#, "as it is");
        let all = ["name=7", "tags=b", "n=1.10", "sure=true", "tags=a=\"c\""];
        let content = r#"{"n":1.10,"name":"7","sure":true,"tags":["b","a=\"c\""]}"#;
        assert_eq!(typed(&all).unwrap(), content);
        for (given, part) in [
            (&["name"][..], "key=value"),
            (&["colour=red"], "no field `colour`"),
            (&["n=many"], "not of type \"number\""),
            (&["sure=yes"], "not of type \"boolean\""),
            (&["name=a", "name=b"], "one value"),
        ] {
            let told = typed(given).unwrap_err();
            assert!(told.contains(part), "{given:?}: {told}");
        }
    }

    #[test]
    fn an_answer_goes_to_the_server_as_it_was_written() {
        let accepted = result(Outcome::Answered, Some(r#"{"n": 1.10}"#));
        assert_eq!(accepted, r#"{"action":"accept","content":{"n": 1.10}}"#);
        assert_eq!(result(Outcome::Answered, None), r#"{"action":"accept"}"#);
        assert_eq!(result(Outcome::Denied, None), r#"{"action":"decline"}"#);
        assert_eq!(result(Outcome::Expired, None), r#"{"action":"cancel"}"#);
    }
}
