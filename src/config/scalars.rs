//! The types of single values in bridge.yaml: what may be written, and its place in the schema.
//!
//! Must not: know which key a value belongs to.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    deserialize::At,
    file_format::{ListenMap, Sandbox},
    value::{DURATION_FORMS, parse_duration},
};

/// `250ms`, `30s`, `5m`, `2h`.
#[derive(Debug, Clone, Copy)]
pub struct DurationText(pub Duration);

/// The value of `pending_after`: a duration, or `off`.
#[derive(Debug, Clone, Copy)]
pub enum PendingAfter {
    Off,
    After(Duration),
}

/// A whole number of at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Count(pub usize);

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub struct Share(pub f64);

/// One text or a list of texts.
#[derive(Debug)]
pub enum OneOrMany {
    One(String),
    Many(Vec<At<String>>),
}

/// One glob or a list of globs.
#[derive(Debug)]
pub struct Globs(pub OneOrMany);

/// The value of `listen`: the short form or the map with everything.
#[derive(Debug)]
pub enum ListenValue {
    Short(OneOrMany),
    Map(ListenMap),
}

/// The value of a program's `sandbox`.
#[derive(Debug)]
pub enum SandboxValue {
    Off,
    Secrets,
    Lists(Sandbox),
}

/// A map that is a JSON Schema. Only its place is read here: its content is taken from the document,
/// which keeps the order of the keys.
#[derive(Debug)]
pub struct SchemaMap;

/// The method of a local tool's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// The value of `auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum AuthWord {
    Token,
    Off,
}

/// The value of `on_unavailable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum UnavailableWord {
    Stub,
    Stale,
    Omit,
    Fail,
}

/// The value of `pin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PinWord {
    Off,
    Warn,
    Enforce,
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

/// The binding of an A2A agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum A2aTransport {
    Jsonrpc,
    HttpJson,
    Grpc,
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;

        impl Visitor<'_> for DurationVisitor {
            type Value = DurationText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(DURATION_FORMS)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationText, E> {
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                parse_duration(text).map(DurationText).ok_or_else(wrong)
            }
        }

        deserializer.deserialize_str(DurationVisitor)
    }
}

impl<'de> Deserialize<'de> for PendingAfter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PendingVisitor;

        impl Visitor<'_> for PendingVisitor {
            type Value = PendingAfter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{DURATION_FORMS}, or off")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PendingAfter, E> {
                if text == "off" {
                    return Ok(PendingAfter::Off);
                }
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                parse_duration(text).map(PendingAfter::After).ok_or_else(wrong)
            }
        }

        deserializer.deserialize_str(PendingVisitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;

        impl Visitor<'_> for CountVisitor {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 1")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
                let wrong = || E::invalid_value(de::Unexpected::Unsigned(number), &self);
                // The daemon makes semaphores of these numbers, which have a smaller maximum.
                let count = u32::try_from(number).ok().and_then(|n| usize::try_from(n).ok());
                count.filter(|count| *count > 0).map(Count).ok_or_else(wrong)
            }
        }

        deserializer.deserialize_u64(CountVisitor)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShareVisitor;

        impl Visitor<'_> for ShareVisitor {
            type Value = Share;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Share, E> {
                match number {
                    0 => Ok(Share(0.0)),
                    1 => Ok(Share(1.0)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Share, E> {
                if (0.0..=1.0).contains(&number) {
                    Ok(Share(number))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(number), &self))
                }
            }
        }

        deserializer.deserialize_f64(ShareVisitor)
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor("a string or a list of strings"))
    }
}

impl<'de> Deserialize<'de> for Globs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor("a glob or a list of globs")).map(Self)
    }
}

/// Reads one text or many; what it is called that it reads.
struct OneOrManyVisitor(&'static str);

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOrMany, A::Error> {
        many(seq)
    }
}

impl<'de> Deserialize<'de> for ListenValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListenVisitor;

        impl<'de> Visitor<'de> for ListenVisitor {
            type Value = ListenValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, a list of addresses, or a map with tcp, unix and tls")
            }

            fn visit_str<E>(self, text: &str) -> Result<ListenValue, E> {
                Ok(ListenValue::Short(OneOrMany::One(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ListenValue, A::Error> {
                many(seq).map(ListenValue::Short)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListenValue, A::Error> {
                ListenMap::deserialize(MapAccessDeserializer::new(map)).map(ListenValue::Map)
            }
        }

        deserializer.deserialize_any(ListenVisitor)
    }
}

impl<'de> Deserialize<'de> for SandboxValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SandboxVisitor;

        impl<'de> Visitor<'de> for SandboxVisitor {
            type Value = SandboxValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("off, secrets, or a map with read, write")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SandboxValue, E> {
                match text {
                    "off" => Ok(SandboxValue::Off),
                    "secrets" => Ok(SandboxValue::Secrets),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SandboxValue, A::Error> {
                Sandbox::deserialize(MapAccessDeserializer::new(map)).map(SandboxValue::Lists)
            }
        }

        deserializer.deserialize_any(SandboxVisitor)
    }
}

fn many<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<OneOrMany, A::Error> {
    let mut items = Vec::new();
    while let Some(item) = seq.next_element()? {
        items.push(item);
    }
    Ok(OneOrMany::Many(items))
}

impl<'de> Deserialize<'de> for SchemaMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SchemaVisitor;

        impl<'de> Visitor<'de> for SchemaVisitor {
            type Value = SchemaMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map, which is a JSON Schema")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SchemaMap, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(SchemaMap)
            }
        }

        deserializer.deserialize_any(SchemaVisitor)
    }
}

/// Gives the types above their piece of the JSON Schema, in place.
macro_rules! inline_schema {
    ($($name:ident => |$generator:ident| $schema:expr;)*) => {$(
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

inline_schema! {
    DurationText => |_generator| json_schema!({
        "type": "string",
        "pattern": "^[0-9]+(ms|s|m|h)$",
    });
    PendingAfter => |_generator| json_schema!({
        "type": "string",
        "pattern": "^(off|[0-9]+(ms|s|m|h))$",
    });
    Count => |_generator| json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
    Share => |_generator| json_schema!({ "type": "number", "minimum": 0, "maximum": 1 });
    OneOrMany => |_generator| json_schema!({
        "type": ["string", "array"],
        "items": { "type": "string" },
    });
    Globs => |generator| OneOrMany::json_schema(generator);
    ListenValue => |generator| json_schema!({
        "anyOf": [
            OneOrMany::json_schema(generator),
            generator.subschema_for::<ListenMap>(),
        ],
    });
    SandboxValue => |generator| json_schema!({
        "anyOf": [
            { "enum": ["off", "secrets"] },
            generator.subschema_for::<Sandbox>(),
        ],
    });
    SchemaMap => |_generator| json_schema!({ "type": "object" });
}
