//! The keys that every kind of backend entry has, once for `mcp`, `a2a` and `local`.
//!
//! Must not: check anything, or know a key that only one kind has.

use crate::config::deserialize::{At, List};
use crate::config::file_format::{Quota, Redact};
use crate::config::scalars::{Count, DurationOrOff, DurationText, SizeText};
use crate::config::{OnUnavailable, Pin};

/// The common keys of one entry, of whichever kind. Those that its kind lacks are `None`.
#[derive(Default)]
pub struct CommonKeys<'e> {
    pub required: Option<&'e At<bool>>,
    pub pending_after: Option<&'e At<DurationOrOff>>,
    pub max_result: Option<&'e At<SizeText>>,
    pub redact: Option<&'e List<Redact>>,
    pub concurrency: Option<&'e At<Count>>,
    pub quota: Option<&'e At<Quota>>,
    pub on_unavailable: Option<&'e At<OnUnavailable>>,
    pub refresh: Option<&'e At<DurationText>>,
    pub call_timeout: Option<&'e At<DurationText>>,
    pub pin: Option<&'e At<Pin>>,
}

/// Defines the struct of one kind of entry: the keys of the kind, and then the common ones.
/// `discovered` has those of a peer whose tools the bridge asks for. A key whose default or meaning
/// depends on the kind is named after the struct, with its description for the schema.
///
/// This is a macro because `#[serde(flatten)]` reads the values through a buffer: they would lose
/// their lines in the file, and an unknown key the list of the keys that its map knows.
macro_rules! backend_entry {
    (
        $(#[$about:meta])*
        pub struct $kind:ident { $($own:tt)* }
        common {
            $(#[$about_pending:meta])*
            pending_after,
            $(#[$about_concurrency:meta])*
            concurrency,
        }
        $(discovered {
            $(#[$about_refresh:meta])*
            $refresh:ident,
            $(#[$about_pin:meta])*
            $pin:ident,
        })?
    ) => {
        $(#[$about])*
        pub struct $kind {
            $($own)*
            /// `true`: the bridge is not ready before this backend is.
            pub required: Option<At<bool>>,
            $(#[$about_pending])*
            pub pending_after: Option<At<DurationOrOff>>,
            /// The longest text of a result; `bridge_call_result` reads the rest. Default: 2 MB,
            /// without rest.
            pub max_result: Option<At<SizeText>>,
            /// What is replaced in its results, besides what the file's own `redact` says.
            pub redact: Option<List<Redact>>,
            $(#[$about_concurrency])*
            pub concurrency: Option<At<Count>>,
            /// The calls to it that may be made, of all apps together. Left out: no limit.
            pub quota: Option<At<Quota>>,
            $(
                /// Which tools a run gets of the backend while it is down. Default: `stale`.
                pub on_unavailable: Option<At<OnUnavailable>>,
                $(#[$about_refresh])*
                pub $refresh: Option<At<DurationText>>,
                /// The longest time of a call without a sign of progress. Default: `calls.timeout`,
                /// which also limits the whole call. With `pending_after`, both limits are
                /// `calls.pending_timeout` instead.
                pub call_timeout: Option<At<DurationText>>,
                $(#[$about_pin])*
                pub $pin: Option<At<Pin>>,
            )?
        }

        impl $kind {
            /// The keys that entries of other kinds have too.
            pub fn common_keys(&self) -> CommonKeys<'_> {
                let every_kind = CommonKeys {
                    required: self.required.as_ref(),
                    pending_after: self.pending_after.as_ref(),
                    max_result: self.max_result.as_ref(),
                    redact: self.redact.as_ref(),
                    concurrency: self.concurrency.as_ref(),
                    quota: self.quota.as_ref(),
                    ..CommonKeys::default()
                };
                CommonKeys {
                    $(
                        on_unavailable: self.on_unavailable.as_ref(),
                        $refresh: self.$refresh.as_ref(),
                        call_timeout: self.call_timeout.as_ref(),
                        $pin: self.$pin.as_ref(),
                    )?
                    ..every_kind
                }
            }
        }
    };
}
pub(super) use backend_entry;
