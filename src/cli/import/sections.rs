//! Where a file has its MCP servers: the sections of the products that keep some.
//!
//! Must not: change an entry.

use serde_json::{Map, Value};

use super::names::{name_of_entry, shown};
use super::values::texts;

/// The products whose entries differ from those of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Other,
    Amp,
    Codex,
    Continue,
    Crush,
    Goose,
    LibreChat,
    Opencode,
    Zed,
}

/// One entry of a file.
#[derive(Debug)]
pub(super) struct Server {
    /// Its name there; in a list, the one inside.
    pub(super) name: String,
    /// Whether it has a name there; otherwise its address or package stands for it.
    pub(super) has_name: bool,
    /// The path of its key, for a person.
    pub(super) path: String,
    pub(super) entry: Value,
    pub(super) product: Product,
    /// The directory in which the product starts it, if the file says so.
    pub(super) folder: Option<String>,
    /// The path of a list elsewhere in the file that turns it off.
    pub(super) off_by: Option<String>,
    /// Whether something at the top of the file, which the person is told of, turns it off.
    pub(super) is_off: bool,
}

/// The members at the top of a file, and how it is written.
#[derive(Clone, Copy)]
pub(super) struct Root<'a> {
    pub(super) members: &'a Map<String, Value>,
    pub(super) is_yaml: bool,
}

/// Lists of servers' names that are off, and lists of all that are on.
const OFF: [&str; 5] = [
    "disabledMcpServers",
    "disabledMcpjsonServers",
    "disabledServers",
    "excludeMCPServers",
    "excludedMcpServers",
];
const ONLY: [&str; 4] =
    ["allowMCPServers", "allowedMcpServers", "enabledMcpServers", "enabledMcpjsonServers"];

/// Types of goose's extensions, which are other things in other products' `extensions`.
const GOOSE_TYPES: [&str; 8] =
    ["stdio", "sse", "streamable_http", "builtin", "platform", "frontend", "inline_python", "http"];

/// All servers of a file; `None` if it has no section for them.
pub(super) fn servers(root: Root<'_>) -> Option<Vec<Server>> {
    let sections = sections_of(root);
    let mut servers: Vec<Server> = sections.iter().flat_map(Section::servers).collect();
    servers.retain(|server| !is_setting_of_mcp(server));
    if sections.is_empty() {
        servers = bare(root.members);
        if servers.is_empty() {
            return None;
        }
    }
    for server in &mut servers {
        server.off_by = server.off_by.take().or_else(|| off_by(root.members, &server.name));
    }
    Some(servers)
}

/// Whether a key of the section `mcp` stands among the servers, and is none: `beside` reads it.
fn is_setting_of_mcp(server: &Server) -> bool {
    if !matches!(server.product, Product::Crush | Product::Opencode) {
        return false;
    }
    if !server.entry.is_object() {
        return true;
    }
    // A server may have the name of a list.
    matches!(server.path.as_str(), "mcp.allowed" | "mcp.excluded")
        && ["command", "url", "type"].iter().all(|key| server.entry.get(key).is_none())
}

/// Whether servers, or things that are none of them, stand below this key at the top of a file.
pub(super) fn is_section(key: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "context_servers",
        "mcp_servers",
        "extensions",
        "experimental",
        "customizations",
        "inputs",
    ];
    is_list_of_servers(key) || OTHERS.contains(&key)
}

/// Whether the names in the list below this key are read as servers' names.
pub(super) fn is_list_of_names(key: &str) -> bool {
    OFF.iter().chain(&ONLY).any(|list| list.eq_ignore_ascii_case(key))
}

/// A map or a list of servers.
struct Section<'a> {
    path: String,
    product: Product,
    entries: &'a Value,
    folder: Option<&'a str>,
    /// Names that are off here, and the path of their list.
    off: Vec<(&'a str, String)>,
}

