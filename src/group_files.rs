//! What replicas share of their backends: which they have, what the operator has accepted, and the
//! order of tools.
//!
//! Must not: decide what is accepted, or what a catalog is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::backend::registry::{Registry, Snapshot};
use crate::error_chain::error_chain;
use crate::journal::{DatabaseError, Replica, SharedFile};
use crate::model::maps::{HashMap, HashSet};
use crate::model::{BackendName, Content, Features};
use crate::{catalogs, tool_pins};

/// How often replicas look for what others have accepted.
const LOOK: Duration = Duration::from_secs(1);
const PINS: &str = "pins/";
const CATALOGS: &str = "catalogs/";

/// What the group and this replica have of each file.
#[derive(Debug, Default)]
pub struct GroupFiles {
    versions: HashMap<String, i64>,
    /// The hashes of what this replica has read or written.
    digests: HashMap<String, [u8; 32]>,
    /// The files that a later version has written, in a form that this one does not know. They are
    /// not written over: the group would lose what the operator has accepted there.
    later: HashSet<String>,
}

impl GroupFiles {
    /// Exchanges them with the group, for as long as it is polled.
    pub async fn share(mut self, registry: &Registry, replica: &Replica) {
        let mut version = registry.version();
        version.mark_changed();
        loop {
            let changed = version.has_changed().unwrap_or(true);
            version.mark_unchanged();
            match self.exchange(registry, replica, changed).await {
                Ok(true) => {}
                Ok(false) => version.mark_changed(),
                Err(error) => {
                    version.mark_changed();
                    // The keeper tells the operator that the database is away.
                    debug!(error = error_chain(&error), "pins and catalogs are not shared now");
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Takes what other replicas have written and, if the registry has `changed`, writes what is
    /// other there; whether all is written.
    ///
    /// The reading comes first, and a file is written only over the version that was read.
    /// Otherwise this replica could undo what the operator has just accepted at another one.
    async fn exchange(
        &mut self,
        registry: &Registry,
        replica: &Replica,
        changed: bool,
    ) -> Result<bool, DatabaseError> {
        for file in replica.files(&self.versions).await? {
            self.take_news(registry, file);
        }
        if !changed {
            return Ok(true);
        }
        let backends = registry.snapshots();
        replica.set_backends(identities(&backends));
        let mut all_written = true;
        for (name, text) in own_files(registry, backends) {
            let digest = Sha256::digest(&text).into();
            if !self.is_to_write(&name, &digest) {
                continue;
            }
            let version_read = self.versions.get(&name).copied();
            match replica.write_file(&name, version_read, &text).await? {
                Some(version) => {
                    self.versions.insert(name.clone(), version);
                    self.digests.insert(name, digest);
                }
                // Another replica was faster; what it has written is read next time.
                None => all_written = false,
            }
        }
        Ok(all_written)
    }

    /// Takes over a file of the group, and notes its version.
    fn take_news(&mut self, registry: &Registry, file: SharedFile) {
        if let Err(why) = self.take(registry, &file) {
            warn!(file = file.name, why, "what another replica has written cannot be read");
        }
        if is_later(&file) {
            self.later.insert(file.name.clone());
        } else {
            self.later.remove(&file.name);
        }
        self.versions.insert(file.name, file.version);
    }

    /// Whether the group's file `name` is to become the text with this digest.
    fn is_to_write(&self, name: &str, digest: &[u8; 32]) -> bool {
        self.digests.get(name) != Some(digest) && !self.later.contains(name)
    }

    /// Takes over a file of the group. What an operator has accepted at one replica counts at all.
    /// The order of tools is taken once, at the start: later it would change the tools that models
    /// see, in turns.
    fn take(&mut self, registry: &Registry, file: &SharedFile) -> Result<(), String> {
        let pins_of = file.name.strip_prefix(PINS);
        let catalog_of = match self.versions.get(&file.name) {
            None => file.name.strip_prefix(CATALOGS),
            // After the first time, all replicas ask the same peer.
            Some(_) => None,
        };
        let Some(name) = pins_of.or(catalog_of) else { return Ok(()) };
        let backend = BackendName::parse(name).map_err(|error| error.to_string())?;
        if pins_of.is_some() {
            let pins = tool_pins::read(&file.text)?;
            if registry.accepted_elsewhere(&backend, Arc::new(pins)) {
                info!(%backend, "took over what the operator has accepted at another replica");
            }
        } else {
            let catalogs::CatalogFile { identity, catalog, .. } = catalogs::read(&file.text)?;
            registry.cataloged_elsewhere(&backend, &identity, catalog);
        }
        self.digests.insert(file.name.clone(), Sha256::digest(&file.text).into());
        Ok(())
    }
}

/// Whether a later version wrote the file.
fn is_later(SharedFile { name, text, .. }: &SharedFile) -> bool {
    match name.strip_prefix(PINS) {
        Some(_) => tool_pins::is_later(text),
        None => name.starts_with(CATALOGS) && catalogs::is_later(text),
    }
}

/// The backends that can be reached here, and how.
fn identities(backends: &BTreeMap<BackendName, Snapshot>) -> BTreeMap<String, String> {
    let mut identities = BTreeMap::new();
    for (name, backend) in backends {
        if let Some(identity) = &backend.identity {
            identities.insert(name.to_string(), identity.0.clone());
        }
    }
    identities
}

/// What this replica has of each file, by the file's name.
fn own_files(
    registry: &Registry,
    backends: BTreeMap<BackendName, Snapshot>,
) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (name, pins) in registry.pins() {
        files.push((format!("{PINS}{name}"), tool_pins::write(&pins)));
    }
    for (name, backend) in backends {
        if let (Some(identity), Some(catalog)) = (backend.identity, backend.catalog)
            && !matches!(catalog.content(), Content::Local { .. })
        {
            // Only the order of tools is the group's: each replica asks for the rest itself.
            let text = catalogs::write(&catalog, &Features::default(), &identity);
            files.push((format!("{CATALOGS}{name}"), text));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    //! What replicas of other versions have written.

    use super::*;
    use crate::backend::fake;
    use crate::model::pin::{Mode, Pins};

    struct Case {
        name: &'static str,
        file: &'static str,
        text: String,
        is_taken: bool,
        /// Whether this replica writes what it has in its place.
        is_written_over: bool,
    }

    #[test]
    fn file_of_a_later_format_is_not_written_over() {
        let pins = tool_pins::write(&Pins([("ls".to_owned(), "{}".into())].into()));
        let with = |from: &str, to: &str| {
            assert!(pins.contains(from), "{pins}");
            pins.replacen(from, to, 1)
        };
        for Case { name, file, text, is_taken, is_written_over } in [
            Case {
                name: "pins of an earlier version",
                file: "pins/fs",
                text: pins.clone(),
                is_taken: true,
                is_written_over: true,
            },
            Case {
                name: "pins with a member that is not known",
                file: "pins/fs",
                text: with("\"digest\"", "\"later\":1,\"digest\""),
                is_taken: true,
                is_written_over: true,
            },
            Case {
                name: "pins of a later format",
                file: "pins/fs",
                text: with("\"version\":1", "\"version\":2"),
                is_taken: false,
                is_written_over: false,
            },
            Case {
                name: "damaged pins",
                file: "pins/fs",
                text: "{".to_owned(),
                is_taken: false,
                is_written_over: true,
            },
            Case {
                name: "a catalog of a later format",
                file: "catalogs/fs",
                text: r#"{"version":2,"tools":{}}"#.to_owned(),
                is_taken: false,
                is_written_over: false,
            },
            Case {
                name: "a file of a kind that is not known",
                file: "later/fs",
                text: "{}".to_owned(),
                is_taken: false,
                is_written_over: true,
            },
        ] {
            let (registry, leases) = fake::registry(["fs"]);
            let mut entry = fake::entry(&leases[0]);
            entry.source.pin = Mode::Warn;
            registry.set(vec![entry]);
            let mut files = GroupFiles::default();
            files.take_news(&registry, SharedFile { name: file.to_owned(), version: 3, text });
            assert_eq!(files.versions.get(file), Some(&3), "{name}");
            assert_eq!(files.digests.contains_key(file), is_taken, "{name}");
            assert_eq!(files.is_to_write(file, &[0; 32]), is_written_over, "{name}");
            // A later replica of this version may write it again.
            let earlier = SharedFile { name: file.to_owned(), version: 4, text: pins.clone() };
            files.take_news(&registry, earlier);
            assert!(files.is_to_write(file, &[0; 32]), "{name}");
        }
    }
}
