//! Programs: what the section `programs` gives to all of them, what stands in their arguments, and
//! entries that were written for another system.

use secrecy::ExposeSecret as _;

use super::{environment, parse};
use crate::config::{Action, Config, Environment, Local, Mcp, Program, Target};
use std::path::Path;

#[track_caller]
fn good(yaml: &str) -> Config {
    parse(&format!("upstream: {{sandbox: true}}\n{yaml}"))
        .unwrap_or_else(|errors| panic!("{errors}"))
}

#[track_caller]
fn program<'c>(config: &'c Config, name: &str) -> &'c Program {
    match &config.backends[name].target {
        Target::Mcp(Mcp::Stdio(program))
        | Target::Local(Local { action: Action::Command(program), .. }) => program,
        other => panic!("{other:?}"),
    }
}

fn variables(program: &Program) -> Vec<(&str, &str)> {
    program.env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect()
}

/// The arguments as the program gets them, and as they are shown.
fn arguments(program: &Program) -> (Vec<&str>, Vec<String>) {
    let exact = program.args.iter().map(|arg| arg.as_str()).collect();
    (exact, program.args.iter().map(ToString::to_string).collect())
}

#[test]
fn variables_for_all_programs_reach_each_and_an_entry_wins() {
    let config = good(
        "programs: {env: {KEY: '${file:/etc/closed}', PORT: 80}}\n\
         mcp:\n  \
           plain: {command: a}\n  \
           own: {command: a, env: {PORT: 90, MORE: b}, args: ['${PORT}']}\n  \
           web: {url: 'https://a'}\n\
         local:\n  \
           tool: {description: d, parameters: {type: object}, command: [a], env: {PORT: 91}}\n",
    );
    let key = ("KEY", "hunter22-closed-secret");
    assert_eq!(variables(program(&config, "plain")), [key, ("PORT", "80")]);
    assert_eq!(variables(program(&config, "own")), [key, ("MORE", "b"), ("PORT", "90")]);
    assert_eq!(arguments(program(&config, "own")).0, ["90"]);
    assert_eq!(variables(program(&config, "tool")), [key, ("PORT", "91")]);
    let said = "it is hunter22-closed-secret".to_owned();
    assert_eq!(config.secrets.hide(said), "it is [hidden]", "a secret wherever `env` has them");
    let hidden = &program(&config, "plain").hidden;
    assert!(hidden.contains(&"/etc/closed".into()), "{hidden:?}");
}

#[test]
fn a_missing_secret_for_all_programs_keeps_only_programs_off() {
    let yaml = "upstream: {sandbox: true}\n\
                programs: {env: {KEY: '${file:/none}'}}\n\
                mcp: {a: {command: a}, b: {command: b}, web: {url: 'https://a'}}\n";
    let (config, errors) =
        Config::read(yaml, Path::new("/srv/bridge.yaml"), &environment()).expect("it can be used");
    for (name, is_off) in [("a", true), ("b", true), ("web", false)] {
        let target = &config.backends[name].target;
        assert_eq!(matches!(target, Target::Unresolved(_)), is_off, "{name}");
    }
    let errors = errors.expect("something is missing").to_string();
    assert!(errors.contains("programs.env.KEY") && errors.contains("${file:/none}"), "{errors}");
    // A mistake of the file's own is told once, also without a program.
    for entries in ["", "mcp: {a: {command: a}, b: {command: b}}\n"] {
        let yaml =
            format!("upstream: {{sandbox: true}}\nprograms: {{env: {{KEY: '${{x'}}}}\n{entries}");
        let errors = parse(&yaml).expect_err("no reference");
        assert_eq!(errors.problems.len(), 1, "{errors}");
    }
}

