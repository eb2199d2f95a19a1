//! Local tools: an HTTP request, a program or nothing for each call. They have no connection to
//! lose, so such a backend is ready from the start and stays ready.
//!
//! Must not: retry, time out (the caller drops the future), or look into a tool's result.

pub(crate) mod command;
mod http;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use self::command::Runner;
use self::http::Endpoint;
use super::program::hiding::Exposure;
use super::{About, CallOutcome, Called, Dial, Peer, PeerError, ToolCall};
use crate::config::{Action, Local};
use crate::http_client::{Client, Clients};
use crate::model::{Answer, BackendName, Catalog};

/// One local tool. It is its own peer, as there is nothing to connect to.
#[derive(Debug, Clone)]
pub struct LocalDialer {
    catalog: Arc<Catalog>,
    action: Arc<Act>,
}

#[derive(Debug)]
enum Act {
    Http(Endpoint),
    Command(Runner),
    Internal,
}

impl LocalDialer {
    /// The tool `name`. `launcher` is the daemon's own binary, which keeps a program from outliving
    /// the daemon; `client` comes from [`crate::http_client::new`].
    pub fn new(
        name: BackendName,
        config: &Local,
        launcher: Option<PathBuf>,
        client: Client,
    ) -> Self {
        let action = match &config.action {
            Action::Http { method, url, headers, tls } => {
                let clients = Clients::new(Some(url), tls.as_ref(), client);
                Act::Http(Endpoint {
                    name,
                    client: clients.own,
                    method: method.clone(),
                    url: url::Url::clone(url),
                    headers: headers.clone(),
                })
            }
            Action::Command(program) => Act::Command(Runner::new(name, program.clone(), launcher)),
            Action::Internal => Act::Internal,
        };
        let catalog = Arc::new(Catalog::local(Arc::clone(&config.input)));
        Self { catalog, action: Arc::new(action) }
    }
}

#[async_trait]
impl Dial for LocalDialer {
    async fn dial(&self) -> Result<Arc<dyn Peer>, PeerError> {
        Ok(Arc::new(self.clone()))
    }

    fn exposure(&self) -> Option<Exposure> {
        if let Act::Command(runner) = &*self.action { runner.exposure() } else { None }
    }

    fn transport(&self) -> &'static str {
        match *self.action {
            Act::Http(_) => "http",
            Act::Command(_) => "command",
            Act::Internal => "internal",
        }
    }
}

#[async_trait]
impl Peer for LocalDialer {
    fn about(&self) -> About {
        About::default()
    }

    async fn resolve(&self) -> Result<Arc<Catalog>, PeerError> {
        Ok(Arc::clone(&self.catalog))
    }

    async fn call(&self, call: ToolCall) -> Called<CallOutcome> {
        let answer = match &*self.action {
            Act::Http(endpoint) => endpoint.call(&call).await?,
            Act::Command(runner) => runner.call(&call).await?,
            Act::Internal => Answer::text(call.request.arguments.get()),
        };
        Ok(answer.into())
    }

    async fn close(&self) {
        if let Act::Command(runner) = &*self.action {
            runner.close().await;
        }
    }
}

/// The tool's output as text; `None` if it is not text. With `whole` unset, the last character may
/// be cut, and is then left out.
fn text(bytes: &[u8], whole: bool) -> Option<String> {
    let valid = match std::str::from_utf8(bytes) {
        Err(error) if !whole && error.error_len().is_none() => bytes.get(..error.valid_up_to())?,
        _ => bytes,
    };
    String::from_utf8(valid.to_vec()).ok()
}

#[cfg(test)]
mod tests;
