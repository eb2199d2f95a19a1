//! `mantyx-bridge notify`: tries a receiver of notices.
//!
//! Must not: send a notice itself; the daemon does, as it sends all of them.

use clap::{Args, Subcommand};

use super::{Client, Outcome, Place, failures, parse, print};
use crate::http::api::notify::NoticeTest;

/// The arguments of `notify`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Sends a test notice to a receiver, and shows what came of it
    #[command(after_help = "Example: mantyx-bridge notify test ops")]
    Test {
        /// Its name below `notify` in bridge.yaml
        name: String,
    },
}

/// `mantyx-bridge notify`.
pub(super) async fn notify(place: &Place, settings: Settings) -> Outcome {
    let Action::Test { name } = settings.action;
    let client = Client::new(place)?;
    let path = format!("/v1/notify/{name}/test");
    let reply = client.post(&path, client.operator(), None).await?;
    let NoticeTest { delivered, error } = parse(&reply.success()?)?;
    if delivered {
        return print(&format!("{name}: delivered\n"));
    }
    Err(failures::notice_not_taken(name, error.unwrap_or_default()))
}
