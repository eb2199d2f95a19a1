//! What the doctor advises.
//!
//! Must not: name a cause that a check has not found.

pub(super) const REFERENCE: &str = "see the line in the warning";
pub(super) const DAMAGED: &str = "check the disk; `mantyx-bridge status` shows what was lost in \
                                  the last 24 h. Delete the file when you do not need it any more";
pub(super) const HANGS: &str = "see whether it hangs: its own log tells what it was doing";
pub(super) const DURABILITY: &str = "set `synchronous_commit = on` and, if another server may be \
                                     promoted, `synchronous_standby_names`; docs/scaling.md says \
                                     what that means";
pub(super) const RUNTIME: &str = "correct `credential` and `url`; docs/runtimes.md has a page for \
                                  each runtime";
pub(super) const OAUTH: &str = "see that `upstream.oauth` has the token_url, client_id and \
                                client_secret of the application";
pub(super) const BUSY: &str = "try again in a while";
pub(super) const NOT_MANTYX: &str = "see whether `upstream.base_url` is MANTYX";
pub(super) const SCOPES: &str = "give it the scopes models:read and runs:write, or use a key of \
                                 the Developer API";
pub(super) const WORKSPACE: &str = "correct `upstream.workspace`, or use a credential of that \
                                    workspace";