impl Section<'_> {
    fn servers(&self) -> Vec<Server> {
        let mut servers = Vec::new();
        match self.entries {
            Value::Object(entries) => {
                for (name, entry) in entries {
                    let path = format!("{}.{}", self.path, shown(name));
                    servers.push(self.server(name.clone(), true, path, entry));
                }
            }
            Value::Array(items) => {
                for (at, entry) in items.iter().enumerate() {
                    let keys = ["name", "server_label", "id"];
                    let own = keys.iter().find_map(|key| entry[key].as_str());
                    let name = own.map_or_else(|| name_of_entry(entry), str::to_owned);
                    let path = format!("{}[{at}]", self.path);
                    servers.push(self.server(name, own.is_some(), path, entry));
                }
            }
            _ => {}
        }
        servers
    }

    fn server(&self, name: String, has_name: bool, path: String, entry: &Value) -> Server {
        Server {
            off_by: self.off_by(&name),
            name,
            has_name,
            path,
            entry: entry.clone(),
            product: self.product,
            folder: self.folder.map(str::to_owned),
            is_off: false,
        }
    }

    /// The path of the list that turns the server off.
    fn off_by(&self, name: &str) -> Option<String> {
        self.off.iter().find(|(off, _)| *off == name).map(|(_, path)| path.clone())
    }
}

fn sections_of(root: Root<'_>) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    for (key, value) in root.members {
        let plain = |product| Section {
            path: key.clone(),
            product,
            entries: value,
            folder: None,
            off: Vec::new(),
        };
        match key.as_str() {
            "amp.mcpServers" => sections.push(plain(Product::Amp)),
            "mcpServers" if value.is_array() => sections.push(plain(Product::Continue)),
            "mcpServers" if root.is_yaml => sections.push(plain(Product::LibreChat)),
            "context_servers" => sections.push(plain(Product::Zed)),
            "mcp_servers" => sections.push(plain(Product::Codex)),
            "extensions" if is_of_goose(value) => sections.push(plain(Product::Goose)),
            "projects" => sections.extend(of_projects(value)),
            "mcp" => sections.extend(of_mcp(value)),
            "experimental" | "customizations" => sections.extend(inner(key, value)),
            _ if is_list_of_servers(key) => sections.push(plain(Product::Other)),
            _ => {}
        }
    }
    sections
}

/// Whether a key of this name has nothing but servers below it.
fn is_list_of_servers(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    last == "mcpServers" || key == "servers" || key == "mcp.servers"
}

fn is_of_goose(extensions: &Value) -> bool {
    extensions.as_object().into_iter().flat_map(Map::values).any(|entry| {
        let of_type = entry["type"].as_str().is_some_and(|word| GOOSE_TYPES.contains(&word));
        of_type || entry["cmd"].is_string()
    })
}

/// The servers of single projects in Claude Code's `.claude.json`.
fn of_projects(projects: &Value) -> Vec<Section<'_>> {
    let projects = projects.as_object().into_iter().flatten();
    let with_servers = projects.filter_map(|(folder, project)| {
        let entries = project.get("mcpServers").filter(|entries| entries.is_object())?;
        let path = format!("projects.{folder}");
        let off = names_off(project, &path);
        let path = format!("{path}.mcpServers");
        Some(Section { path, product: Product::Other, entries, folder: Some(folder), off })
    });
    with_servers.collect()
}