#[test]
fn an_argument_names_a_variable_of_its_entry_first() {
    let config = good(
        "mcp:\n  \
           remote:\n    \
             command: npx\n    \
             args: [mcp-remote, 'https://a/sse', --header, 'Authorization:${AUTH_HEADER}']\n    \
             env: {AUTH_HEADER: 'Bearer hunter22-token', TOKEN: own-value}\n  \
           other: {command: a, args: ['${TOKEN}', '${NONE:-d}', '${EMPTY:-e}', '${env:TOKEN}'], \
                   env: {TOKEN: own-value, EMPTY: ''}}\n",
    );
    let (exact, shown) = arguments(program(&config, "remote"));
    assert_eq!(exact[3], "Authorization:Bearer hunter22-token");
    assert_eq!(shown[3], "Authorization:${AUTH_HEADER}");
    for said in ["Authorization:Bearer hunter22-token", "Bearer hunter22-token", "hunter22-token"] {
        assert!(!config.secrets.hide(said.to_owned()).contains("hunter22"), "{said}");
    }
    let warnings = config.warnings.join("\n");
    assert!(warnings.contains("write $${AUTH_HEADER}"), "{warnings}");
    assert!(!warnings.contains("hunter22"), "{warnings}");
    let (exact, _) = arguments(program(&config, "other"));
    assert_eq!(exact, ["own-value", "d", "e", "0123456789abcdef"]);
}

/// What is not replaced here, the program replaces itself.
#[test]
fn an_argument_with_two_dollars_stays_as_it_is() {
    let config = good("mcp: {a: {command: a, args: ['x:$${NAME}'], env: {NAME: v}}}");
    assert_eq!(arguments(program(&config, "a")).0, ["x:${NAME}"]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn the_fragment_of_a_sockets_address_is_the_path() {
    let config = good(
        "mcp:\n  \
           a: {url: 'unix:///run/p.sock#/mcp/sub'}\n  \
           b: {url: 'unix:/run/p.sock#/a:/b'}\n  \
           c: {url: 'unix:/run/p.sock:/c'}\n",
    );
    for (name, expected) in [
        ("a", "http://localhost/mcp/sub"),
        ("b", "http://localhost/a:/b"),
        ("c", "http://localhost/c"),
    ] {
        let Target::Mcp(Mcp::Http { url, socket, .. }) = &config.backends[name].target else {
            panic!("a server")
        };
        assert_eq!(url.as_str(), expected);
        assert_eq!(socket.as_deref(), Some(Path::new("/run/p.sock")));
    }
    let two = "upstream: {sandbox: true}\nmcp: {a: {url: 'unix:/run/p.sock:/a#b'}}";
    assert!(parse(two).is_err(), "a URL's own fragment is refused, as for any address");
}

#[test]
fn a_command_line_of_windows_is_told_with_what_to_write() {
    for (entry, expected) in [
        ("command: cmd, args: [/c, npx, -y, pkg]", Some("npx -y pkg")),
        ("command: cmd, args: [/C, 'npx -y pkg']", Some("npx -y pkg")),
        ("command: CMD.exe, args: [/d, /s, /c, uvx, pkg]", Some("uvx pkg")),
        (r"command: 'C:\Windows\System32\cmd.exe', args: [/c, npx]", Some("npx")),
        ("command: npx.cmd, args: [-y, 'a b']", Some("npx -y \"a b\"")),
        (r"command: 'C:\node\npx.cmd'", Some("npx")),
        ("command: uvx.exe, args: [pkg]", Some("uvx pkg")),
        ("command: cmd, args: [x]", None),
        ("command: cmd, args: [/c]", None),
        ("command: npx, args: [/c, x]", None),
        ("command: node.js", None),
    ] {
        let config = good(&format!("mcp: {{a: {{{entry}}}}}"));
        let line = program(&config, "a").without_windows();
        assert_eq!(line.as_deref(), expected, "{entry}");
    }
    let config = good("mcp: {a: {command: cmd, args: [/c, npx, -y, pkg]}, b: {command: x.exe}}");
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.contains("mcp.a.command") && warning.contains("write npx -y pkg"), "{warning}");
}

/// Programs get the addresses of proxies, and may print them.
#[test]
fn the_password_of_a_proxy_is_a_secret() {
    let env = Environment::bare()
        .with_var("HOME", "/home/ann")
        .with_var("HTTPS_PROXY", "http://ann:hunter22@proxy:3128")
        .with_var("http_proxy", "bob:hunter33@proxy:3128");
    let yaml = "upstream: {sandbox: true}\nmcp: {a: {command: a}}";
    let config = Config::parse(yaml, Path::new("/srv/bridge.yaml"), &env).expect("a good file");
    for said in ["http://ann:hunter22@proxy:3128", "hunter22", "bob:hunter33", "hunter33"] {
        assert!(!config.secrets.hide(said.to_owned()).contains("hunter"), "{said}");
    }
}
