//! References: how they are written, what they stand for, and how they fail.

use std::path::Path;

use super::{Dialect, Directories, Template, for_a_shell, looks_secret, reading_cure};
use crate::config::environment::Environment;

fn environment() -> Environment {
    Environment::bare()
        .with_var("NAME", "ann")
        .with_var("EMPTY", "")
        .with_var("HOME", "/home/ann")
        .with_var("CREDENTIALS_DIRECTORY", "/run/credentials/bridge")
        .with_file("/run/credentials/bridge/jira", "from-systemd\n", 0o400)
        .with_file("/etc/bridge/token", "from-file\r\n", 0o600)
        .with_file("/etc/bridge/open", "two\n\n", 0o644)
        .with_file("/etc/bridge/blank", "\n", 0o600)
        .with_file("/state/secrets/JIRA", "kept-by-set\n", 0o600)
}

#[track_caller]
fn check(dialect: Dialect, text: &str, expected: &str) {
    let directories =
        Directories { file: Path::new("/etc/bridge"), secrets: Some(Path::new("/state/secrets")) };
    let resolved = Template::parse(text, dialect)
        .and_then(|template| template.resolve(&environment(), directories));
    let got = match resolved {
        Ok(resolved) => resolved.value,
        Err(mistake) => format!("{} | {}", mistake.message, mistake.cure.unwrap()),
    };
    assert_eq!(got, expected);
}

#[test]
fn references_stand_for_values() {
    for (text, expected) in [
        ("plain $HOME $ {x} }", "plain $HOME $ {x} }"),
        ("${env:NAME}", "ann"),
        ("<${env:NAME}${env:NAME}>", "<annann>"),
        ("[${env:EMPTY}]", "[]"),
        ("Bearer ${file:/etc/bridge/token}", "Bearer from-file"),
        ("${file:token}", "from-file"),
        ("${file:open}", "two\n"),
        ("${cred:jira}", "from-systemd"),
        ("Bearer ${secret:JIRA}", "Bearer kept-by-set"),
        ("$${env:NAME}", "${env:NAME}"),
        ("$$${env:NAME}", "$${env:NAME}"),
        ("a $${x} ${env:NAME}", "a ${x} ann"),
    ] {
        check(Dialect::Own, text, expected);
    }
}

#[test]
fn text_that_only_a_shell_would_replace_is_recognized() {
    for path in ["~", "~/x", "~root/x", "$HOME/x", "$X"] {
        assert!(for_a_shell(path).is_some(), "{path}");
    }
    for path in ["~x", "a~/x", "/~/x", "$", "$1", "./$HOME"] {
        assert_eq!(for_a_shell(path), None, "{path}");
    }
}

#[test]
fn unreadable_file_of_a_reference_has_its_own_cure() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("x");
    std::fs::write(&file, b"\xff").unwrap();
    let cure = |path: &Path| {
        let error = Environment::of_process().read(path).err().unwrap();
        reading_cure(&error, "create it").to_owned()
    };
    assert_eq!(cure(&file), "save the file as UTF-8");
    std::fs::write(&file, b"\xff\xfea\0").unwrap();
    let error = Environment::of_process().read(&file).err().unwrap();
    assert!(error.to_string().contains("UTF-16"), "{error}");
    assert_eq!(cure(directory.path()), "name a regular file that has only this");
    assert_eq!(cure(&directory.path().join("none")), "create it");
}

#[test]
fn missing_variable_or_credential_is_named() {
    for (text, expected) in [
        (
            "a ${env:GONE}",
            "${env:GONE}: the environment variable is not set | set GONE where the bridge is started",
        ),
        (
            "${file:/gone}",
            "${file:/gone}: there is no such file | create it, readable by the bridge's user alone",
        ),
        (
            "${cred:gone}",
            "${cred:gone}: there is no such file | add LoadCredential=gone:/path/of/the/secret to \
             the unit",
        ),
        ("${file:blank}", "${file:blank}: the file is empty | write the secret into it"),
        (
            "${file:~/token}",
            "`${file:~/token}`: `~` means nothing here, as there is no shell | write a full path",
        ),
        ("${NAME}", "`${NAME}` is no reference | for the environment variable write `${env:NAME}`"),
        (
            "${NAME:-s3cret}",
            "`${NAME:-…}` is no reference: there are defaults only in entries of `mcp` | write \
             `${env:NAME}`, and set NAME where the bridge is started",
        ),
        (
            "${env:NAME:-s3cret}",
            "`${env:NAME:-…}` is no reference: there are defaults only in entries of `mcp` | write \
             `${env:NAME}`, and set NAME where the bridge is started",
        ),
        (
            "${vault:x}",
            "`${vault:x}` is no reference | a reference is ${env:NAME}, ${file:/path}, \
             ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`",
        ),
        (
            "${env:NAME",
            "a reference that begins with `${` has no `}` | a reference is ${env:NAME}, \
             ${file:/path}, ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`",
        ),
        (
            "${cred:../shadow}",
            "`${cred:../shadow}` names nothing that there can be | a reference is ${env:NAME}, \
             ${file:/path}, ${secret:NAME} or ${cred:NAME}",
        ),
    ] {
        check(Dialect::Own, text, expected);
    }
}

#[test]
fn entries_of_other_products_have_their_own_references() {
    for (text, expected) in [
        ("${NAME}", "ann"),
        ("${GONE:-there}", "there"),
        ("${EMPTY:-there}", "there"),
        ("${NAME:-there}", "ann"),
        ("${userHome}/bin", "/home/ann/bin"),
        (
            "${env:NAME:-s3cret}",
            "`${env:NAME:-…}` is no reference: a variable with a default is written without `env:` \
             | write `${NAME:-default}`",
        ),
        (
            "${GONE}",
            "${env:GONE}: the environment variable is not set | set GONE where the bridge is started",
        ),
        (
            "${input:key}",
            "`${input:key}` is no reference | a reference is ${env:NAME}, ${file:/path}, \
             ${secret:NAME} or ${cred:NAME}; for a plain `${` write `$${`",
        ),
        (
            "${workspaceFolder}/x",
            "${env:workspaceFolder}: the environment variable is not set | set workspaceFolder \
             where the bridge is started",
        ),
    ] {
        check(Dialect::Foreign, text, expected);
    }
}

#[test]
fn names_of_secrets() {
    for name in [
        "API_KEY",
        "GITHUB_TOKEN",
        "authorization",
        "X-Api-Key",
        "clientSecret",
        "DB_PASSWORD",
        "authToken",
    ] {
        assert!(looks_secret(name), "{name}");
    }
    for name in ["PATH", "MONKEY", "tokens", "url", "LOG_LEVEL", "PATTERN", "TOKEN_URL"] {
        assert!(!looks_secret(name), "{name}");
    }
}
