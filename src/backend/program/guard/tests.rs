//! What the guard is left with; that it kills needs the real binary and is in the integration
//! tests.

use rustix::process::{Pid, test_kill_process};

use super::{
    BTreeSet, Child, Command, Groups, Guard, Mark, OwnedFd, Path, Prey, Stdio, UnixStream,
    living_prey,
};

/// One that leaves `mark` behind if it sees the end of its stdin.
fn guard(mark: &Path) -> Guard {
    let (line, stdin) = UnixStream::pair().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "cat >/dev/null; : >\"$0\""]).arg(mark);
    let process: Child = command.stdin(OwnedFd::from(stdin)).stdout(Stdio::null()).spawn().unwrap();
    Guard { binary: "/nowhere".into(), process, line }
}

#[test]
fn one_that_is_given_up_does_not_take_it_for_the_daemons_end() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("end");
    let guard = guard(&mark);
    let process = Pid::from_child(&guard.process);
    let mut groups = Groups { living: BTreeSet::new(), guard: Some(guard) };
    groups.guard = None;
    assert!(test_kill_process(process).is_err(), "it is dead, and waited for");
    assert!(!mark.exists(), "before its stdin has ended");
}

fn ids(lines: &str) -> Vec<i32> {
    let groups = living_prey(lines.as_bytes()).into_iter().map(|prey| match prey {
        Prey::Group(group) => group.get(),
        Prey::Marked(mark) => panic!("{mark:?}"),
    });
    groups.collect()
}

#[test]
fn marks_that_were_not_taken_back_are_left() {
    let [one, other] = [Mark::new(), Mark::new()].map(Prey::Marked);
    let lines = format!("+10\n+{one}\n-10\n+{other}\n-{one}\n+=short\n+{one}");
    assert_eq!(living_prey(lines.as_bytes()), BTreeSet::from([other]));
}

#[test]
fn groups_that_were_not_taken_back_are_left() {
    assert_eq!(ids("+10\n+11\n-10\n+12\n"), [11, 12]);
    assert_eq!(ids("+10\n-10\n+10\n"), [10], "a number may come again");
    assert_eq!(ids(""), [0; 0]);
}

#[test]
fn group_that_is_not_the_guards_is_left_alone() {
    for lines in ["+1\n", "+0\n", "+-1\n", "+\n", "\n", "10\n", "x10\n", "+10x\n", "é\n", "-10\n"]
    {
        assert_eq!(ids(lines), [0; 0], "{lines:?}");
    }
    assert_eq!(ids("+10\n+1234"), [10]);
}
