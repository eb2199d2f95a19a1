//! What of a server's list is not offered: why, and what an operator does about it.
//!
//! Must not: decide what is left out.

use super::listed;

/// A tool that the server listed and that cannot be offered.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its place in the server's list, from 0.
    pub index: usize,
    /// One sentence for the log.
    pub why: String,
    pub fault: Fault,
}

/// Why a list was not read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// A sentence without its full stop.
    pub why: String,
    pub fault: Fault,
}

/// What is wrong with a list, or with a tool in it, as far as the cure depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has no name, or an empty one.
    Name,
    /// It has the name of an earlier one.
    SameName,
    Nesting,
    /// Its definition is no JSON object that all readers take for the same.
    Unreadable,
    /// It is too large, or one too many; or the list has no end.
    Size,
    /// It wants an argument as a header that cannot be one.
    Header,
    /// The list says where it continues by something else than a text.
    Cursor,
}

impl Fault {
    fn cure(self) -> &'static str {
        match self {
            Self::Name => "Tell the server's author: each tool has to have a `name`, a text.",
            Self::SameName => {
                "Tell the server's author: each tool has to have a name that no other one has; the \
                 first one is offered."
            }
            Self::Nesting => {
                "Tell the server's author, or look for a newer version of the server: `$defs` and \
                 `$ref` make a schema flat."
            }
            Self::Unreadable => {
                "Tell the server's author, or look for a newer version of the server: the \
                 definition has to be a JSON object in which each member stands once."
            }
            Self::Size => {
                "Ask for fewer or smaller tools where the server can be told which to list; \
                 docs/trust.md has the limits."
            }
            Self::Header => {
                "Tell the server's author, or look for a newer version of the server: its \
                 `x-mcp-header` cannot be used."
            }
            Self::Cursor => {
                "Tell the server's author, or look for a newer version of the server: `nextCursor` \
                 has to be a text. What came before it is offered."
            }
        }
    }
}

/// What of a list is not offered, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// In a sentence or two.
    pub message: String,
    pub cure: String,
}

impl Omission {
    /// `None` where all of the list is offered.
    pub(super) fn new(left_out: &[LeftOut], cut: Option<&Cut>) -> Option<Self> {
        let mut sentences: Vec<String> =
            cut.map(|cut| format!("{}.", cut.why)).into_iter().collect();
        if !left_out.is_empty() {
            let tools = left_out.iter().map(|one| format!("number {} ({})", one.index, one.why));
            sentences.push(format!("Tools are left out: {}.", listed(tools)));
        }
        let mut cures = Vec::new();
        for fault in
            cut.map(|cut| cut.fault).into_iter().chain(left_out.iter().map(|one| one.fault))
        {
            if !cures.contains(&fault.cure()) {
                cures.push(fault.cure());
            }
        }
        if sentences.is_empty() {
            return None;
        }
        Some(Self { message: sentences.join(" "), cure: cures.join(" ") })
    }
}

#[cfg(test)]
mod tests {
    //! What is told of a list, and whether each cause has its own cure.

    use serde_json::value::RawValue;

    use super::*;
    use crate::model::Catalog;
    use crate::model::limits::{MAX_DEPTH, MAX_TOOLS};

    fn omission(tools: &[&str], cut: Option<&Cut>) -> Option<Omission> {
        let tools = tools.iter().map(|tool| RawValue::from_string((*tool).to_owned()).unwrap());
        let (catalog, left_out) = Catalog::mcp(None, tools.collect());
        catalog.without(&left_out, cut).left_out().cloned()
    }

    #[test]
    fn each_cause_has_its_own_cure() {
        let deep =
            format!(r#"{{"name":"t","_meta":{}{}}}"#, "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        let large = format!(r#"{{"name":"t","description":"{}"}}"#, "x".repeat(9 << 10));
        let cases: [(&[&str], &str); 6] = [
            (&[r#"{"name":"t"}"#, r#"{"name":"t"}"#], "that no other one has"),
            (&[r#"{"name":""}"#], "a `name`, a text"),
            (&["{}"], "a `name`, a text"),
            (&["7"], "a `name`, a text"),
            (&[&deep], "`$defs`"),
            (&[&large], "fewer or smaller"),
        ];
        for (tools, cure) in cases {
            let omission = omission(tools, None).expect("something is left out");
            assert!(omission.message.starts_with("Tools are left out: "), "{omission:?}");
            assert!(omission.cure.contains(cure), "{omission:?}");
            let is_about_size = cure.contains("smaller");
            assert_eq!(omission.cure.contains("smaller"), is_about_size, "{omission:?}");
        }
        let cursor = Cut { why: "Its list is odd".to_owned(), fault: Fault::Cursor };
        let both = omission(&[r#"{"name":""}"#, "{}"], Some(&cursor)).expect("an omission");
        assert!(
            both.message.starts_with("Its list is odd. Tools are left out: number 0"),
            "{both:?}"
        );
        assert!(both.cure.contains("`nextCursor`") && both.cure.contains("a `name`"), "{both:?}");
        assert_eq!(both.cure.matches("Tell").count(), 2, "each cure once");
        assert_eq!(omission(&[r#"{"name":"t"}"#], None), None);
    }

    #[test]
    fn tool_beyond_the_limit_is_left_out_and_told() {
        let tool = |n| RawValue::from_string(format!(r#"{{"name":"t{n}"}}"#)).unwrap();
        let tools = (0..MAX_TOOLS + 12).map(tool).collect();
        let (catalog, left_out) = Catalog::mcp(None, tools);
        let digest = catalog.digest().to_owned();
        let cut = Cut { why: "The list goes on".to_owned(), fault: Fault::Size };
        let catalog = catalog.without(&left_out, Some(&cut));
        assert_eq!((catalog.tool_count(), left_out.len()), (MAX_TOOLS, 12));
        let told = &catalog.left_out().unwrap().message;
        assert!(told.starts_with("The list goes on. Tools are left out: number 2000 ("), "{told}");
        assert!(told.contains("\"t2000\"") && told.ends_with("and 2 more."), "{told}");
        assert_eq!(catalog.digest(), digest, "it is no part of what is offered");
        assert_eq!(catalog.without(&[], None).left_out(), None);
    }
}
