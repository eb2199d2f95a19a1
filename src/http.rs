//! HTTP towards apps, operators and browsers: the listeners, who may come in, where a path leads,
//! the bridge's own API, the proxy to MANTYX, and the status page.
//!
//! A request goes one way: `server` reads it, `service` has `router` find its route and `auth` its
//! caller, and hands it to `api`, `proxy` or `status_page`.
//!
//! Must not: be known by anything but `daemon` and `cli`.

pub mod api;
pub mod auth;
pub mod client_info;
pub mod error_code;
pub mod login_page;
pub mod proxy;
pub mod response;
pub mod router;
pub mod server;
pub mod service;
pub mod status_page;
pub mod views;

pub use self::auth::{Access, Caller};
pub use self::client_info::{ClientInfo, ClientKey, Process};
pub use self::error_code::Code;
pub use self::response::{Body, BoxError, HandlerResult};
