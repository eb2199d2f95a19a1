//! `mantyx-bridge service`: the daemon as a systemd service of this user, or of the machine as
//! root.
//!
//! Must not: replace the unit of the Debian package, or start a service whose configuration has a
//! mistake.

mod unit;

use std::path::{Path, PathBuf, absolute};
use std::{fs, io};

use clap::{Args, Subcommand};

use self::unit::Unit;
use super::commands::{self, which};
use super::edit::agree;
use super::edit::file::OwnFile;
use super::{Failure, Outcome, complain, failures, print};
use crate::config::{Config, Environment, find};

/// The unit's name.
const NAME: &str = "mantyx-bridge.service";
/// Where the Debian package puts its unit.
const PACKAGE_UNITS: [&str; 2] =
    ["/usr/lib/systemd/system/mantyx-bridge.service", "/lib/systemd/system/mantyx-bridge.service"];

/// The arguments of `service`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Has systemd start the daemon now and at each login (as root: at each start of the machine)
    #[command(after_help = "Example: mantyx-bridge service install")]
    Install(Whose),
    /// Stops the daemon, and removes the service
    #[command(after_help = "Example: mantyx-bridge service uninstall")]
    Uninstall(Whose),
    /// Shows whether the service is installed, and whether it runs
    #[command(after_help = "Example: mantyx-bridge service status")]
    Status(Whose),
}

/// Whose service it is.
#[derive(Debug, Clone, Copy, Args)]
struct Whose {
    /// As root: the service of the user root in place of the machine's
    #[arg(long)]
    user: bool,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
}

/// Whom the service runs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// One user, by that user's systemd.
    User,
    Machine,
}

/// A service of one user or of the machine.
struct Service<'e> {
    scope: Scope,
    /// Nothing is asked.
    yes: bool,
    unit_file: PathBuf,
    env: &'e Environment,
}

/// `mantyx-bridge service`.
pub(super) fn service(settings: &Settings, config: Option<&Path>, env: &Environment) -> Outcome {
    match settings.action {
        Action::Install(whose) => Service::new(whose, env)?.install(config),
        Action::Uninstall(whose) => Service::new(whose, env)?.uninstall(),
        Action::Status(whose) => Service::new(whose, env)?.status(),
    }
}

impl<'e> Service<'e> {
    fn new(whose: Whose, env: &'e Environment) -> Outcome<Self> {
        let scope = if whose.user || !rustix::process::geteuid().is_root() {
            Scope::User
        } else {
            Scope::Machine
        };
        let units = match scope {
            Scope::Machine => PathBuf::from("/etc/systemd/system"),
            Scope::User => env
                .users_directory("XDG_CONFIG_HOME", ".config")
                .ok_or_else(|| io::Error::other("HOME is not set"))?
                .join("systemd/user"),
        };
        Ok(Self { scope, yes: whose.yes, unit_file: units.join(NAME), env })
    }

    fn install(&self, config: Option<&Path>) -> Outcome {
        if self.scope == Scope::Machine
            && let Some(file) = PACKAGE_UNITS.iter().find(|file| Path::new(file).exists())
        {
            return Err(failures::package_unit(file));
        }
        let path: PathBuf = absolute(find(config, self.env)?)?.components().collect();
        let unit = Unit::new(self.env, &path, self.scope);
        self.check(&path, &unit)?;
        let text = unit.text();
        let file = OwnFile::read(&self.unit_file, "")?;
        print(&format!("{}:\n{text}\n", self.unit_file.display()))?;
        agree("Install and start this service? ", self.yes)?;
        // Before the file is written: without a session, no service of a user can be started.
        if self.scope == Scope::User {
            self.systemctl(&["show-environment"]).map_err(failures::no_session)?;
        }
        file.replace(&text, false)?;
        self.systemctl(&["daemon-reload"])?;
        self.systemctl(&["enable", NAME])?;
        // It may run with an earlier unit.
        self.systemctl(&["restart", NAME])?;
        match self.scope {
            Scope::User => {
                print(
                    "The service runs, and starts when you log in. `mantyx-bridge status` shows \
                     its backends; its log: journalctl --user -u mantyx-bridge\n",
                )?;
                complain(
                    "note: it stops when you log out, unless you allow it to stay: loginctl \
                     enable-linger",
                );
            }
            Scope::Machine => print(
                "The service runs, and starts with the machine. `mantyx-bridge status` shows its \
                 backends; its log: journalctl -u mantyx-bridge\n",
            )?,
        }
        Ok(())
    }

    /// Refuses a configuration with which the service would not start: systemd gives it none of the
    /// shell's variables.
    fn check(&self, config: &Path, unit: &Unit) -> Outcome {
        Config::load_what_resolves(config, self.env)?;
        let env = self.env.with_only(&unit.variables());
        let Err(errors) = Config::load(config, &env) else { return Ok(()) };
        if Config::load_what_resolves(config, &env).is_ok() {
            complain(&format!(
                "warning: the service has no variables of your shell, and these backends will be \
                 down: keep each value with `mantyx-bridge secret set NAME`, and write \
                 ${{secret:NAME}}\n{errors}"
            ));
            return Ok(());
        }
        Err(failures::variables_of_a_shell(config.display(), errors))
    }

    fn uninstall(&self) -> Outcome {
        let path = self.unit_file.display();
        if fs::symlink_metadata(&self.unit_file).is_err() {
            return print(&format!("There is no {path}: there is nothing to remove.\n"));
        }
        print(&format!("{path} is removed, after the service was stopped.\n"))?;
        agree("Do this? ", self.yes)?;
        self.systemctl(&["disable", "--now", NAME])?;
        fs::remove_file(&self.unit_file)?;
        self.systemctl(&["daemon-reload"])?;
        print("The service is removed. bridge.yaml and the state directory are as they were.\n")
    }

    fn status(&self) -> Outcome {
        let path = self.unit_file.display();
        if fs::symlink_metadata(&self.unit_file).is_err() {
            print(&format!("not installed: there is no {path}\n"))?;
            return Err(Failure::Failed(String::new()));
        }
        // Its exit code says that the service does not run, which is an answer. Where there is no
        // session, there is none.
        let command = self.systemctl_command(&["is-active", NAME])?;
        let output = commands::output(&command)?;
        let state = if output.out.is_empty() { output.success(&command)? } else { output.out };
        print(&format!("installed: {path}\nstate: {state}\n"))?;
        if state == "active" { Ok(()) } else { Err(Failure::Failed(String::new())) }
    }

    fn systemctl(&self, args: &[&str]) -> Outcome<String> {
        commands::run(&self.systemctl_command(args)?)
    }

    fn systemctl_command(&self, args: &[&str]) -> Outcome<Vec<String>> {
        if which("systemctl", self.env).is_none() {
            return Err(failures::no_service_manager("it is not on the PATH"));
        }
        let options: &[&str] = match self.scope {
            Scope::User => &["--user"],
            Scope::Machine => &[],
        };
        let words = [&["systemctl"], options, args].concat();
        Ok(words.into_iter().map(str::to_owned).collect())
    }
}
