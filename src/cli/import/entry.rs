//! One entry of another product as bridge.yaml has it.
//!
//! Must not: give a server a tool, or turn it on, where its own product does not. A key that is not
//! known may say so, and turns the server off.

use serde_json::{Map, Value, json};

use super::looks::is_everyday_name;
use super::permissions::{ToolRules, denied};
use super::secrets::Place;
use super::sections::{Product, Server};
use super::values::{duration, glob, is_empty, literal, texts, variable};
use super::{Imported, Source};
use crate::config::foreign::{ForeignKey, TimeUnit, foreign_key};
use crate::config::is_variable;
use crate::config::value::format_duration;

/// An entry on its way into bridge.yaml.
pub(super) struct Entry<'a> {
    imported: &'a mut Imported,
    source: &'a Source<'a>,
    /// Its name in bridge.yaml.
    name: &'a str,
    /// Its name in the file, which stands in front of its tools' names in some lists.
    file_name: &'a str,
    product: Product,
    server: Map<String, Value>,
    is_off: bool,
    rules: ToolRules,
    /// The address of a key that names a transport, too, and that transport.
    address: Option<(Value, &'static str)>,
    /// Paths of keys that say nothing to the bridge.
    unneeded: Vec<String>,
}

/// A key of an entry, or of a map in it that has keys of the entry.
struct Member<'v> {
    path: String,
    key: &'v str,
    value: &'v Value,
}

const IN_A_SANDBOX: &str = "keeps files and hosts from it in another way";

impl<'a> Entry<'a> {
    /// `server` as the entry `name`, of which `rules` are known already.
    pub(super) fn translate(
        imported: &'a mut Imported,
        source: &'a Source<'a>,
        name: &'a str,
        (server, rules): (&'a Server, ToolRules),
    ) -> Map<String, Value> {
        let mut entry = Self {
            imported,
            source,
            name,
            file_name: &server.name,
            product: server.product,
            server: Map::new(),
            is_off: server.is_off,
            rules,
            address: None,
            unneeded: Vec::new(),
        };
        if let Some(list) = &server.off_by {
            entry.is_off = true;
            entry.note(&format!("is off (`disabled: true`), as `{list}` says"));
        }
        let mut members = Vec::new();
        collect(&server.path, &server.entry, &mut members);
        for member in &members {
            entry.take(member, &members);
        }
        entry.finish(server)
    }

    /// Takes what one key says.
    fn take(&mut self, member: &Member<'_>, all: &[Member<'_>]) {
        let Member { path, key, value } = member;
        if value.is_null() {
            return;
        }
        let Some(meaning) = self.meaning(key) else {
            return self.unknown(path, "is not known here");
        };
        match meaning {
            ForeignKey::Is("disabled") => self.switch(path, value, true),
            ForeignKey::Enabled => self.switch(path, value, false),
            ForeignKey::Is("command") => self.command(value),
            ForeignKey::Is("args") => self.args(value),
            ForeignKey::Is("transport") => self.transport(key, value),
            ForeignKey::Is("required") => self.required(path, value),
            ForeignKey::Is("tools") => self.tools(path, value),
            ForeignKey::Is("sandbox") => self.sandbox(path, value, all),
            ForeignKey::Is(own) => self.own(own, value),
            ForeignKey::Allowed => self.allowed(path, value),
            ForeignKey::Denied => self.denied(path, value),
            ForeignKey::Asked => self.asked(path, value),
            ForeignKey::Unasked => self.unasked(key, value),
            ForeignKey::ApprovalMode => self.approval_mode(path, value, "*"),
            ForeignKey::Address(transport) => {
                let address = self.hidden("url", value);
                self.address = Some((address, transport));
            }
            ForeignKey::CallTimeout(unit) => self.time("call_timeout", path, value, unit),
            ForeignKey::StartTimeout(unit) => self.time("start_timeout", path, value, unit),
            ForeignKey::VariableNames => self.variables(path, value),
            ForeignKey::TokenVariable => match value.as_str().filter(|name| names_variable(name)) {
                Some(name) => {
                    let reference = self.reference(name);
                    self.bearer(&reference);
                }
                None => self.uncarried(path, "it names no variable"),
            },
            ForeignKey::Token => match value.as_str() {
                Some(token) => self.bearer(token),
                None => self.uncarried(path, "write its header into `headers`"),
            },
            ForeignKey::HeaderVariables => self.header_variables(path, value),
            ForeignKey::RequestOptions => self.request_options(path, value),
            ForeignKey::Login if is_empty(value) || *value == true => {}
            ForeignKey::Login => self.uncarried(
                path,
                "the bridge logs in by `auth: {oauth: {client_id: …, client_secret: …}}` alone",
            ),
            // It says whether the map `sandbox` counts.
            ForeignKey::SandboxSwitch => {
                if **value != false && !all.iter().any(|other| other.key == "sandbox") {
                    self.unknown(path, IN_A_SANDBOX);
                }
            }
            // The server has its name from there.
            ForeignKey::Unneeded if matches!(*key, "name" | "id") => {}
            ForeignKey::Nested | ForeignKey::Unneeded => self.unneeded.push((*key).to_owned()),
        }
    }

