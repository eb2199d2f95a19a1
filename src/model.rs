//! The decisions of the bridge: names, catalogs, run state, results. Everything here is a plain
//! function or a plain struct.
//!
//! Must not: do IO, know tokio, reqwest, hyper, rmcp or the file system. Time is an argument.

pub mod answer;
pub mod approval;
pub mod call;
pub mod canonical;
pub mod card;
pub mod catalog;
pub mod catalog_search;
pub mod diff;
pub mod ending;
pub mod event;
pub mod features;
pub mod form;
pub mod globs;
pub mod hints;
pub mod ids;
pub mod instructions;
pub mod json;
pub mod limits;
pub mod loom;
pub mod maps;
pub mod mcp;
pub mod moment;
pub mod naming;
pub mod offer;
pub mod own;
pub mod paging;
pub mod param_headers;
pub mod pending;
pub mod pin;
pub mod question;
pub mod recovery;
pub mod redaction;
pub mod replay;
pub mod rights;
pub mod routes;
pub mod rules;
pub mod run;
pub mod runtime_call;
pub mod san;
pub mod schema;
pub mod sentences;
pub mod spec;
pub mod tool_format;
pub mod trace;
pub mod visible;
pub mod words;

pub use self::answer::Answer;
pub use self::approval::Policy;
pub use self::call::{CallOwner, CallRequest, CallingRun};
pub use self::catalog::{Catalog, Content, FormerTool, Identity};
pub use self::ending::{Ending, RunEnding};
pub use self::event::{Call, Event};
pub use self::features::{Feature, FeatureSource, FeatureView, Features};
pub use self::ids::{
    AppName, ApprovalId, BackendName, CallId, RunId, RunKey, RunKind, SessionId, ToolUseId,
    Workspace,
};
pub use self::instructions::Instructions;
pub use self::json::{Members, elements, member, string_member};
pub use self::moment::Moment;
pub use self::naming::{Naming, ToolFilter};
pub use self::offer::{Offer, OfferMode, OnUnavailable, RefKind, Route, Target};
pub use self::own::Own;
pub use self::param_headers::ParamHeaders;
pub use self::pin::Review;
pub use self::recovery::Stage;
pub use self::redaction::Redaction;
pub use self::rights::{Permission, Rights};
pub use self::routes::Routes;
pub use self::san::San;
pub use self::schema::{InputSchema, Verdict};
pub use self::spec::{Selection, Spec, Table};
pub use self::trace::Trace;
