//! `mantyx-bridge serve`: runs the daemon in the foreground, until SIGTERM or SIGINT. On SIGHUP,
//! the daemon reads its configuration again.
//!
//! Must not: daemonize; that is for systemd.

use std::path::PathBuf;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tracing::{error, info, warn};

use super::{Failure, Outcome, Stop, failures};
use crate::backend::program::orphans;
use crate::config::{ConfigFile, Environment};
use crate::daemon::{Daemon, Options, Reload};
use crate::error_chain::error_chain;
use crate::http::server::socket_activation::ActivatedSocket;
use crate::watch::Watch;
use crate::{descriptors, traces};

pub(super) async fn serve(
    path: PathBuf,
    env: Environment,
    handed: Vec<ActivatedSocket>,
) -> Outcome {
    orphans::adopt();
    // A file that may not grow (`LimitFSIZE`) is then an error of that write, and does not end the
    // daemon.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    // Begins before the file is read, so that no change is missed.
    let watch = Watch::new(&path)?;
    let (config, file) = ConfigFile::load(path, env.clone())?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let reload = Some(Reload { file, watch });
    let files = descriptors::raise();
    info!(version = env!("CARGO_PKG_VERSION"), files, "starting");
    let traces = traces::start(&|name| env.filled_var(name).map(str::to_owned));
    let launcher = std::env::current_exe().ok();
    let notes = env.notes();
    let options = Options { launcher, handed, reload, traces, notes };
    let signals = Mutex::new(Stop::on(&[SignalKind::terminate(), SignalKind::interrupt()])?);
    let daemon = Daemon::build(config, options).await.map_err(|error| cannot_start(&error))?;
    // One listener for both waits: a second listener would count one signal as two.
    let next_signal = async || signals.lock().await.asked().await;
    daemon.run(next_signal(), next_signal()).await.map_err(|failed| {
        error!(error = %error_chain(&failed), "a part of the daemon failed; stopping");
        failures::part_failed(error_chain(&failed))
    })
}

pub(super) fn cannot_start(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::Failed(format!("cannot start: {}", error_chain(error)))
}
