//! The launcher's command line; that the program dies with the daemon needs the real binary and is
//! in the integration tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clap::Parser as _;

use super::{Order, SUBCOMMAND, arguments};
use crate::backend::program::hiding::Hidden;
use crate::config::{Confinement, Program, ProgramSandbox, Written};

fn read(args: &[&str]) -> Result<Order, clap::Error> {
    Order::try_parse_from(args)
}

#[test]
fn arguments_of_the_launcher_are_read_as_written() {
    let sandbox = Confinement { read: vec!["/a b".into(), "--".into()], write: vec!["/=c".into()] };
    let hidden = Hidden { masks: Some(vec!["/m n".into()]), forbidden: vec!["/--".into()] };
    for (sandbox, hidden) in [
        (ProgramSandbox::Masked, Hidden::default()),
        (ProgramSandbox::Masked, Hidden { masks: Some(Vec::new()), forbidden: Vec::new() }),
        (ProgramSandbox::Listed(Confinement::default()), Hidden::default()),
        (ProgramSandbox::Listed(sandbox), hidden),
    ] {
        let program = Program {
            command: "x".into(),
            args: ["--", "-a b"].map(|arg| Written::from(arg.to_owned())).into(),
            env: BTreeMap::new(),
            cwd: None,
            sandbox: sandbox.clone(),
            hidden: Arc::default(),
            secrets: Arc::default(),
        };
        let mut line = arguments(Path::new("/bin/x"), &program, &hidden).into_iter();
        assert_eq!(line.next().unwrap(), SUBCOMMAND);
        let order = Order::try_parse_from(line).unwrap();
        assert_eq!(order.parent, Some(std::process::id()));
        let lists = match sandbox {
            ProgramSandbox::Listed(lists) => Some(lists),
            _ => None,
        };
        assert_eq!(order.sandbox, lists.is_some());
        let Confinement { read, write } = lists.unwrap_or_default();
        assert_eq!((order.read, order.write), (read, write));
        assert_eq!(order.masked, hidden.masks.is_some());
        assert_eq!(
            (order.mask, order.forbid),
            (hidden.masks.unwrap_or_default(), hidden.forbidden)
        );
        assert_eq!(order.line, ["/bin/x", "--", "-a b"]);
    }
}

#[test]
fn the_parent_may_be_left_out() {
    let order = read(&["--", "x"]).unwrap();
    assert_eq!(
        (order.parent, order.files, order.masked, order.sandbox),
        (None, None, false, false)
    );
    assert_eq!(order.line, ["x"]);
    assert_eq!(read(&["--files=512", "--", "x"]).unwrap().files, Some(512));
}

#[test]
fn anything_else_is_refused() {
    for args in [
        &[][..],
        &["--"],
        &["x"],
        &["--parent=", "--", "x"],
        &["--parent=1"],
        &["--files=many", "--", "x"],
        &["--read=/", "--", "x"],
        &["--mask=/", "--", "x"],
    ] {
        assert!(read(args).is_err(), "{args:?}");
    }
}
