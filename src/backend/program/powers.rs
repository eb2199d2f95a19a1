//! Takes capabilities from the process that is about to become a program, for good.
//!
//! Must not: continue if the program could have more of them than it should keep.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, no_new_privs, remove_capability_from_bounding_set,
    set_capabilities,
};

/// Keeps what is in `kept`, and nothing else, whatever is run from now on. Root gets back what is
/// in the bounding set with every program that it runs, and other users what a program's file
/// grants; so the bounding set shrinks, too.
pub(super) fn keep(kept: CapabilitySet) -> Result<(), String> {
    // A system may refuse any of these calls: the check of the remaining capabilities decides.
    let _cleared = clear_ambient_capability_set().is_ok();
    for one in every().filter(|one| !kept.contains(*one)) {
        let _removed = remove_capability_from_bounding_set(one).is_ok();
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    let _set = set_capabilities(None, sets).is_ok();
    let more =
        obtainable().map_err(|error| format!("cannot read its capabilities: {error}"))? - kept;
    if more.is_empty() {
        return Ok(());
    }
    Err(format!(
        "cannot take its capabilities from it (0x{:x} are left): run the bridge as another user \
         than root, or set `sandbox: off`",
        more.bits()
    ))
}

/// What a program that is run now could have.
fn obtainable() -> rustix::io::Result<CapabilitySet> {
    let now = capabilities(None)?;
    // A number that this kernel does not know is an error.
    let bounds: CapabilitySet = every()
        .filter(|capability| matches!(capability_is_in_bounding_set(*capability), Ok(true)))
        .collect();
    // The ambient set lies within these, and without new privileges nothing is added to what is
    // there.
    let could = bounds | now.inheritable;
    Ok(if no_new_privs()? { could & now.permitted } else { could })
}

/// All capabilities that there can be.
fn every() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number))
}
