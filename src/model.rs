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
pub mod globs;
pub mod hints;
pub mod ids;
pub mod json;
pub mod limits;
pub mod loom;
pub mod maps;
pub mod moment;
pub mod naming;
pub mod offer;
pub mod own;
pub mod paging;
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
pub mod spec;
pub mod tool_format;
pub mod trace;
pub mod visible;
pub mod words;

pub use self::{
    answer::Answer,
    approval::Policy,
    call::{CallRequest, CallingRun, Of},
    catalog::{Catalog, Content, Gone, Identity},
    ending::{Ending, Made, RunEnding},
    event::{Call, Event},
    features::{Feature, FeatureView, Features},
    ids::{
        AppName, ApprovalId, BackendName, CallId, RunId, RunKey, RunKind, SessionId, ToolUseId,
        Workspace,
    },
    json::{Elements, Members, member, string_member},
    moment::Moment,
    naming::{Naming, ToolFilter},
    offer::{Offer, OfferMode, OnUnavailable, RefKind, Route, Target},
    own::Own,
    pin::Review,
    recovery::Stage,
    redaction::Redaction,
    rights::{Permission, Rights},
    routes::Routes,
    san::San,
    schema::{InputSchema, Verdict},
    spec::{Selection, Spec, Table},
    trace::Trace,
};