    /// What `key` says, where products differ.
    fn meaning(&self, key: &str) -> Option<ForeignKey> {
        let meaning = foreign_key(key)?;
        if meaning != ForeignKey::CallTimeout(TimeUnit::Unclear) {
            return Some(meaning);
        }
        Some(match self.product {
            // How long it may take to list its tools.
            Product::Opencode => ForeignKey::StartTimeout(TimeUnit::Milliseconds),
            Product::Goose | Product::Crush | Product::Zed => {
                ForeignKey::CallTimeout(TimeUnit::Seconds)
            }
            Product::LibreChat => ForeignKey::CallTimeout(TimeUnit::Milliseconds),
            _ => meaning,
        })
    }

    /// A sandbox of the product, which the bridge cannot take over.
    fn sandbox(&mut self, path: &str, value: &Value, all: &[Member<'_>]) {
        let mut switches = all.iter().filter(|other| other.key == "sandboxEnabled");
        if switches.clone().any(|switch| *switch.value == false) {
            return;
        }
        let names_none =
            is_empty(value) || matches!(value.as_str(), Some("off" | "none" | "false"));
        if !names_none || switches.any(|switch| !is_empty(switch.value)) {
            self.unknown(path, IN_A_SANDBOX);
        }
    }

    /// Turns the server off if `value` is `off`, or no boolean.
    fn switch(&mut self, path: &str, value: &Value, off: bool) {
        match value.as_bool() {
            Some(value) => self.is_off |= value == off,
            None => self.unknown(path, "is neither true nor false"),
        }
    }

    fn command(&mut self, value: &Value) {
        let Some(words) = value.as_array() else { return self.own("command", value) };
        let mut words = words.iter().cloned();
        if let Some(program) = words.next() {
            self.own("command", &program);
        }
        let key_args = match self.server.remove("args") {
            Some(Value::Array(args)) => args,
            _ => Vec::new(),
        };
        let command_args = self.hidden("", &words.collect());
        let args = command_args.as_array().into_iter().flatten().cloned().chain(key_args);
        self.server.insert("args".to_owned(), args.collect());
    }

    fn args(&mut self, value: &Value) {
        let before = self.server.remove("args");
        let args = match (before, self.hidden("", value)) {
            (Some(Value::Array(before)), Value::Array(args)) => {
                before.into_iter().chain(args).collect()
            }
            (_, args) => args,
        };
        if !is_empty(&args) {
            self.server.insert("args".to_owned(), args);
        }
    }

    fn transport(&mut self, key: &str, value: &Value) {
        let word = value.as_str().unwrap_or_default().to_ascii_lowercase().replace(['-', '_'], "");
        let own = match word.as_str() {
            "stdio" | "local" => "stdio",
            "http" | "streamablehttp" | "streamable" => "streamable-http",
            "sse" => "sse",
            "remote" | "url" => return,
            // bridge.yaml refuses it with its own words.
            _ => return drop(self.server.insert(key.to_owned(), value.clone())),
        };
        self.server.insert("transport".to_owned(), own.into());
    }

    /// Whether the entry names a program; keys come in the order of the alphabet.
    fn is_program(&self) -> bool {
        self.server.contains_key("command")
    }

    fn required(&mut self, path: &str, value: &Value) {
        match value.as_bool() {
            Some(true) => drop(self.server.insert("required".to_owned(), true.into())),
            Some(false) => {}
            None => self.uncarried(path, "it is neither true nor false"),
        }
    }

    /// A key that bridge.yaml has in the same form.
    fn own(&mut self, own: &'static str, value: &Value) {
        if is_empty(value) {
            return;
        }
        let placed = match own {
            "command" => self.source.placed_program(value),
            "cwd" | "envFile" => self.source.placed(value),
            "env" | "headers" => self.with_references(value),
            _ => value.clone(),
        };
        let hidden = self.hidden(own, &placed);
        match (self.server.get_mut(own), hidden) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            // The entry says it twice, which bridge.yaml refuses with its own words.
            (Some(_), value) if own == "url" => {
                self.server.insert("serverUrl".to_owned(), value);
            }
            (_, value) => drop(self.server.insert(own.to_owned(), value)),
        }
    }

