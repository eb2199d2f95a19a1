//! The text of the service's unit.
//!
//! Must not: have a secret in it; a unit can be read by every user.

use std::path::Path;

use super::Scope;
use crate::config::{Environment, PASSED_ON};

/// What the service has of the shell in which it was installed. Without PATH, it would find no
/// `npx` of a home directory; without HOME, a service of the machine has no state directory.
const VARIABLES: [&str; 6] =
    ["PATH", "HOME", "LANG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"];

/// A unit that runs `serve` with one bridge.yaml.
pub(super) struct Unit {
    program: String,
    config: String,
    variables: Vec<(&'static str, String)>,
    scope: Scope,
}

impl Unit {
    pub(super) fn new(env: &Environment, config: &Path, scope: Scope) -> Self {
        let own = env.own_program.as_ref().map(|path| path.display().to_string());
        let variable = |name: &'static str| Some((name, env.filled_var(name)?.to_owned()));
        // The address of a proxy may have a password in it.
        let proxies = PASSED_ON
            .iter()
            .copied()
            .filter_map(variable)
            .filter(|(_, value)| !value.contains('@'));
        Self {
            program: own.unwrap_or_else(|| "mantyx-bridge".to_owned()),
            config: config.display().to_string(),
            variables: VARIABLES.into_iter().filter_map(variable).chain(proxies).collect(),
            scope,
        }
    }

    /// The names of the variables that the service has.
    pub(super) fn variables(&self) -> Vec<&str> {
        self.variables.iter().map(|(name, _)| *name).collect()
    }

    pub(super) fn text(&self) -> String {
        let variables: String = self
            .variables
            .iter()
            .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
            .collect();
        // `$` begins a variable in a command, and only there.
        let program = quoted(&self.program).replace('$', "$$");
        let config = quoted(&self.config).replace('$', "$$");
        let target = match self.scope {
            Scope::User => "default.target",
            Scope::Machine => "multi-user.target",
        };
        format!(
            "# Written by `mantyx-bridge service install`; `service uninstall` removes it.\n\
             [Unit]\n\
             Description=mantyx-bridge: MCP servers and A2A agents for MANTYX and MCP clients\n\
             \n\
             [Service]\n\
             Type=notify\n\
             NotifyAccess=main\n\
             ExecStart={program} serve -c {config}\n\
             ExecReload=/bin/kill -HUP $MAINPID\n\
             {variables}\
             Restart=always\n\
             RestartSec=1\n\
             # The configuration is wrong: starting it again does not help.\n\
             RestartPreventExitStatus=2\n\
             WatchdogSec=30\n\
             TimeoutStopSec=90\n\
             # The bridge ends its programs in order.\n\
             KillMode=mixed\n\
             \n\
             [Install]\n\
             WantedBy={target}\n"
        )
    }
}

/// A word as systemd reads it: `%` begins a specifier, and quotes keep spaces.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    //! What systemd would make of a unit.

    use super::*;

    #[test]
    fn unit_keeps_odd_paths_and_no_secret_of_the_environment() {
        let env = Environment::bare()
            .with_var("PATH", "/home/ann/my tools/bin:/usr/bin")
            .with_var("HOME", "/home/ann")
            .with_var("HTTPS_PROXY", "http://ann:pass@proxy:3128")
            .with_var("MANTYX_API_KEY", "mx-secret");
        let unit = Unit::new(&env, Path::new("/home/ann/100% $mine/\"b\".yaml"), Scope::User);
        let text = unit.text();
        for line in [
            "ExecStart=\"mantyx-bridge\" serve -c \"/home/ann/100%% $$mine/\\\"b\\\".yaml\"",
            "Environment=\"PATH=/home/ann/my tools/bin:/usr/bin\"",
            "WantedBy=default.target",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
        assert!(!text.contains("pass@") && !text.contains("mx-secret"), "{text}");
        assert_eq!(unit.variables(), ["PATH", "HOME"]);
    }
}
