//! What the contract has and this version does not: one table, to be shortened by later versions.
//!
//! The schema and the shape accept these keys. A file that uses one is refused with its place,
//! since a bridge that ignored it would do something else than the file says.
//!
//! Must not: be the place for checks of things that work.

use super::document::{Kind, Node};

/// One row of the table.
struct NotYet {
    /// The way to the value; `*` is any key.
    path: &'static [&'static str],
    what: &'static str,
    cure: &'static str,
}

const TABLE: &[NotYet] = &[NotYet {
    path: &["listen", "tls"],
    what: "TLS on the bridge's listeners",
    cure: "listen on 127.0.0.1 and put a TLS proxy in front",
}];

/// Tells `report` every value below `root` that uses what this version lacks: the value, what it
/// would use, and the cure.
pub(super) fn find<'d>(
    root: &'d Node,
    report: &mut dyn FnMut(&'d Node, &'static str, &'static str),
) {
    for row in TABLE {
        walk(root, row.path, &mut |node| {
            if is_used(node) {
                report(node, row.what, row.cure);
            }
        });
    }
}

fn walk<'d>(node: &'d Node, path: &[&str], found: &mut dyn FnMut(&'d Node)) {
    let Some((key, rest)) = path.split_first() else {
        return found(node);
    };
    let Kind::Map(entries) = &node.kind else { return };
    // An entry that is turned off uses nothing.
    if entries.iter().any(|(key, node)| key == "disabled" && matches!(node.kind, Kind::Bool(true)))
    {
        return;
    }
    for (name, value) in entries {
        // Both names of the section hold the same entries.
        let name = if name == "mcpServers" { "mcp" } else { name };
        if *key == "*" || *key == name {
            walk(value, rest, found);
        }
    }
}

/// Whether the key has something in it.
fn is_used(node: &Node) -> bool {
    match &node.kind {
        Kind::Null => false,
        Kind::Map(entries) => !entries.is_empty(),
        Kind::Seq(items) => !items.is_empty(),
        _ => true,
    }
}