    /// The values of `map`, with a reference in place of each `$NAME` that is a whole value.
    fn with_references(&mut self, map: &Value) -> Value {
        let Some(members) = map.as_object() else { return map.clone() };
        let mut values = Map::new();
        for (key, value) in members {
            let text = value.as_str().unwrap_or_default();
            let (scheme, rest) = text
                .split_once(' ')
                .map_or(("", text), |(_, rest)| text.split_at(text.len() - rest.len()));
            let value = match variable(rest) {
                Some(name) => format!("{scheme}{}", self.reference(name)).into(),
                None => value.clone(),
            };
            values.insert(key.clone(), value);
        }
        values.into()
    }

    fn hidden(&mut self, key: &str, value: &Value) -> Value {
        let at =
            Place { server: self.name, key, is_variable: key == "env", is_shell: key == "command" };
        self.imported.hidden(self.source, at, value)
    }

    fn tools(&mut self, path: &str, value: &Value) {
        let Some(members) = value.as_object() else {
            // Only here, and in Amp's lists, is a star more than a letter.
            return match texts(value) {
                Some(names) if names.iter().any(|name| name == "*") => {}
                Some(names) => self.allow(names),
                None => self.unknown(path, "is no list of tools"),
            };
        };
        let mut permitted = Vec::new();
        for (tool, value) in members {
            let path = format!("{path}.{tool}");
            match tool.as_str() {
                "allow" | "include" if value.is_array() => self.allowed(&path, value),
                "deny" | "exclude" if value.is_array() => self.denied(&path, value),
                _ if self.permits(&path, tool, value) => permitted.push(literal(tool)),
                _ => {}
            }
        }
        // All tools but these: `deny` would win over `allow`, so that none would be left.
        if !permitted.is_empty() && self.rules.deny.iter().any(|glob| glob == "*") {
            self.rules.deny.retain(|glob| glob != "*");
            self.allow(permitted);
        }
    }

    /// Takes what the entry says of one tool, or of those that a glob matches. Returns whether it
    /// permits them.
    fn permits(&mut self, path: &str, tool: &str, value: &Value) -> bool {
        let permitted = match value {
            Value::Null => return false,
            Value::Bool(permitted) => *permitted,
            Value::Object(members) => self.permission(path, tool, members),
            _ => {
                self.unknown(path, "is neither true nor false");
                return false;
            }
        };
        if !permitted {
            self.deny(path, tool);
        }
        permitted && tool != "*"
    }

    /// Whether a map of settings leaves a tool on.
    fn permission(&mut self, path: &str, tool: &str, members: &Map<String, Value>) -> bool {
        let mut permitted = true;
        for (key, value) in members {
            let path = format!("{path}.{key}");
            match foreign_key(key) {
                Some(ForeignKey::Enabled) if value.is_boolean() => permitted &= *value == true,
                Some(ForeignKey::Is("disabled")) if value.is_boolean() => {
                    permitted &= *value == false;
                }
                Some(ForeignKey::ApprovalMode) => {
                    self.approval_mode(&path, value, &glob(tool));
                }
                Some(ForeignKey::Unasked | ForeignKey::Unneeded) => {}
                _ => self.unknown(&path, "is not known here"),
            }
        }
        permitted
    }

