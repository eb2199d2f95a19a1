//! What the guard is left with; that it kills needs the real binary and is in the integration tests.

use super::left;

fn ids(lines: &str) -> Vec<i32> {
    left(lines.as_bytes()).into_iter().map(|group| group.get()).collect()
}

#[test]
fn those_that_were_not_taken_back_are_left() {
    assert_eq!(ids("+10\n+11\n-10\n+12\n"), [11, 12]);
    assert_eq!(ids("+10\n-10\n+10\n"), [10], "a number may come again");
    assert_eq!(ids(""), [0; 0]);
}

#[test]
fn what_is_no_group_of_ours_is_left_alone() {
    for lines in ["+1\n", "+0\n", "+-1\n", "+\n", "\n", "10\n", "x10\n", "+10x\n", "é\n", "-10\n"]
    {
        assert_eq!(ids(lines), [0; 0], "{lines:?}");
    }
    assert_eq!(ids("+10\n+1234"), [10]);
}
