//! What replicas share of their backends: which they have, what the operator has accepted, and the order
//! of tools.
//!
//! Must not: decide what is accepted, or what a catalog is.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::backend::registry::{Registry, Snapshot};
use crate::error_chain::error_chain;
use crate::journal::{DatabaseError, Replica, SharedFile};
use crate::model::maps::HashMap;
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
}

impl GroupFiles {
    /// Exchanges them with the group, for as long as it is polled.
    pub async fn share(mut self, registry: &Registry, replica: &Replica) {
        let mut version = registry.version();
        version.mark_changed();
        loop {
            let is_new = version.has_changed().unwrap_or(true);
            version.mark_unchanged();
            let exchanged = self.exchange(registry, replica, is_new).await;
            if !matches!(exchanged, Ok(true)) {
                version.mark_changed();
            }
            // The keeper tells the operator that the database is away.
            if let Err(error) = exchanged {
                debug!(error = error_chain(&error), "pins and catalogs are not shared now");
            }
            sleep(LOOK).await;
        }
    }

    /// Takes what other replicas have written and, if the registry `is_new`, writes what is other there;
    /// whether all is written.
    async fn exchange(
        &mut self,
        registry: &Registry,
        replica: &Replica,
        is_new: bool,
    ) -> Result<bool, DatabaseError> {
        for file in replica.files(&self.versions).await? {
            if let Err(why) = self.take(registry, &file) {
                warn!(file = file.name, why, "what another replica has written cannot be read");
            }
            self.versions.insert(file.name, file.version);
        }
        if !is_new {
            return Ok(true);
        }
        let known = registry.snapshots();
        let identity = |(name, known): (&BackendName, &Snapshot)| {
            Some((name.to_string(), known.identity.as_ref()?.0.clone()))
        };
        replica.set_backends(known.iter().filter_map(identity).collect());
        let pins = registry.pins().into_iter();
        let mut own: Vec<_> =
            pins.map(|(name, pins)| (format!("{PINS}{name}"), tool_pins::write(&pins))).collect();
        for (name, known) in known {
            if let (Some(identity), Some(catalog)) = (known.identity, known.catalog)
                && !matches!(catalog.content(), Content::Local { .. })
            {
                // Only the order of tools is the group's: each replica asks for the rest itself.
                own.push((
                    format!("{CATALOGS}{name}"),
                    catalogs::write(&catalog, &Features::default(), &identity),
                ));
            }
        }
        let mut is_written = true;
        for (name, text) in own {
            let digest = Sha256::digest(&text).into();
            if self.digests.get(&name) == Some(&digest) {
                continue;
            }
            let known = self.versions.get(&name).copied();
            match replica.write_file(&name, known, &text).await? {
                Some(version) => {
                    self.versions.insert(name.clone(), version);
                    self.digests.insert(name, digest);
                }
                // Another replica was faster; what it has written is read next time.
                None => is_written = false,
            }
        }
        Ok(is_written)
    }

    fn take(&mut self, registry: &Registry, file: &SharedFile) -> Result<(), String> {
        let pins_of = file.name.strip_prefix(PINS);
        // Afterwards, all replicas ask the same peer.
        let is_first = !self.versions.contains_key(&file.name);
        let catalog_of = file.name.strip_prefix(CATALOGS).filter(|_| is_first);
        let Some(backend) = pins_of.or(catalog_of) else { return Ok(()) };
        let backend = BackendName::parse(backend).map_err(|error| error.to_string())?;
        if pins_of.is_some() {
            let pins = tool_pins::read(&file.text)?;
            if registry.accepted_elsewhere(&backend, Arc::new(pins)) {
                info!(%backend, "took over what the operator has accepted at another replica");
            }
        } else {
            let catalogs::Stored { identity, catalog, .. } = catalogs::read(&file.text)?;
            registry.cataloged_elsewhere(&backend, &identity, catalog);
        }
        self.digests.insert(file.name.clone(), Sha256::digest(&file.text).into());
        Ok(())
    }
}
