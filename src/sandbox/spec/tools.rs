//! The tools of a spec that its client answers (agent-runs-protocol §1, §4.1.1 to §4.3), by the
//! names that the model sees. Those that MANTYX itself would run are allowed, and the script cannot
//! call them.
//!
//! Must not: change a byte of an Agent Card or of a server's `serverInfo`; they are echoed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::unreadable;
use crate::model::maps::HashMap;
use crate::model::{Members, elements};
use crate::sandbox::{Invalid, read};

/// All tools that the model may call.
#[derive(Debug, Default)]
pub(crate) struct Tools(HashMap<String, Arc<Tool>>);

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
}

/// One entry of `tools`, without the parts that are echoed.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Ref {
    Local {
        name: String,
        #[serde(default)]
        read_only: bool,
    },
    A2aLocal {
        name: String,
    },
    McpLocal {
        name: String,
        tools: Vec<McpTool>,
    },
    /// MANTYX itself would run it.
    #[serde(other)]
    Server,
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
        let texts = elements(raw.get()).map_err(unreadable)?;
        for (entry, text) in entries.iter().zip(texts) {
            tools.add(entry, text)?;
        }
        Ok(tools)
    }

    /// The tool with the name `name`, as the model sees it.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.0.get(name)
    }

    fn add(&mut self, entry: &Value, text: &RawValue) -> Result<(), Invalid> {
        let members = Members::read(text.get()).map_err(unreadable)?;
        match read::members(entry)? {
            Ref::Server => Ok(()),
            Ref::Local { name, read_only } => self.insert(name, Kind::Local, read_only),
            Ref::A2aLocal { name } => {
                let agent_card =
                    last(&members, "agentCard").map(ToOwned::to_owned).unwrap_or_default();
                self.insert(name, Kind::A2aLocal { agent_card }, false)
            }
            Ref::McpLocal { name: server, tools } => {
                tools.into_iter().try_for_each(|McpTool { name, annotations }| {
                    let kind = Kind::McpLocal {
                        mcp_server: server.clone(),
                        mcp_tool_name: name.clone(),
                        mcp_server_info: last(&members, "serverInfo").map(ToOwned::to_owned),
                    };
                    self.insert(name, kind, annotations["readOnlyHint"] == true)
                })
            }
        }
    }

    fn insert(&mut self, name: String, kind: Kind, read_only: bool) -> Result<(), Invalid> {
        if self.0.contains_key(&name) {
            return Err(format!(
                "/tools: two tools of this spec are called {name:?}, and names are not prefixed"
            ));
        }
        self.0.insert(name, Arc::new(Tool { kind, read_only }));
        Ok(())
    }
}

/// The value under `key`. If the key occurs twice, the last one counts, as in `JSON.parse`.
fn last<'a>(members: &Members<'a>, key: &str) -> Option<&'a RawValue> {
    let (_, value) = members.0.iter().rfind(|(name, _)| name == key)?;
    Some(value)
}
