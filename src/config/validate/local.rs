//! One entry of `local`, and its schemas as JSON text: keys in their order, numbers as they are
//! written.
//!
//! Must not: send a request, start the program or look for it.

use std::sync::Arc;

use http::Method;
use serde_json::value::RawValue;

use super::program::{ArgvKeys, ProgramDefaults};
use super::{Defaults, Inherited, Validator, all, mistakes};
use crate::config::document::{Kind, Node};
use crate::config::file_format::CommonKeys;
use crate::config::{
    Action, At, Backend, Dialect, HttpMethod, Local, NodeId, Pin, SchemaMap, Target, file_format,
};
use crate::model::json::quoted;
use crate::model::{BackendName, InputSchema};

impl Validator<'_> {
    pub(super) fn local(
        &self,
        name: &BackendName,
        at: &At<file_format::Local>,
        inherited: Inherited<'_>,
    ) -> Backend {
        let At { value: entry, node } = at;
        let input = self.definition(entry);
        let action = self.action(*node, entry, inherited.programs);
        let defaults = Defaults {
            pending_after: None,
            // Fewer for programs: each call starts a process.
            concurrency: if entry.command.is_some() { 4 } else { 16 },
            pin: Pin::Off,
        };
        let keys = CommonKeys { call_timeout: entry.timeout.as_ref(), ..entry.common_keys() };
        let tool = input.zip(action).map(|(input, action)| Local { input, action });
        let target = tool.map_or(Target::unresolved("local"), Target::Local);
        self.backend(name, target, &keys, &defaults, inherited)
    }

    /// The tool's definition for MANTYX: only the members that the file has.
    fn definition(&self, entry: &file_format::Local) -> Option<Arc<InputSchema>> {
        let schema = |at: Option<&At<SchemaMap>>| at.map(|at| self.object_schema(at.node));
        let flag = |at: Option<&At<bool>>| at.map(|at| Some(at.value.to_string()));
        let members = [
            ("description", entry.description.as_ref().map(|at| Some(quoted(&at.value)))),
            ("parameters", schema(entry.parameters.as_ref())),
            ("outputSchema", schema(entry.output_schema.as_ref())),
            ("longRunning", flag(entry.long_running.as_ref())),
            ("readOnly", flag(entry.read_only.as_ref())),
            ("retain", flag(entry.retain.as_ref())),
        ];
        let mut present = Vec::new();
        for (key, member) in members {
            if let Some(json) = member {
                present.push(format!("\"{key}\":{}", json?));
            }
        }
        let definition = RawValue::from_string(format!("{{{}}}", present.join(","))).ok()?;
        Some(InputSchema::of_local(definition.into()).into())
    }

    /// The JSON text of a schema; MANTYX requires one of an object.
    fn object_schema(&self, id: NodeId) -> Option<String> {
        let schema = self.document.node(id);
        let text = self.json(schema)?;
        let Kind::Map(entries) = &schema.kind else { return None };
        match entries.iter().find(|(key, _)| key == "type") {
            Some((_, node)) if !matches!(&node.kind, Kind::Str(kind) if kind == "object") => {
                self.refuse(node.id, mistakes::schema_of_object())
            }
            Some(_) => Some(text),
            None => self.refuse(id.key(), mistakes::schema_type()),
        }
    }

    fn action(
        &self,
        node: NodeId,
        entry: &file_format::Local,
        programs: &ProgramDefaults,
    ) -> Option<Action> {
        if entry.internal.as_ref().is_some_and(|at| at.value) {
            let keys = ["http", "command", "env", "cwd", "sandbox"];
            self.check_foreign_keys(node, &keys, "internal: true");
            return Some(Action::Internal);
        }
        match (&entry.http, &entry.command) {
            (Some(http), Some(command)) => {
                self.refuse(http.node.max(command.node).key(), mistakes::http_or_command())
            }
            (None, None) => self.missing(node, mistakes::no_action()),
            (Some(http), None) => {
                self.check_foreign_keys(node, &["env", "cwd", "sandbox"], "http");
                self.local_http(http)
            }
            (None, Some(command)) => {
                let keys = ArgvKeys {
                    argv: command,
                    env: entry.env.as_ref(),
                    cwd: entry.cwd.as_ref(),
                    sandbox: entry.sandbox.as_ref(),
                };
                self.argv_program(&keys, programs).map(Action::Command)
            }
        }
    }

    fn local_http(&self, at: &At<file_format::LocalHttp>) -> Option<Action> {
        let At { value: http, node } = at;
        let word = http.method.as_ref().map_or(HttpMethod::Post, |at| at.value).as_str();
        let method = Method::from_bytes(word.as_bytes()).expect("its word is a method");
        let address = self.needed(*node, &http.url, mistakes::no_request())?;
        let url = self.url(address, Dialect::Own);
        let headers = self.headers(http.headers.as_ref(), Dialect::Own, url.as_deref());
        let tls = self.server_tls(http.tls.as_ref(), Dialect::Own, url.as_deref())?;
        Some(Action::Http { method, url: url?, headers: headers?, tls })
    }

    /// The JSON text of a value of the file. A value that JSON cannot express is reported as a
    /// mistake.
    fn json(&self, Node { id, kind, .. }: &Node) -> Option<String> {
        Some(match kind {
            Kind::Null => "null".to_owned(),
            Kind::Bool(value) => value.to_string(),
            // YAML has more forms of a number than JSON.
            Kind::Int(_, text) | Kind::Float(_, text) if is_json(text) => text.clone(),
            Kind::Int(value, _) => value.to_string(),
            Kind::Float(value, _) if value.is_finite() => value.to_string(),
            Kind::Float(..) => {
                return self.refuse(*id, mistakes::no_json_number());
            }
            Kind::Str(value) => quoted(value),
            Kind::Seq(items) => {
                let items: Vec<_> = all(items.iter().map(|item| self.json(item)))?;
                format!("[{}]", items.join(","))
            }
            Kind::Map(entries) => {
                let members: Vec<_> = all(entries
                    .iter()
                    .map(|(key, value)| Some(format!("{}:{}", quoted(key), self.json(value)?))))?;
                format!("{{{}}}", members.join(","))
            }
        })
    }
}

/// YAML also has `.5`, `0x1f` and `1_000`.
fn is_json(number: &str) -> bool {
    number.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<serde::de::IgnoredAny>(number).is_ok()
}
