//! The differences of two texts, line by line, for people.
//!
//! Must not: take long: texts that are too different to compare are shown one after the other.

use similar::{Algorithm, ChangeTag};

/// Lines that are shown around a difference.
const CONTEXT: usize = 3;
/// The most pairs of lines that are compared.
const MAX_PAIRS: usize = 4_000_000;

/// The lines of `before` and `after`, each with `- `, `+ ` or two spaces in front; `…` stands for
/// equal lines that are left out.
pub fn lines(before: &[String], after: &[String]) -> Vec<String> {
    shorten(&marked(before, after))
}

/// The lines of both, each with its mark.
fn marked<'a>(before: &'a [String], after: &'a [String]) -> Vec<(char, &'a String)> {
    if before.len().saturating_mul(after.len()) > MAX_PAIRS {
        let removed = before.iter().map(|line| ('-', line));
        return removed.chain(after.iter().map(|line| ('+', line))).collect();
    }
    let differences = similar::capture_diff_slices(Algorithm::Myers, before, after);
    let changes = differences.iter().flat_map(|one| one.iter_slices(before, after));
    let marked = changes.flat_map(|(tag, lines)| {
        let mark = match tag {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        lines.iter().map(move |line| (mark, line))
    });
    marked.collect()
}

/// Leaves out equal lines that are far from a difference.
fn shorten(all: &[(char, &String)]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for (at, (mark, line)) in all.iter().enumerate() {
        let context = at.saturating_sub(CONTEXT)..all.len().min(at + CONTEXT + 1);
        let neighbours = all.get(context).unwrap_or_default();
        if neighbours.iter().any(|(mark, _)| *mark != ' ') {
            out.push(format!("{mark} {line}"));
        } else if out.last().is_none_or(|last| last != "…") {
            out.push("…".to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    //! Differences as a person would mark them.

    use proptest::prelude::*;

    use super::*;

    fn diff(before: &str, after: &str) -> String {
        let lines_of =
            |text: &str| text.split_terminator(' ').map(str::to_owned).collect::<Vec<_>>();
        lines(&lines_of(before), &lines_of(after)).join("|")
    }

    #[test]
    fn equal_lines_far_from_a_change_are_left_out() {
        assert_eq!(diff("a b c", "a x c"), "  a|- b|+ x|  c");
        assert_eq!(
            diff("1 2 3 4 5 x 6 7 8 9", "1 2 3 4 5 6 7 8 9"),
            "…|  3|  4|  5|- x|  6|  7|  8|…"
        );
        assert_eq!(diff("", "a b"), "+ a|+ b");
        assert_eq!(diff("a", ""), "- a");
        assert_eq!(diff("a", "a"), "…");
        assert_eq!(diff("a b c d", "b x d"), "- a|  b|- c|+ x|  d");
    }

    #[test]
    fn texts_that_differ_too_much_are_shown_one_after_the_other() {
        let many = |word: &str| (0..3000).map(|n| format!("{word}{n}")).collect::<Vec<_>>();
        let shown = lines(&many("a"), &many("b"));
        assert_eq!(shown.len(), 6000);
        assert!(shown[2999].starts_with("- a") && shown[3000].starts_with("+ b"));
    }

    proptest! {
        #[test]
        fn both_texts_are_in_it(a in "[abc]{0,12}", b in "[abc]{0,12}") {
            let split = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
            let both: Vec<(char, char)> = marked(&split(&a), &split(&b))
                .into_iter()
                .map(|(mark, line)| (mark, line.chars().next().unwrap()))
                .collect();
            let side = |mark: char| {
                both.iter().filter(|(m, _)| *m == ' ' || *m == mark).map(|(_, c)| *c).collect::<String>()
            };
            prop_assert_eq!(side('-'), a);
            prop_assert_eq!(side('+'), b);
        }
    }
}
