//! Whether the operator wants a backend connected. Its supervisor acts on it.
//!
//! Must not: connect, or outlive the process: a restart of the bridge enables all backends.

use std::sync::Arc;

use tokio::sync::watch;

/// The switch of one backend. Reloads keep it, so that a changed entry enables nothing.
#[derive(Debug, Clone)]
pub struct Switch {
    setting: Arc<watch::Sender<Setting>>,
}

/// What the operator has last asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Setting {
    is_off: bool,
    restarts: u64,
}

/// What a supervisor sees of a switch.
#[derive(Debug)]
pub struct SwitchReader(watch::Receiver<Setting>);

impl Default for Switch {
    fn default() -> Self {
        Self { setting: Arc::new(watch::Sender::new(Setting::default())) }
    }
}

impl Switch {
    pub fn turn_off(&self) {
        self.setting.send_if_modified(|setting| !std::mem::replace(&mut setting.is_off, true));
    }

    pub fn turn_on(&self) {
        self.setting.send_if_modified(|setting| std::mem::replace(&mut setting.is_off, false));
    }

    /// Has the supervisor close the connection and begin again. A backend that is off stays off.
    pub fn restart(&self) {
        self.setting.send_modify(|setting| setting.restarts += 1);
    }

    pub fn reader(&self) -> SwitchReader {
        SwitchReader(self.setting.subscribe())
    }
}

impl SwitchReader {
    /// Whether the backend is off; what was asked for until now counts as read.
    pub fn read_is_off(&mut self) -> bool {
        self.0.borrow_and_update().is_off
    }

    /// Whether the operator has asked for something since the last read.
    pub fn is_moved(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Ends once the operator asks for something. Without a switch, never.
    pub async fn moved(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Another reader that has read as much.
    pub fn copy(&self) -> Self {
        Self(self.0.clone())
    }
}
