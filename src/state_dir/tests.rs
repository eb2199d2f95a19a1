//! The token is made once and is its owner's alone.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn a_token_is_made_once_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().join("a/b"));
    state.create().unwrap();
    assert!(state.existing(TOKEN).unwrap().is_none());
    let token = state.token().unwrap().expose_secret().to_owned();
    assert_eq!(token.len(), 4 + 64);
    assert_eq!(state.token().unwrap().expose_secret(), token);
    let mode = |path: &str| state.path().join(path).metadata().unwrap().permissions().mode();
    assert_eq!(mode(TOKEN) & 0o777, 0o600);
    let operator = state.operator().unwrap().expose_secret().to_owned();
    assert_ne!(operator, token);
    assert_eq!(mode(OPERATOR) & 0o777, 0o600);
    assert_eq!(mode("") & 0o777, 0o700);
}

/// The modes of the directory and of its files, and what is told of them.
struct Modes {
    dir: u32,
    token: u32,
    operator: u32,
    told: Option<&'static str>,
}

const MODES: [Modes; 13] = [
    Modes { dir: 0o700, token: 0o600, operator: 0o600, told: None },
    Modes { dir: 0o755, token: 0o600, operator: 0o600, told: None },
    // Nobody else gets as far as the files.
    Modes { dir: 0o700, token: 0o644, operator: 0o644, told: None },
    // Who may write them now may have written them before the directory was closed.
    Modes {
        dir: 0o700,
        token: 0o666,
        operator: 0o600,
        told: Some("can write PATH/token (mode 0666)"),
    },
    Modes {
        dir: 0o700,
        token: 0o600,
        operator: 0o620,
        told: Some("can write PATH/operator (mode 0620)"),
    },
    Modes {
        dir: 0o750,
        token: 0o660,
        operator: 0o600,
        told: Some("can write PATH/token (mode 0660)"),
    },
    Modes {
        dir: 0o755,
        token: 0o644,
        operator: 0o600,
        told: Some("can read PATH/token (mode 0644)"),
    },
    Modes {
        dir: 0o755,
        token: 0o600,
        operator: 0o604,
        told: Some("can read PATH/operator (mode 0604)"),
    },
    Modes {
        dir: 0o755,
        token: 0o600,
        operator: 0o606,
        told: Some("can write PATH/operator (mode 0606)"),
    },
    // A group may have the token that apps use.
    Modes { dir: 0o750, token: 0o640, operator: 0o600, told: None },
    Modes {
        dir: 0o750,
        token: 0o640,
        operator: 0o640,
        told: Some("can read PATH/operator (mode 0640)"),
    },
    Modes {
        dir: 0o770,
        token: 0o600,
        operator: 0o600,
        told: Some("can replace files in PATH (mode 0770)"),
    },
    Modes { dir: 0o1777, token: 0o600, operator: 0o600, told: None },
];

#[test]
fn file_that_other_users_can_read_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().join("state"));
    state.create().unwrap();
    state.token().unwrap();
    state.operator().unwrap();
    let set = |name: &str, mode| {
        let path = state.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for Modes { dir, token, operator, told } in MODES {
        for (name, mode) in [("", dir), (TOKEN, token), (OPERATOR, operator)] {
            set(name, mode);
        }
        let exposed = state.exposed();
        let case = format!("{dir:o} {token:o} {operator:o}: {exposed:?}");
        assert_eq!(exposed.is_some(), told.is_some(), "{case}");
        if let (Some(Exposed { message, cure }), Some(told)) = (exposed, told) {
            let path = state.path().display().to_string();
            assert!(message.contains(&told.replace("PATH", &path)), "{case}");
            assert!(cure.contains("chmod"), "{case}");
            let is_written = told.contains("can write");
            assert_eq!(cure.contains("chmod go-w"), is_written, "{case}");
        }
    }
}

