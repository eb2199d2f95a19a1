//! The differences of two texts, line by line, for people.
//!
//! Must not: take long: texts that are too different to compare are shown one after the other.

/// Lines that are shown around a difference.
const CONTEXT: usize = 3;
/// The most pairs of lines that are compared, once equal beginnings and ends are set aside.
const MAX_PAIRS: usize = 4_000_000;

/// The lines of `before` and `after`, each with `- `, `+ ` or two spaces in front; `…` stands for equal
/// lines that are left out.
pub fn lines(before: &[String], after: &[String]) -> Vec<String> {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = |lines: &[String]| lines.get(start..).unwrap_or_default().to_vec();
    let a = rest(before);
    let b = rest(after);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let a = a.split_at(a.len() - end).0;
    let b = b.split_at(b.len() - end).0;

    let mut out: Vec<(char, &String)> = before.iter().take(start).map(|line| (' ', line)).collect();
    out.extend(middle(a, b));
    out.extend(before.iter().skip(before.len() - end).map(|line| (' ', line)));
    shorten(&out)
}

/// The difference of texts that begin and end differently: by their longest common subsequence.
fn middle<'a>(a: &'a [String], b: &'a [String]) -> Vec<(char, &'a String)> {
    let removed = |lines: &'a [String]| lines.iter().map(|line| ('-', line));
    let added = |lines: &'a [String]| lines.iter().map(|line| ('+', line));
    if a.len().saturating_mul(b.len()) > MAX_PAIRS {
        return removed(a).chain(added(b)).collect();
    }
    // How long the common subsequence of the rests from (i, j) on is.
    let width = b.len() + 1;
    let mut common = vec![0_u32; (a.len() + 1) * width];
    let length =
        |common: &[u32], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or(0);
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let best = match x == y {
                true => length(&common, i + 1, j + 1) + 1,
                false => length(&common, i + 1, j).max(length(&common, i, j + 1)),
            };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = best;
            }
        }
    }
    let mut out = Vec::with_capacity(a.len() + b.len());
    let mut i = 0;
    let mut j = 0;
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x == y {
            out.push((' ', x));
            (i, j) = (i + 1, j + 1);
        } else if length(&common, i + 1, j) >= length(&common, i, j + 1) {
            out.push(('-', x));
            i += 1;
        } else {
            out.push(('+', y));
            j += 1;
        }
    }
    out.extend(removed(a.get(i..).unwrap_or_default()));
    out.extend(added(b.get(j..).unwrap_or_default()));
    out
}

/// Leaves out equal lines that are far from a difference.
fn shorten(all: &[(char, &String)]) -> Vec<String> {
    let is_near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        let around = all.get(from..all.len().min(at + CONTEXT + 1)).unwrap_or_default();
        around.iter().any(|(mark, _)| *mark != ' ')
    };
    let mut out: Vec<String> = Vec::new();
    for (at, (mark, line)) in all.iter().enumerate() {
        if is_near(at) {
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
    fn what_is_equal_and_far_is_left_out() {
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
    fn what_is_too_different_is_shown_one_after_the_other() {
        let many = |word: &str| (0..3000).map(|n| format!("{word}{n}")).collect::<Vec<_>>();
        let shown = lines(&many("a"), &many("b"));
        assert_eq!(shown.len(), 6000);
        assert!(shown[2999].starts_with("- a") && shown[3000].starts_with("+ b"));
    }

    proptest! {
        #[test]
        fn both_texts_are_in_it(a in "[abc]{0,12}", b in "[abc]{0,12}") {
            let split = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
            let both: Vec<(char, char)> = middle(&split(&a), &split(&b))
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