    fn allowed(&mut self, path: &str, value: &Value) {
        let Some(names) = texts(value) else { return self.unknown(path, "is no list of tools") };
        // For goose, a list of none stands for all.
        if names.is_empty() && self.product == Product::Goose {
            return;
        }
        self.allow(match self.product {
            Product::Amp => names,
            _ => names.iter().map(|name| literal(name)).collect(),
        });
    }

    /// Two lists leave what is in both.
    fn allow(&mut self, names: Vec<String>) {
        let names = match self.rules.allow.take() {
            None => names,
            Some(others) => names.into_iter().filter(|name| others.contains(name)).collect(),
        };
        self.rules.allow = Some(names);
    }

    fn denied(&mut self, path: &str, value: &Value) {
        let Some(names) = texts(value) else { return self.unknown(path, "is no list of tools") };
        if value.as_str().is_some_and(|word| word.eq_ignore_ascii_case("all")) {
            return self.deny(path, "*");
        }
        for name in names {
            self.deny(path, &name);
        }
    }

    /// Denies the tool that a list, or a key, at `path` calls `name`.
    fn deny(&mut self, path: &str, name: &str) {
        match denied(name, self.file_name) {
            Some(globs) => self.rules.deny.extend(globs),
            None => self.unknown(path, "has a name that no tool can have"),
        }
    }

    fn asked(&mut self, path: &str, value: &Value) {
        let Some(names) = texts(value) else { return self.unknown(path, "is no list of tools") };
        for name in names {
            match denied(&name, self.file_name) {
                Some(globs) => self.rules.approve.extend(globs),
                None => self.unknown(path, "has a name that no tool can have"),
            }
        }
    }

    fn unasked(&mut self, key: &str, value: &Value) {
        if !is_empty(value) {
            let asks =
                "the bridge asks a person for the tools that `approve` names, and for no others";
            self.note(&format!("`{key}` is left out: {asks}"));
        }
    }

    fn approval_mode(&mut self, path: &str, value: &Value, tools: &str) {
        match value.as_str() {
            Some("prompt" | "writes" | "ask" | "always") => {
                self.rules.approve.push(tools.to_owned());
            }
            Some("auto" | "approve" | "never") => {}
            _ => {
                self.rules.approve.push(tools.to_owned());
                self.uncarried(path, "its word is not known, so a person is asked");
            }
        }
    }

    fn time(&mut self, own: &'static str, path: &str, value: &Value, unit: TimeUnit) {
        match duration(value, unit) {
            Some(time) => {
                let time = format_duration(time);
                if unit == TimeUnit::Unclear {
                    self.note(&format!("`{path}`, {value}, is read as {time}"));
                }
                self.server.insert(own.to_owned(), time.into());
            }
            None => self.uncarried(path, "it is no time"),
        }
    }

    fn variables(&mut self, path: &str, value: &Value) {
        let Some(items) = value.as_array() else {
            return self.uncarried(path, "it is no list of names");
        };
        for item in items {
            let name = item.as_str().or_else(|| item["name"].as_str());
            match name.filter(|name| names_variable(name)) {
                Some(name) => {
                    let reference = self.reference(name);
                    self.own("env", &json!({ name: reference }));
                }
                None => self.uncarried(path, "it is no list of names"),
            }
        }
    }

    /// A reference to the variable `name`, which the person is told to set.
    fn reference(&mut self, name: &str) -> String {
        let why = format!("named in the file, of {}", self.name);
        self.imported.vault.refer(name.to_owned(), why)
    }

    fn bearer(&mut self, token: &str) {
        let token = token.strip_prefix("Bearer ").unwrap_or(token);
        self.own("headers", &json!({ "Authorization": format!("Bearer {token}") }));
    }

    fn header_variables(&mut self, path: &str, value: &Value) {
        for (header, variable) in value.as_object().into_iter().flatten() {
            match variable.as_str().filter(|name| names_variable(name)) {
                Some(name) => {
                    let reference = self.reference(name);
                    self.own("headers", &json!({ header: reference }));
                }
                None => self.uncarried(&format!("{path}.{header}"), "it names no variable"),
            }
        }
    }

