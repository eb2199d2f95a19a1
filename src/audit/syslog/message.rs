//! The two forms of a syslog message. No library is used: those that are there have no octet
//! counting, or bring their own connections.
//!
//! Must not: do IO.

use super::Line;
use crate::clock;

/// `log audit` (13) and `informational` (6), as RFC 5424, section 6.2.1 numbers them.
const PRIORITY: u8 = 13 * 8 + 6;
/// What receivers select the messages by.
const APP_NAME: &str = "mantyx-bridge";

/// What a message says of its sender.
#[derive(Debug)]
pub(super) struct Origin {
    host: String,
    process: u32,
}

impl Origin {
    pub(super) fn of_this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // A header has no spaces and no more than 255 characters for the host (RFC 5424, 6).
        let is_host = |name: &str| {
            (1..=255).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let host = if is_host(&host) { host } else { "-".to_owned() };
        Self { host, process: std::process::id() }
    }

    /// The form that syslog(3) gives to a socket of this host, and that journald and rsyslog read
    /// there. They do not read RFC 5424 there. It has no time, as its form of times depends on the
    /// time zone: the line has its own.
    pub(super) fn local(&self, line: &Line) -> String {
        format!("<{PRIORITY}>{APP_NAME}[{}]: {}", self.process, line.text)
    }

    /// RFC 5424, with octet counting as RFC 6587, section 3.4.1 and RFC 5425, section 4.3 have it.
    /// There is no byte order mark before the JSON, whose readers would stumble over it.
    pub(super) fn framed(&self, line: &Line) -> String {
        let time = clock::rfc3339(line.time);
        let (host, process) = (&self.host, self.process);
        let message =
            format!("<{PRIORITY}>1 {time} {host} {APP_NAME} {process} audit - {}", line.text);
        format!("{} {message}", message.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn line() -> Line {
        Line {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
            text: r#"{"app":"ü"}"#.to_owned(),
        }
    }

    #[test]
    fn message_of_rfc_5424_is_counted_in_bytes() {
        let origin = Origin { host: "gate".to_owned(), process: 7 };
        let message =
            "<110>1 1970-01-01T00:00:01.500Z gate mantyx-bridge 7 audit - {\"app\":\"ü\"}";
        assert_eq!(origin.framed(&line()), format!("{} {message}", message.len()));
    }

    #[test]
    fn local_message_has_a_tag_and_no_time() {
        let origin = Origin { host: "gate".to_owned(), process: 7 };
        assert_eq!(origin.local(&line()), "<110>mantyx-bridge[7]: {\"app\":\"ü\"}");
    }
}