/// The names in the lists of a map that are off, each with the path of its list.
fn names_off<'a>(map: &'a Value, path: &str) -> Vec<(&'a str, String)> {
    let lists = OFF.iter().flat_map(|key| {
        let names = map[*key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(move |name| (name, *key))
    });
    lists.map(|(name, key)| (name, format!("{path}.{key}"))).collect()
}

/// `mcp`: of VS Code's settings with `servers` below it, of Gemini's with lists of names, or of
/// opencode and Crush with the servers themselves.
fn of_mcp(value: &Value) -> Vec<Section<'_>> {
    let Some(members) = value.as_object() else { return Vec::new() };
    for key in ["servers", "mcpServers"] {
        if let Some(entries) = value.get(key).filter(|entries| entries.is_object()) {
            let path = format!("mcp.{key}");
            return vec![Section {
                path,
                product: Product::Other,
                entries,
                folder: None,
                off: Vec::new(),
            }];
        }
    }
    let maps: Vec<&Value> = members.values().filter(|entry| entry.is_object()).collect();
    if maps.is_empty() && !members.is_empty() {
        return Vec::new();
    }
    let opencode = maps.iter().any(|entry| is_entry_of_opencode(entry));
    let product = if opencode { Product::Opencode } else { Product::Crush };
    let path = "mcp".to_owned();
    vec![Section { path, product, entries: value, folder: None, off: Vec::new() }]
}

fn is_entry_of_opencode(entry: &Value) -> bool {
    entry["command"].is_array()
        || entry.get("environment").is_some()
        || matches!(entry["type"].as_str(), Some("local" | "remote"))
}

/// Sections that stand further down.
fn inner<'a>(key: &str, value: &'a Value) -> Vec<Section<'a>> {
    let (path, product) = match key {
        "experimental" => ("modelContextProtocolServers", Product::Continue),
        _ => ("vscode.mcp.servers", Product::Other),
    };
    let entries = path.split('.').try_fold(value, |value, key| value.get(key));
    let section = entries.map(|entries| Section {
        path: format!("{key}.{path}"),
        product,
        entries,
        folder: None,
        off: Vec::new(),
    });
    section.into_iter().collect()
}

/// The servers of a file that has them at its top, or that is one server.
fn bare(members: &Map<String, Value>) -> Vec<Server> {
    let whole = Value::Object(members.clone());
    if is_server(&whole) {
        return vec![bare_server(name_of_entry(&whole), false, String::new(), whole)];
    }
    if !members.values().all(is_server) {
        return Vec::new();
    }
    members
        .iter()
        .map(|(name, entry)| bare_server(name.clone(), true, shown(name), entry.clone()))
        .collect()
}

fn is_server(entry: &Value) -> bool {
    const REACHED: [&str; 6] = ["command", "cmd", "url", "httpUrl", "serverUrl", "uri"];
    REACHED.iter().any(|key| entry.get(key).is_some())
}

fn bare_server(name: String, has_name: bool, path: String, entry: Value) -> Server {
    Server {
        name,
        has_name,
        path,
        entry,
        product: Product::Other,
        folder: None,
        off_by: None,
        is_off: false,
    }
}

/// The path of the list at the top of the file that turns the server off.
fn off_by(members: &Map<String, Value>, name: &str) -> Option<String> {
    for (path, names) in lists_of_names(members, &OFF, "excluded") {
        // Spaces and letters may differ in a list that turns off, not in one that leaves on.
        if names
            .iter()
            .any(|listed| listed.trim().eq_ignore_ascii_case(name.trim()) || listed.contains('*'))
        {
            return Some(path);
        }
    }
    for (path, names) in lists_of_names(members, &ONLY, "allowed") {
        if !names.iter().any(|listed| listed == name) {
            return Some(path);
        }
    }
    None
}

/// The lists below `keys` at the top of a file, and the one below `key_in_mcp` in its section
/// `mcp`, each with its path.
fn lists_of_names(
    members: &Map<String, Value>,
    keys: &[&str],
    key_in_mcp: &str,
) -> Vec<(String, Vec<String>)> {
    let mut lists = Vec::new();
    for key in keys {
        let member = members.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        if let Some(names) = member.and_then(|(_, value)| texts(value)) {
            lists.push(((*key).to_owned(), names));
        }
    }
    if let Some(names) = members.get("mcp").and_then(|mcp| mcp.get(key_in_mcp)).and_then(texts) {
        lists.push((format!("mcp.{key_in_mcp}"), names));
    }
    lists
}