    fn request_options(&mut self, path: &str, value: &Value) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match key.as_str() {
                "headers" => self.own("headers", value),
                _ => self.uncarried(&format!("{path}.{key}"), "the bridge has no such setting"),
            }
        }
    }

    /// Keeps a server off whose entry says something that nobody here understands.
    fn unknown(&mut self, path: &str, why: &str) {
        self.is_off = true;
        let name = self.name;
        self.imported.unread.push(format!(
            "`{name}` is off (`disabled: true`), as `{path}` {why}, and may restrict it"
        ));
    }

    /// Says that something is missing which restricts nothing.
    fn uncarried(&mut self, path: &str, why: &str) {
        let name = self.name;
        self.imported.unread.push(format!("`{name}`: `{path}` is left out: {why}"));
    }

    fn note(&mut self, words: &str) {
        let name = self.name;
        self.imported.notes.push(format!("`{name}`: {words}"));
    }

    fn finish(mut self, server: &Server) -> Map<String, Value> {
        if let Some((address, transport)) = self.address.take() {
            if self.server.insert("url".to_owned(), address).is_some() {
                self.note("its second address is left out, as its product prefers the other");
            }
            self.server.entry("transport").or_insert(transport.into());
        }
        self.one_of_program_and_address();
        if let Some(folder) = &server.folder
            && self.is_program()
            && !self.server.contains_key("cwd")
            && has_relative_path(&self.server)
        {
            self.server.insert("cwd".to_owned(), folder.as_str().into());
        }
        let ToolRules { allow, deny, approve } = std::mem::take(&mut self.rules);
        let mut tools = Map::new();
        if let Some(allow) = allow {
            tools.insert("allow".to_owned(), allow.into());
        }
        if !deny.is_empty() {
            tools.insert("deny".to_owned(), deny.into());
        }
        if !tools.is_empty() {
            self.server.insert("tools".to_owned(), tools.into());
        }
        if !approve.is_empty() {
            self.server.insert("approve".to_owned(), approve.into());
        }
        if self.is_off {
            self.server.insert("disabled".to_owned(), true.into());
        }
        if !self.unneeded.is_empty() {
            let keys = self.unneeded.join("`, `");
            self.note(&format!("`{keys}` is left out: it says nothing to the bridge"));
        }
        self.server
    }

    /// Of an entry with both, the part that its transport does not need goes.
    fn one_of_program_and_address(&mut self) {
        let stdio = self.server.get("transport").is_some_and(|word| word == "stdio");
        if self.is_program() && stdio {
            self.server.remove("transport");
        }
        if !self.is_program() || !self.server.contains_key("url") {
            return;
        }
        let (unused, words) = match self.server.get("transport").and_then(Value::as_str) {
            Some("streamable-http" | "sse") => ("command args env envFile cwd", "its program"),
            _ if stdio => ("url headers", "its address"),
            _ => return,
        };
        for key in unused.split(' ') {
            self.server.remove(key);
        }
        self.note(&format!("{words} is left out, as its type is another"));
    }
}

/// Whether `name` can be a variable's. People also write a token itself where its variable goes.
fn names_variable(name: &str) -> bool {
    is_variable(name) && is_everyday_name(name)
}

/// Lists the keys of an entry, and those of maps in it that have keys of the entry.
fn collect<'v>(path: &str, entry: &'v Value, members: &mut Vec<Member<'v>>) {
    for (key, value) in entry.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let may_nest = matches!(
            foreign_key(key),
            Some(ForeignKey::Nested | ForeignKey::Is("command" | "transport"))
        );
        if may_nest && value.is_object() {
            collect(&path, value, members);
        } else if key == "path" && path.ends_with(".command.path") {
            members.push(Member { path, key: "command", value });
        } else {
            members.push(Member { path, key, value });
        }
    }
}

/// Whether the program or an argument is a path below the directory that it is started in.
fn has_relative_path(server: &Map<String, Value>) -> bool {
    let args = server.get("args").and_then(Value::as_array).into_iter().flatten();
    args.chain(server.get("command")).any(is_relative)
}

fn is_relative(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text == "." || text.starts_with("./") || text.starts_with("../")
}