#[test]
fn file_of_another_user_is_told_with_its_cure() {
    struct Case {
        file: u32,
        dir: u32,
        is_told: bool,
    }
    let path = Path::new("/state/operator");
    for Case { file, dir, is_told } in [
        Case { file: 7, dir: 7, is_told: false },
        Case { file: 0, dir: 7, is_told: false },
        Case { file: 0, dir: 0, is_told: false },
        Case { file: 8, dir: 7, is_told: true },
        Case { file: 8, dir: 0, is_told: true },
    ] {
        let [file, dir] = [(file, 0o600), (dir, 0o700)].map(|(owner, mode)| Access { owner, mode });
        let exposed = exposed_file(path, file, dir, false);
        assert_eq!(exposed.is_some(), is_told, "{file:?} {dir:?}");
        if let Some(Exposed { message, cure }) = exposed {
            assert!(
                message.contains("/state/operator belongs to another user (uid 8)"),
                "{message}"
            );
            assert!(cure.contains(&format!("chown {} /state/operator", dir.owner)), "{cure}");
        }
    }
}

#[test]
fn huge_file_in_place_of_a_small_one_is_refused_by_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    for name in [TOKEN, OPERATOR, LISTEN, REFRESH_TOKEN] {
        // It takes no disk space, and would take memory.
        fs::File::create(dir.path().join(name)).unwrap().set_len(50 << 30).unwrap();
    }
    let errors = [
        state.token().unwrap_err(),
        state.operator().unwrap_err(),
        state.existing(TOKEN).unwrap_err(),
        state.listen().unwrap_err(),
        state.refresh_token("x").unwrap_err(),
    ];
    for error in errors {
        let text = error_chain(&error);
        assert!(text.contains("53687091200 bytes") && text.contains("move it away"), "{text}");
        assert!(!text.contains("set `state_dir`"), "{text}");
    }
}

#[test]
fn unwritten_file_is_told_until_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    // A directory cannot be replaced by a file.
    fs::create_dir_all(dir.path().join("listen/x")).unwrap();
    let clone = state.clone();
    clone.write_listen(&["http://127.0.0.1:1".to_owned()]).unwrap_err();
    let [told] = &state.unwritten()[..] else { panic!("{state:?}") };
    assert!(told.contains("listen"), "{told}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    fs::remove_dir_all(dir.path().join("listen")).unwrap();
    state.write_listen(&["http://127.0.0.1:1".to_owned()]).unwrap();
    assert!(state.unwritten().is_empty());
}

#[test]
fn drafts_of_processes_that_are_gone_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = child.id();
    let own = std::process::id();
    child.wait().unwrap();
    fs::create_dir(dir.path().join("pins")).unwrap();
    let mut stay = vec![format!("listen.new{own}"), "listen".into(), "pins/fs.json".into()];
    stay.extend([format!("notes.new{gone}"), "pins/fs.new".into(), "token.new0".into()]);
    for name in [format!("listen.new{gone}"), format!("pins/fs.new{gone}")].iter().chain(&stay) {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    state.sweep_drafts();
    stay.iter().for_each(|name| assert!(dir.path().join(name).exists(), "{name}"));
    for name in [format!("listen.new{gone}"), format!("pins/fs.new{gone}")] {
        assert!(!dir.path().join(&name).exists(), "{name}");
    }
}

#[test]
fn damaged_secret_is_replaced_and_told() {
    for damage in
        ["", " \n", "a", "secret", "mbt_0123456789abcdef", "\0\0\0\0\0\0\0\0", "mbt_\u{1b}"]
    {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        for name in [TOKEN, OPERATOR] {
            fs::write(dir.path().join(name), damage).unwrap();
            assert!(state.existing(name).unwrap().is_none(), "{damage:?}");
        }
        let secrets = [state.token().unwrap(), state.operator().unwrap()];
        for (secret, prefix) in secrets.iter().zip(["mbt_", "mbo_"]) {
            let text = secret.expose_secret();
            assert!(text.starts_with(prefix) && text.len() == 4 + 64, "{damage:?}");
        }
        let told = state.clone().replaced();
        assert_eq!(told.len(), 2, "{damage:?}");
        assert!(told[0].message.contains("operator") && told[0].cure.contains("--operator"));
        assert!(told[1].message.contains("token") && told[1].cure.contains("apps"));
        // The next start finds nothing to tell.
        let next = StateDir::new(dir.path().to_owned());
        assert_eq!(next.token().unwrap().expose_secret(), secrets[0].expose_secret());
        assert!(next.replaced().is_empty());
    }
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    fs::write(dir.path().join(TOKEN), [0xff, 0xfe]).unwrap();
    state.token().unwrap();
    assert_eq!(state.replaced().len(), 1, "no text at all");
}

