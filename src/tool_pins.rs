//! The pins of every backend, on disk, so that a restart forgets none of them.
//!
//! A damaged file never counts as a missing one: the daemon would then trust whatever the server
//! shows next. It stays damaged until the operator accepts the present tools.
//!
//! Must not: decide what is accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::backend::registry::Registry;
use crate::error_chain::error_chain;
use crate::model::BackendName;
use crate::model::catalog::hex;
use crate::model::pin::{Accepted, Pins};
use crate::state_dir::{StateDir, check_format, has_later_format};

/// The format of the files; other formats count as damaged.
const VERSION: u32 = 1;
/// The interval between attempts to write a file.
const AGAIN: Duration = Duration::from_secs(15);

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct File<'a> {
    version: u32,
    /// SHA-256 of the text of `pins`, in hex.
    digest: String,
    #[serde(borrow)]
    pins: &'a RawValue,
}

/// The pins of `name`. A file that cannot be read is damaged, and never counts as missing: the
/// bridge would then accept all tools that the server shows next.
pub fn load(state: &StateDir, name: &BackendName) -> Accepted {
    let why = match state.read_kept(&file(name)) {
        Ok(None) => return Accepted::Nothing,
        Ok(Some(text)) => match read(&text) {
            Ok(pins) => return Accepted::Pins(Arc::new(pins)),
            Err(why) => {
                format!("{} is damaged: {why}", state.path().join(file(name)).display())
            }
        },
        Err(error) => error_chain(&error),
    };
    warn!(backend = %name, why, "the backend's pins cannot be read");
    Accepted::Damaged(why.into())
}

/// Writes the pins on `registry` into `state`, until `stop`.
pub async fn keep(registry: Arc<Registry>, state: StateDir, stop: CancellationToken) {
    loop {
        let news = stop.run_until_cancelled(registry.wait_for(Registry::pins_not_on_disk)).await;
        // At the stop, pins may be there whose write has not been announced yet.
        let Some(news) = news.or_else(|| registry.pins_not_on_disk()) else { return };
        let mut failed = false;
        for (name, pins) in news {
            let file = file(&name);
            let text = write(&pins);
            let writing = state.in_background(move |state| state.write_kept(&file, &text));
            let error = writing.await.err();
            if let Some(error) = &error {
                failed = true;
                warn!(backend = %name, error, "pins were not stored; trying again");
            } else {
                debug!(backend = %name, tools = pins.0.len(), "pins are stored again");
            }
            registry.note_pins_on_disk(&name, pins, error);
        }
        if failed && stop.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

fn file(name: &BackendName) -> PathBuf {
    Path::new("pins").join(format!("{name}.json"))
}

pub fn write(Pins(pins): &Pins) -> String {
    let by_tool: BTreeMap<&str, &str> =
        pins.iter().map(|(tool, text)| (&**tool, &**text)).collect();
    let content = serde_json::value::to_raw_value(&by_tool).expect("strings can be written");
    let digest = hex(&Sha256::digest(content.get()));
    let file = File { version: VERSION, digest, pins: &content };
    serde_json::to_string(&file).expect("strings and JSON can be written")
}

/// Whether a later version wrote this file, in a form that this one does not know.
pub fn is_later(text: &str) -> bool {
    has_later_format(text, VERSION)
}

pub fn read(text: &str) -> Result<Pins, String> {
    let file: File<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check_format(file.version, VERSION)?;
    if hex(&Sha256::digest(file.pins.get())) != file.digest {
        return Err("its content is not what its digest says".to_owned());
    }
    let by_tool: BTreeMap<String, String> =
        serde_json::from_str(file.pins.get()).map_err(|error| error.to_string())?;
    Ok(Pins(by_tool.into_iter().map(|(tool, text)| (tool, text.into())).collect()))
}

#[cfg(test)]
mod tests {
    //! Pins come back from disk as they went, or are known to be damaged.

    use super::*;
    use crate::backend::fake;
    use crate::model::catalog::Catalog;
    use crate::model::pin::Mode;

    fn pins() -> Pins {
        let pin = |tool: &str, text: &str| (tool.to_owned(), Arc::from(text));
        Pins([pin("ls", r#"{"name":"ls"}"#), pin("é\u{202e}", "{}")].into())
    }

    #[test]
    fn pins_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        let name = BackendName::parse("fs").unwrap();
        assert!(matches!(load(&state, &name), Accepted::Nothing));
        state.write_kept(&file(&name), &write(&pins())).unwrap();
        assert!(matches!(load(&state, &name), Accepted::Pins(read) if *read == pins()));
    }

    #[tokio::test]
    async fn pins_are_kept_at_a_stop() {
        for _ in 0..16 {
            let dir = tempfile::tempdir().unwrap();
            let state = StateDir::new(dir.path().to_owned());
            let (registry, leases) = fake::registry(["fs"]);
            let mut entry = fake::entry(&leases[0]);
            entry.source.pin = Mode::Warn;
            registry.set(vec![entry]);
            let tool = RawValue::from_string(r#"{"name":"ls"}"#.to_owned()).unwrap();
            let (catalog, _) = Catalog::mcp(None, vec![tool]);
            registry.write(&leases[0], |known| known.catalog = Some(Arc::new(catalog)));
            let stop = CancellationToken::new();
            stop.cancel();
            keep(registry, state.clone(), stop).await;
            assert!(matches!(load(&state, &leases[0].name), Accepted::Pins(_)));
        }
    }

    /// The text of the first version that had pins.
    const EARLIER: &str = r#"{"version":1,"digest":"DIGEST","pins":{"ls":"{\"name\":\"ls\"}"}}"#;

    fn earlier() -> String {
        let digest = hex(&Sha256::digest(r#"{"ls":"{\"name\":\"ls\"}"}"#));
        EARLIER.replace("DIGEST", &digest)
    }

    #[test]
    fn file_of_an_earlier_version_is_read_and_still_written() {
        let pins = read(&earlier()).unwrap();
        assert_eq!(pins.0.get("ls").map(|text| &**text), Some(r#"{"name":"ls"}"#));
        assert_eq!(write(&pins), earlier());
    }

    #[test]
    fn member_of_a_later_version_is_ignored_and_lost_when_the_operator_accepts() {
        let later = earlier().replacen("\"digest\"", "\"later\":{\"by\":\"op\"},\"digest\"", 1);
        let pins = read(&later).unwrap();
        assert_eq!(write(&pins), earlier());
        assert!(!is_later(&later));
    }

    #[test]
    fn file_of_a_later_format_is_damaged_and_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        let name = BackendName::parse("fs").unwrap();
        let later = r#"{"version":2,"pins":[]}"#;
        state.write_kept(&file(&name), later).unwrap();
        assert!(matches!(load(&state, &name), Accepted::Damaged(_)));
        assert!(is_later(later) && !is_later("{}") && !is_later(""));
    }

    #[test]
    fn whatever_happens_to_the_file_is_found_out() {
        let whole = write(&pins());
        for part in (0..whole.len()).filter_map(|cut| whole.get(..cut)) {
            assert!(read(part).is_err(), "{part}");
        }
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("name", "game"),
            ("\"ls\":", "\"lp\":"),
            ("\"digest\":\"", "\"digest\":\"0"),
        ] {
            assert!(read(&whole.replacen(from, to, 1)).is_err(), "{from} to {to}");
        }
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        let name = BackendName::parse("fs").unwrap();
        for text in ["", "{}", "\u{0}\u{0}", "null"] {
            state.write_kept(&file(&name), text).unwrap();
            assert!(matches!(load(&state, &name), Accepted::Damaged(_)), "{text:?}");
        }
    }
}
