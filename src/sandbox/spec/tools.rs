//! The tools of a spec: the seven kinds of refs (agent-runs-protocol §1, §4.1.1 to §4.3), by the
//! names that the model sees.
//!
//! Must not: change a byte of an Agent Card or of a server's `serverInfo`; they are echoed.

use std::{collections::HashMap, sync::Arc};

use serde_json::value::RawValue;

use crate::sandbox::read::{Invalid, Object, Value};

/// The most tools of one `mcp_local` ref.
const MAX_MCP_TOOLS: usize = 64;
/// The longest value of a header of a remote peer.
const MAX_HEADER: usize = 8_000;

/// All tools that the model may call.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    named: HashMap<String, Arc<Tool>>,
    remote: Vec<Remote>,
}

/// One tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) kind: Kind,
    /// Whether it may run concurrently with other calls of its turn.
    pub(crate) read_only: bool,
}

/// The part that answers a tool, and the extra fields of its calls.
#[derive(Debug)]
pub(crate) enum Kind {
    Local,
    A2aLocal {
        card: Box<RawValue>,
    },
    McpLocal {
        server: Arc<str>,
        info: Option<Arc<RawValue>>,
    },
    /// MANTYX would answer it; holds the name of the kind.
    Server(&'static str),
}

/// A remote MCP server. MANTYX itself would list its tools, and call them `<name>_<tool>`.
#[derive(Debug)]
struct Remote {
    prefix: String,
    filter: Option<Vec<String>>,
    tool: Arc<Tool>,
}

impl Tools {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, Invalid> {
        let mut tools = Self::default();
        for entry in value.array()? {
            tools.add(&entry.object()?)?;
        }
        Ok(tools)
    }

    /// The tool with the name `name`, as the model sees it.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        let of_remote = |remote: &&Remote| {
            let Some(tool) = name.strip_prefix(&remote.prefix) else {
                return false;
            };
            remote.filter.as_ref().is_none_or(|filter| filter.iter().any(|one| one == tool))
        };
        self.named
            .get(name)
            .or_else(|| self.remote.iter().find(of_remote).map(|remote| &remote.tool))
    }

    fn add(&mut self, tool: &Object<'_>) -> Result<(), Invalid> {
        let kind = tool.need("kind")?;
        tool.string("description")?;
        match kind.string()?.as_str() {
            "local" => self.add_local(tool),
            "a2a_local" => {
                let card = tool.need("agentCard")?;
                card.object()?;
                let kind = Kind::A2aLocal { card: card.raw.to_owned() };
                self.insert(&tool.need("name")?, kind, false)
            }
            "mcp_local" => self.add_mcp_local(tool),
            "mantyx" => {
                let id = tool.need("id")?;
                id.non_empty()?;
                self.insert_unchecked(&id, Kind::Server("mantyx"), false)
            }
            "mantyx_plugin" => {
                let name = tool.need("name")?;
                name.non_empty()?;
                self.insert_unchecked(&name, Kind::Server("mantyx_plugin"), false)
            }
            "a2a" => {
                check_url(&tool.need("agentCardUrl")?)?;
                check_headers(tool)?;
                tool.string("contextId")?;
                self.insert(&tool.need("name")?, Kind::Server("a2a"), false)
            }
            "mcp" => self.add_mcp(tool),
            other => Err(kind.invalid(format_args!(
                "{other:?} is none of mantyx, mantyx_plugin, local, a2a, a2a_local, mcp, mcp_local"
            ))),
        }
    }

    fn add_local(&mut self, tool: &Object<'_>) -> Result<(), Invalid> {
        // A `parameters` or `outputSchema` that is no object schema is coerced or dropped, not
        // refused (§4.1.1).
        for key in ["longRunning", "retain"] {
            tool.boolean(key)?;
        }
        let read_only = tool.boolean("readOnly")?.unwrap_or(false);
        self.insert(&tool.need("name")?, Kind::Local, read_only)
    }

    fn add_mcp_local(&mut self, tool: &Object<'_>) -> Result<(), Invalid> {
        let server: Arc<str> = read_name(&tool.need("name")?)?.into();
        let info = tool.get("serverInfo");
        if let Some(info) = &info {
            info.object()?;
        }
        let info: Option<Arc<RawValue>> = info.map(|info| info.raw.to_owned().into());
        let list = tool.need("tools")?;
        let entries = list.array()?;
        if entries.is_empty() || entries.len() > MAX_MCP_TOOLS {
            let count = entries.len();
            return Err(list.invalid(format_args!("has {count} tools, 1 to {MAX_MCP_TOOLS} fit")));
        }
        for entry in entries {
            let entry = entry.object()?;
            entry.string("description")?;
            entry.object("inputSchema")?;
            let annotations = entry.object("annotations")?;
            let hint = annotations.and_then(|hints| hints.get("readOnlyHint"));
            let read_only = hint.is_some_and(|hint| hint.raw.get() == "true");
            let kind = Kind::McpLocal { server: Arc::clone(&server), info: info.clone() };
            self.insert(&entry.need("name")?, kind, read_only)?;
        }
        Ok(())
    }

    fn add_mcp(&mut self, tool: &Object<'_>) -> Result<(), Invalid> {
        let name = read_name(&tool.need("name")?)?;
        check_url(&tool.need("url")?)?;
        check_headers(tool)?;
        let filter = match tool.get("toolFilter") {
            Some(filter) => {
                let names = filter.array()?;
                Some(names.iter().map(Value::string).collect::<Result<_, _>>()?)
            }
            None => None,
        };
        let tool = Arc::new(Tool { kind: Kind::Server("mcp"), read_only: false });
        self.remote.push(Remote { prefix: format!("{name}_"), filter, tool });
        Ok(())
    }

    fn insert(&mut self, name: &Value<'_>, kind: Kind, read_only: bool) -> Result<(), Invalid> {
        read_name(name)?;
        self.insert_unchecked(name, kind, read_only)
    }

    fn insert_unchecked(
        &mut self,
        name: &Value<'_>,
        kind: Kind,
        read_only: bool,
    ) -> Result<(), Invalid> {
        let text = name.string()?;
        if self.named.contains_key(&text) {
            return Err(name.invalid(format_args!(
                "another tool of this spec is called {text:?}, and names are not prefixed"
            )));
        }
        self.named.insert(text, Arc::new(Tool { kind, read_only }));
        Ok(())
    }
}

fn read_name(value: &Value<'_>) -> Result<String, Invalid> {
    let name = value.string()?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
        return Err(value.wrong_type("a name that matches ^[a-zA-Z0-9_]{1,64}$"));
    }
    Ok(name)
}

fn check_url(value: &Value<'_>) -> Result<(), Invalid> {
    match url::Url::parse(&value.string()?) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        _ => Err(value.wrong_type("an http or https URL")),
    }
}

fn check_headers(tool: &Object<'_>) -> Result<(), Invalid> {
    let Some(headers) = tool.object("headers")? else {
        return Ok(());
    };
    for (_, value) in headers.members() {
        if value.string()?.len() > MAX_HEADER {
            return Err(value.invalid(format_args!("is longer than {MAX_HEADER} bytes")));
        }
    }
    Ok(())
}
