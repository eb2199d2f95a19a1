//! `mantyx-bridge open`: the status page in a browser.
//!
//! Must not: show a token.

use std::process::{Command, Stdio};

use super::terminal::plain;
use super::{Client, Outcome, Place, parse, print};
use crate::http::api::openapi::SignInLink;

pub(super) async fn open(place: &Place, only_print: bool) -> Outcome {
    let link = link(&Client::new(place)?).await?;
    if !only_print {
        open_browser(&link);
    }
    print(&format!("{link}\n"))
}

/// Opens `link` in a browser, where there is a screen. Without a browser, the person opens it.
pub(super) fn open_browser(link: &str) {
    let mut screens = ["DISPLAY", "WAYLAND_DISPLAY"].iter();
    if screens.any(|name| std::env::var_os(name).is_some()) {
        let mut browser = Command::new("xdg-open");
        browser.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _missing = browser.spawn().is_err();
    }
}

/// A link to the status page of the daemon, which lets in as the operator if this user may be that.
pub(super) async fn link(client: &Client) -> Outcome<String> {
    let base = client.for_browsers()?;
    let text = client.post("/v1/sign-in-links", client.operator(), None).await?.success()?;
    let SignInLink { path, .. } = parse(&text)?;
    Ok(plain(&format!("{base}/{}", path.trim_start_matches('/'))))
}
