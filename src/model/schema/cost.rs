//! The cost of a check, counted before the check is made: with references, a small schema can stand
//! for one of any size.
//!
//! Must not: decide what is valid, or be exact: the count is never less than the visits of a check,
//! alternatives included, and a doubt counts as too much.

use serde_json::{Map, Value};

use super::pattern::match_cost;
use super::usable::followed;

/// The most visits of one check: some ten milliseconds.
const MAX_VISITS: usize = 200_000;
/// How deep a check may go, references included.
const MAX_DEPTH: usize = 100;

/// The error says why a check would cost too much.
type Checked = Result<(), &'static str>;

/// Whether a check of `instance` against `schema` ends soon.
pub(super) fn affordable(schema: &Value, instance: &Value) -> Checked {
    Walk { root: schema, remaining: MAX_VISITS }.visit(schema, instance, 0)
}

struct Walk<'a> {
    root: &'a Value,
    /// Visits that may still be made.
    remaining: usize,
}

impl<'a> Walk<'a> {
    fn spend(&mut self, visits: usize) -> Checked {
        self.remaining = self
            .remaining
            .checked_sub(visits)
            .ok_or("a check against its schema would take too long")?;
        Ok(())
    }

    fn visit(&mut self, schema: &'a Value, instance: &Value, depth: usize) -> Checked {
        self.spend(1)?;
        if depth > MAX_DEPTH {
            return Err("a check against its schema would go too deep");
        }
        let Value::Object(schema) = schema else { return Ok(()) };
        if depth > 0
            && ["$id", "id"].iter().any(|key| schema.get(*key).is_some_and(Value::is_string))
        {
            return Err("references within its schema have a base of their own");
        }
        for (keyword, value) in schema {
            self.keyword(keyword, value, instance, depth + 1)?;
        }
        self.unevaluated(schema, instance, depth + 1)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'a Value,
        instance: &Value,
        depth: usize,
    ) -> Checked {
        match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                let target = self.resolve(target)?;
                self.visit(target, instance, depth)
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter().try_for_each(|schema| self.visit(schema, instance, depth))
            }
            ("not" | "if" | "then" | "else", schema) => self.visit(schema, instance, depth),
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                schemas.values().try_for_each(|schema| self.visit(schema, instance, depth))
            }
            ("properties", Value::Object(schemas)) => {
                let Value::Object(members) = instance else { return Ok(()) };
                self.spend(schemas.len())?;
                let mut both = schemas.iter().filter_map(|(k, s)| Some((s, members.get(k)?)));
                both.try_for_each(|(schema, member)| self.visit(schema, member, depth))
            }
            ("patternProperties", Value::Object(schemas)) => {
                for (pattern, schema) in schemas {
                    for (key, member) in object(instance) {
                        self.spend(match_cost(pattern, key))?;
                        self.visit(schema, member, depth)?;
                    }
                }
                Ok(())
            }
            ("propertyNames", schema) => object(instance)
                .try_for_each(|(key, _)| self.visit(schema, &Value::from(key.as_str()), depth)),
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                object(instance).try_for_each(|(_, member)| self.visit(schema, member, depth))
            }
            ("items" | "prefixItems", Value::Array(schemas)) => {
                let mut both = schemas.iter().zip(array(instance));
                both.try_for_each(|(schema, element)| self.visit(schema, element, depth))
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                array(instance).try_for_each(|element| self.visit(schema, element, depth))
            }
            ("enum", Value::Array(values)) => self.spend(values.len()),
            ("const" | "uniqueItems", _) => self.spend(array(instance).count()),
            ("pattern", Value::String(pattern)) => match instance {
                Value::String(text) => self.spend(match_cost(pattern, text)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// `unevaluated…` visits again, for every member, what the other keywords have seen.
    fn unevaluated(
        &mut self,
        schema: &'a Map<String, Value>,
        instance: &Value,
        depth: usize,
    ) -> Checked {
        let members = match instance {
            Value::Object(members) if schema.contains_key("unevaluatedProperties") => members.len(),
            Value::Array(elements) if schema.contains_key("unevaluatedItems") => elements.len(),
            _ => return Ok(()),
        };
        for _ in 0..members {
            self.spend(1)?;
            for (keyword, value) in schema {
                self.keyword(keyword, value, instance, depth)?;
            }
        }
        Ok(())
    }

    /// The target of a reference within the schema.
    fn resolve(&self, reference: &str) -> Result<&'a Value, &'static str> {
        followed(self.root, reference).ok_or("its schema has references that are not followed")
    }
}

fn object(instance: &Value) -> impl Iterator<Item = (&String, &Value)> {
    instance.as_object().into_iter().flatten()
}

fn array(instance: &Value) -> impl Iterator<Item = &Value> {
    instance.as_array().into_iter().flatten()
}
