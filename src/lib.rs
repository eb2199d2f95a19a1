//! `mantyx-bridge`: answers the `local_tool_call` events of MANTYX agent runs with the MCP servers
//! and A2A agents of the network that it stands in.
//!
//! ARCHITECTURE.md has the map. The library exists so that the binary stays thin and the parts can
//! be tested. Must not: promise a stable interface to other crates.

pub(crate) mod audit;
pub(crate) mod backend;
pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod catalogs;
pub(crate) mod cli;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod descriptors;
pub(crate) mod error_chain;
pub(crate) mod group_files;
pub(crate) mod http;
pub(crate) mod http_client;
pub(crate) mod journal;
pub(crate) mod limits;
pub(crate) mod listening_sockets;
pub(crate) mod logins;
pub(crate) mod metrics;
pub(crate) mod model;
pub(crate) mod notify;
pub(crate) mod oauth;
pub(crate) mod public_keys;
pub(crate) mod random;
pub(crate) mod run_store;
pub(crate) mod runs;
pub(crate) mod runtimes;
pub(crate) mod sandbox;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod simulated;
pub(crate) mod small_server;
pub(crate) mod sse;
pub(crate) mod state_dir;
pub(crate) mod systemd;
pub(crate) mod tasks;
pub(crate) mod telemetry;
pub(crate) mod tls;
pub(crate) mod tool_pins;
pub(crate) mod traces;
pub(crate) mod upstream;
pub(crate) mod watch;

#[cfg(test)]
pub(crate) use http_client::fake as fake_http;

pub use backend::program::{guard, launcher, mask};
pub use cli::{complete, run, survive_hangup};

/// The parts that tests/, benches/ and fuzz/ use without a process around them.
#[doc(hidden)]
pub mod internals {
    #[cfg(fuzzing)]
    pub use crate::{
        backend::a2a::result as a2a,
        config::{Config, Environment},
        journal::fuzzing as journal,
        model::{
            canonical::Node,
            card::{Card, signature},
            event::Body,
            pin::Accepted,
        },
        sse::Fields,
    };
    pub use crate::{
        backend::{
            a2a::{A2aDialer, Conversations},
            mcp,
            peer::{
                CallError, Dial, Handle, NotRead, NotRecorded, Peer, Progress, Recorder, ToolCall,
            },
        },
        config::{A2a, A2aBinding, CardSource, HttpTransport, Mcp},
        http_client::{body, new as new_client},
        model::{
            answer::Answer,
            call::{CallRequest, CallingRun},
            catalog::{Catalog, Content, Identity},
            event::Event,
            ids::{BackendName, RunKind},
            json::{self, Members},
            naming::Naming,
            offer::{Offer, OnUnavailable, RefKind, Route, Source, Target},
            pin::Mode,
            run::{CallAction, Run, Step},
            schema::{InputSchema, Verdict},
            spec::{Injected, Selection, Spec},
        },
        sse::{Frame, Framer},
    };
}
