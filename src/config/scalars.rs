//! The types of single values in bridge.yaml: what may be written, and its place in the schema.
//!
//! Must not: know which key a value belongs to.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, de};

use super::At;
use super::deserialize::{ANY, LIST, SCALAR};
use super::file_format::{ListenMap, Rule, Sandbox};
use super::value::{DURATION_FORMS, SIZE_FORMS, parse_duration, parse_size};
use crate::model::words::words;

/// A string; a number or a boolean without quotes counts as the text that was written.
#[derive(Clone)]
pub struct Scalar(pub String);

/// `250ms`, `30s`, `5m`, `2h`.
#[derive(Debug, Clone, Copy)]
pub struct DurationText(pub Duration);

/// The value of `pending_after` or `idle_stop`: a duration; `None` for `off`.
#[derive(Debug, Clone, Copy)]
pub struct DurationOrOff(pub Option<Duration>);

/// `512B`, `64KiB`, `1MiB`, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct SizeText(pub usize);

/// A whole number of at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Count(pub usize);

/// One text or a list of texts.
pub struct OneOrMany(pub Vec<At<String>>);

/// One glob or rule, or a list of them.
pub struct Globs(pub Vec<At<GlobOrRule>>);

/// A glob of tools, or a rule for some of their calls.
pub enum GlobOrRule {
    Glob(String),
    Rule(Rule),
}

/// The value of `listen`: the short form or the map with everything.
pub enum ListenValue {
    Short(Vec<At<String>>),
    Map(Box<ListenMap>),
}

/// The value of a program's `sandbox`.
pub enum SandboxValue {
    Off,
    Secrets,
    Lists(Sandbox),
}

/// A map that is a JSON Schema. Only its place is read here: its content is taken from the
/// document, which keeps the order of the keys.
pub struct SchemaMap;

words! {
    /// When the program of an MCP server starts.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(inline)]
    pub enum StartMode {
        Eager = "eager",
        Lazy = "lazy",
    }
}

words! {
    /// The method of a local tool's request.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "UPPERCASE")]
    #[schemars(inline)]
    pub enum HttpMethod {
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }
}

/// What another runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RuntimeKind {
    Hsafa,
    ClaudeEnvironment,
}

/// A revision of hsafa's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum HsafaApi {
    V3,
    V7,
}

/// The transport of an MCP server; `http` is what other products call `streamable-http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum McpTransport {
    Stdio,
    StreamableHttp,
    Http,
    Sse,
}

/// Whose login a backend's tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum LoginKind {
    Bridge,
}

/// How a client shows its secret to an issuer of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ClientAuth {
    Basic,
    Post,
}

/// How each of these values is read: what it may be, its piece of the JSON Schema, in place, and
/// the values that are taken.
macro_rules! scalars {
    ($($name:ident as $form:ident: $expected:expr, |$generator:ident| $schema:expr, { $($visit:tt)* })*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ScalarVisitor;

                impl<'de> Visitor<'de> for ScalarVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    $($visit)*
                }

                deserializer.deserialize_newtype_struct($form, ScalarVisitor)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

scalars! {
    Scalar as SCALAR: "a string",
    |_generator| json_schema!({ "type": ["string", "number", "boolean"] }),
    {
        fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
            Ok(Scalar(text.to_owned()))
        }
    }

    DurationText as ANY: DURATION_FORMS,
    |_generator| json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }),
    {
        fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationText, E> {
            parse_duration(text)
                .map(DurationText)
                .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    SizeText as ANY: SIZE_FORMS,
    |_generator| json_schema!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB)$" }),
    {
        fn visit_str<E: de::Error>(self, text: &str) -> Result<SizeText, E> {
            parse_size(text)
                .map(SizeText)
                .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    DurationOrOff as ANY: &format!("{DURATION_FORMS}, or off"),
    |_generator| json_schema!({ "type": "string", "pattern": "^(off|[0-9]+(ms|s|m|h))$" }),
    {
        fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationOrOff, E> {
            if text == "off" {
                return Ok(DurationOrOff(None));
            }
            parse_duration(text)
                .map(|after| DurationOrOff(Some(after)))
                .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    Count as ANY: "a whole number of at least 1",
    |_generator| json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
    {
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
            // The daemon makes semaphores of these numbers, which have a smaller maximum.
            let count = u32::try_from(number).ok().and_then(|n| usize::try_from(n).ok());
            count
                .filter(|count| *count > 0)
                .map(Count)
                .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
        }
    }

    OneOrMany as LIST: "a string or a list of strings",
    |_generator| json_schema!({ "type": ["string", "array"], "items": { "type": "string" } }),
    {
        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOrMany, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany)
        }
    }

    GlobOrRule as ANY: "a glob, or a map with tool and when",
    |generator| json_schema!({
        "anyOf": [{ "type": "string" }, generator.subschema_for::<Rule>()],
    }),
    {
        fn visit_str<E>(self, text: &str) -> Result<GlobOrRule, E> {
            Ok(GlobOrRule::Glob(text.to_owned()))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GlobOrRule, A::Error> {
            Rule::deserialize(MapAccessDeserializer::new(map)).map(GlobOrRule::Rule)
        }
    }

    Globs as LIST: "a glob or a list of globs and rules",
    |generator| {
        let one = GlobOrRule::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "array", "items": one }, one] })
    },
    {
        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Globs, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Globs)
        }
    }

    ListenValue as LIST: "an address, a list of addresses, or a map with tcp, unix and tls",
    |generator| json_schema!({
        "anyOf": [
            OneOrMany::json_schema(generator),
            generator.subschema_for::<ListenMap>(),
        ],
    }),
    {
        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ListenValue, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq)).map(ListenValue::Short)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListenValue, A::Error> {
            let map = ListenMap::deserialize(MapAccessDeserializer::new(map))?;
            Ok(ListenValue::Map(Box::new(map)))
        }
    }

    SandboxValue as ANY: "off, secrets, or a map with read, write",
    |generator| json_schema!({
        "anyOf": [
            { "enum": ["off", "secrets"] },
            generator.subschema_for::<Sandbox>(),
        ],
    }),
    {
        fn visit_str<E: de::Error>(self, text: &str) -> Result<SandboxValue, E> {
            match text {
                "off" => Ok(SandboxValue::Off),
                "secrets" => Ok(SandboxValue::Secrets),
                _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
            }
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SandboxValue, A::Error> {
            Sandbox::deserialize(MapAccessDeserializer::new(map)).map(SandboxValue::Lists)
        }
    }

    SchemaMap as ANY: "a map, which is a JSON Schema",
    |_generator| json_schema!({ "type": "object" }),
    {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SchemaMap, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(SchemaMap)
        }
    }
}