#[test]
fn damaged_refresh_token_is_told_and_the_configured_one_used() {
    for damage in ["", "\0\0", "{\"of\":"] {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        fs::write(dir.path().join(REFRESH_TOKEN), damage).unwrap();
        assert!(state.refresh_token("x").unwrap().is_none());
        let [told] = &state.replaced()[..] else { panic!("{damage:?}") };
        assert!(told.message.contains(REFRESH_TOKEN), "{}", told.message);
    }
}

#[test]
fn file_of_another_version_is_read_as_far_as_it_is_known() {
    struct Case {
        name: &'static str,
        text: &'static str,
        token: Option<&'static str>,
    }
    for Case { name, text, token } in [
        Case {
            name: "an earlier refresh token",
            text: "{\"of\":\"x\",\"refreshToken\":\"next\"}\n",
            token: Some("next"),
        },
        Case {
            name: "one with a member that is not known",
            text: "{\"of\":\"x\",\"refreshToken\":\"next\",\"expires\":5}\n",
            token: Some("next"),
        },
        Case {
            name: "the replacement of another token",
            text: "{\"of\":\"y\",\"refreshToken\":\"next\"}\n",
            token: None,
        },
        Case { name: "one in another form", text: "{\"of\":\"x\",\"tokens\":[]}\n", token: None },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().to_owned());
        fs::write(dir.path().join(REFRESH_TOKEN), text).unwrap();
        let stored = state.refresh_token("x").unwrap();
        assert_eq!(stored.as_ref().map(|token| token.expose_secret()), token, "{name}");
        state.write_refresh_token("x", &"last".to_owned().into()).unwrap();
        let written = fs::read_to_string(dir.path().join(REFRESH_TOKEN)).unwrap();
        assert_eq!(written, "{\"of\":\"x\",\"refreshToken\":\"last\"}\n", "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    // A secret is a line of text in every version, and is never written again.
    let secret = format!("mbt_{}\n", "7".repeat(64));
    fs::write(dir.path().join(TOKEN), &secret).unwrap();
    assert_eq!(state.token().unwrap().expose_secret(), secret.trim());
    assert_eq!(fs::read_to_string(dir.path().join(TOKEN)).unwrap(), secret);
    fs::write(dir.path().join(LISTEN), "http://127.0.0.1:1\nhttp://[::1]:2\n").unwrap();
    assert_eq!(state.listen().unwrap(), ["http://127.0.0.1:1", "http://[::1]:2"]);
}

/// Nothing writes to the pipe, so that a reader would wait for ever.
#[test]
fn pipe_or_device_in_place_of_a_file_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path().to_owned());
    let make = |name: &str| {
        let path = dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
    };
    [TOKEN, LISTEN, REFRESH_TOKEN].into_iter().for_each(make);
    std::os::unix::fs::symlink("/dev/zero", dir.path().join(OPERATOR)).unwrap();
    let errors = [
        state.token().unwrap_err(),
        state.operator().unwrap_err(),
        state.listen().unwrap_err(),
        state.refresh_token("x").unwrap_err(),
    ];
    for (error, what) in errors.iter().zip(["a pipe", "a device", "a pipe", "a pipe"]) {
        let text = error_chain(error);
        assert!(text.contains(what) && text.contains("move it away"), "{text}");
        assert!(!text.contains("set `state_dir`"), "{text}");
    }
    state.write_listen(&["http://127.0.0.1:1".to_owned()]).unwrap();
    assert_eq!(state.listen().unwrap(), ["http://127.0.0.1:1"], "a file takes its place");
}

#[test]
fn file_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = StateDir::new(file.join("sub")).create().unwrap_err();
    assert!(error.to_string().contains("sub"), "{error}");
}
