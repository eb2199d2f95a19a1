//! What programs write when they fail, and the cause, the line and the cure that are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cause::Network;
use super::*;
use crate::config::{Confinement, ProgramSandbox};

mod launchers;
mod programs;
mod starts;

/// One failure of a program.
pub(super) struct Case {
    /// The command line; a word has no spaces in it.
    command: &'static str,
    end: End,
    stderr: &'static str,
    stdout: &'static str,
    cause: Cause,
    /// All of the line that is told; `""` where there is none.
    line: &'static str,
    /// A part of the cure.
    cure: &'static str,
}

/// A program that ended with status 1, and wrote nothing.
const BARE: Case = Case {
    command: "server",
    end: End::Exit(1),
    stderr: "",
    stdout: "",
    cause: Cause::Failed,
    line: "",
    cure: "",
};

fn program(command: &str) -> Program {
    let mut words = command.split(' ').map(str::to_owned);
    Program {
        command: words.next().expect("a command"),
        args: words.map(Into::into).collect(),
        env: BTreeMap::new(),
        cwd: None,
        sandbox: ProgramSandbox::Masked,
        hidden: Arc::new([
            PathBuf::from("/home/me/.local/state/mantyx-bridge"),
            PathBuf::from("/srv/bridge/bridge.yaml"),
        ]),
        secrets: Arc::default(),
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// What is told of `case`, where the program is `program`.
fn told(case: &Case, program: &Program, variables: Variables) -> Option<Diagnosis> {
    diagnosis(&Evidence {
        program,
        end: case.end.clone(),
        stderr: &lines(case.stderr),
        stdout: &lines(case.stdout),
        stray_id: None,
        worked: false,
        variables,
    })
}

fn variables() -> Variables {
    Variables::new(|name| (name == "HOME").then(|| "/home/me".to_owned()))
}

#[track_caller]
pub(super) fn check(cases: &[Case]) {
    for case in cases {
        let program = program(case.command);
        let told = told(case, &program, variables());
        let told = told.unwrap_or_else(|| panic!("no diagnosis of {:?}", case.stderr));
        assert_eq!(told.cause, case.cause, "{told:?} of {}", case.stderr);
        assert_eq!(told.line.as_deref().unwrap_or_default(), case.line, "{told:?}");
        let cure = told.cause.cure(&program);
        assert!(cure.contains(case.cure), "{:?} has the cure {cure}", told.cause);
        assert!(!told.cause.to_string().is_empty() && !cure.is_empty(), "{told:?}");
    }
}

/// A failed connection to a registry by a program that has a proxy.
#[test]
fn proxy_of_the_program_changes_the_cure() {
    let case = Case { command: "npx -y x", stderr: "npm error code ECONNREFUSED", ..BARE };
    let program = program(case.command);
    let proxied = Variables::new(|name| (name == "https_proxy").then(|| "http://p".to_owned()));
    let told = told(&case, &program, proxied).expect("a diagnosis");
    assert_eq!(told.cause, Cause::NoNetwork(Network::RegistryByProxy));
    assert!(told.cause.cure(&program).contains("whether the proxy"));
}

#[test]
fn sandbox_decides_why_a_file_cannot_be_used() {
    let case = Case { stderr: "Error: EACCES: permission denied, open '/srv/data/x'", ..BARE };
    let path = PathBuf::from("/srv/data/x");
    let mut program = program("server");
    assert_eq!(
        told(&case, &program, variables()).map(|told| told.cause),
        Some(Cause::NoAccess(path.clone()))
    );
    program.sandbox = ProgramSandbox::Listed(Confinement::default());
    assert_eq!(
        told(&case, &program, variables()).map(|told| told.cause),
        Some(Cause::NotListed(path))
    );
    let own =
        Case { stderr: "Error: EACCES: permission denied, open '/srv/bridge/bridge.yaml'", ..BARE };
    let hidden = Cause::Hidden(PathBuf::from("/srv/bridge/bridge.yaml"));
    assert_eq!(told(&own, &program, variables()).map(|told| told.cause), Some(hidden));
    program.sandbox = ProgramSandbox::Off;
    let file = Cause::NoAccess(PathBuf::from("/srv/bridge/bridge.yaml"));
    assert_eq!(told(&own, &program, variables()).map(|told| told.cause), Some(file));
}

#[test]
fn program_that_worked_is_not_called_no_server() {
    let program = program("server");
    let evidence = |stdout: &'static str, end| {
        diagnosis(&Evidence {
            program: &program,
            end,
            stderr: &[],
            stdout: &lines(stdout),
            stray_id: Some(0),
            worked: true,
            variables: variables(),
        })
    };
    let told = evidence("Usage: a banner that it prints at its start", End::Exit(0));
    assert_eq!(told.map(|told| told.cause), Some(Cause::Silent));
    let told = evidence("", End::Signal(9));
    assert_eq!(told.map(|told| told.cause), Some(Cause::OutOfMemory));
}

#[test]
fn program_that_runs_has_a_cause_only_if_it_shows_one() {
    let program = program("server");
    let evidence = |stdout: &'static str, stderr: &'static str, stray_id| {
        let told = diagnosis(&Evidence {
            program: &program,
            end: End::Running,
            stderr: &lines(stderr),
            stdout: &lines(stdout),
            stray_id,
            worked: false,
            variables: variables(),
        });
        told.map(|told| told.cause)
    };
    assert_eq!(evidence("", "", None), None);
    assert_eq!(evidence("", "npm warn deprecated inflight@1.0.6: not supported", None), None);
    assert_eq!(evidence("", "Warning: no token is set, going on without", None), None);
    assert_eq!(evidence("", "Server started, see https://docs.test/start", None), None);
    assert_eq!(evidence("", "", Some(0)), Some(Cause::ConstantId(0)));
    assert_eq!(evidence("Content-Length: 120", "", Some(0)), Some(Cause::Framed));
    assert_eq!(evidence("hello", "", None), Some(Cause::NotServer));
    let http = "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)";
    assert_eq!(evidence("", http, None), Some(Cause::SpeaksHttp));
    assert_eq!(evidence("Server listening on port 3000", "", None), Some(Cause::SpeaksHttp));
    let login = "Please authorize this client by visiting:\nhttps://a.test/authorize";
    assert_eq!(evidence("", login, None), Some(Cause::WaitsForPerson));
    let key = "Error: GITHUB_TOKEN environment variable is not set";
    assert_eq!(evidence("", key, None), Some(Cause::Credential));
}

#[test]
fn each_sentence_says_what_happened_and_where() {
    let npm = "npm error code E404\nnpm error 404 Not Found - GET https://r.test/nope";
    let case = Case { command: "npx -y nope", stderr: npm, ..BARE };
    let program = program(case.command);
    let told = told(&case, &program, variables()).expect("a diagnosis");
    let error = told.error(PeerErrorKind::Program, "`npx` ended with exit status 1", &program);
    assert_eq!(
        error.to_string(),
        "`npx` ended with exit status 1: the registry has no such package or version: npm error 404 \
         Not Found - GET https://r.test/nope"
    );
    assert_eq!(
        error.own_cure(),
        Some("correct the name or the version of the package: npx -y nope")
    );
}
