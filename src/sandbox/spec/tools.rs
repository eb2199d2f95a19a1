//! The tools of a spec: the seven kinds of refs (agent-runs-protocol §1, §4.1.1 to §4.3), by the
//! names that the model sees.
//!
//! Must not: change a byte of an Agent Card or of a server's `serverInfo`; they are echoed.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::unreadable;
use crate::{
    model::json::{Elements, Members},
    sandbox::read::{self, Invalid},
};

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
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Kind {
    Local,
    A2aLocal {
        agent_card: Box<RawValue>,
    },
    McpLocal {
        mcp_server: String,
        mcp_tool_name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mcp_server_info: Option<Box<RawValue>>,
    },
    /// MANTYX would answer it; holds the name of the kind.
    #[serde(skip)]
    Server(&'static str),
}

/// A remote MCP server. MANTYX itself would list its tools, and call them `<name>_<tool>`.
#[derive(Debug)]
struct Remote {
    prefix: String,
    filter: Option<Vec<String>>,
    tool: Arc<Tool>,
}

/// One entry of `tools`, without the parts that are echoed.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Ref {
    Mantyx {
        id: String,
    },
    MantyxPlugin {
        name: String,
    },
    Local {
        name: String,
        #[serde(default)]
        read_only: bool,
    },
    A2a {
        name: String,
    },
    A2aLocal {
        name: String,
    },
    Mcp {
        name: String,
        tool_filter: Option<Vec<String>>,
    },
    McpLocal {
        name: String,
        tools: Vec<McpTool>,
    },
}

#[derive(Deserialize)]
struct McpTool {
    name: String,
    #[serde(default)]
    annotations: Value,
}

impl Tools {
    /// The tools of `spec`, whose text is `raw`.
    pub(super) fn read(spec: &Value, raw: &RawValue) -> Result<Self, Invalid> {
        let mut tools = Self::default();
        let members = Members::read(raw.get()).map_err(unreadable)?;
        let (Some(entries), Some(raw)) = (spec["tools"].as_array(), last(&members, "tools")) else {
            return Ok(tools);
        };
        let texts = Elements::read(raw.get()).map_err(unreadable)?;
        for (entry, text) in entries.iter().zip(texts.0) {
            tools.add(entry, text)?;
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

    fn add(&mut self, entry: &Value, text: &RawValue) -> Result<(), Invalid> {
        let members = Members::read(text.get()).map_err(unreadable)?;
        let echoed = |key| last(&members, key).map(ToOwned::to_owned);
        match read::members(entry)? {
            Ref::Mantyx { id } => self.insert(id, Kind::Server("mantyx"), false),
            Ref::MantyxPlugin { name } => self.insert(name, Kind::Server("mantyx_plugin"), false),
            Ref::Local { name, read_only } => self.insert(name, Kind::Local, read_only),
            Ref::A2a { name } => self.insert(name, Kind::Server("a2a"), false),
            Ref::A2aLocal { name } => {
                let agent_card = echoed("agentCard").unwrap_or_default();
                self.insert(name, Kind::A2aLocal { agent_card }, false)
            }
            Ref::Mcp { name, tool_filter } => {
                let tool = Arc::new(Tool { kind: Kind::Server("mcp"), read_only: false });
                self.remote.push(Remote { prefix: format!("{name}_"), filter: tool_filter, tool });
                Ok(())
            }
            Ref::McpLocal { name: server, tools } => {
                tools.into_iter().try_for_each(|McpTool { name, annotations }| {
                    let kind = Kind::McpLocal {
                        mcp_server: server.clone(),
                        mcp_tool_name: name.clone(),
                        mcp_server_info: echoed("serverInfo"),
                    };
                    self.insert(name, kind, annotations["readOnlyHint"] == true)
                })
            }
        }
    }

    fn insert(&mut self, name: String, kind: Kind, read_only: bool) -> Result<(), Invalid> {
        if self.named.contains_key(&name) {
            return Err(Invalid(format!(
                "/tools: two tools of this spec are called {name:?}, and names are not prefixed"
            )));
        }
        self.named.insert(name, Arc::new(Tool { kind, read_only }));
        Ok(())
    }
}

/// The value under `key`. If the key occurs twice, the last one counts, as in `JSON.parse`.
fn last<'a>(members: &Members<'a>, key: &str) -> Option<&'a RawValue> {
    let (_, value) = members.0.iter().rfind(|(name, _)| name == key)?;
    Some(value)
}
