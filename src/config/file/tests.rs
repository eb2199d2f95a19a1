//! Whole files, and what is made of them.

mod agents;
mod approve;
mod auth;
mod backend_tls;
mod backends;
mod bounds;
mod contact;
mod example;
mod file_format;
mod good;
mod local;
mod meaning;
mod notify;
mod pending;
mod programs;
mod reading_again;
mod rules;
mod runtime;
mod schema;
mod secrets;
mod signature;
mod tls;
mod trust;
mod unresolved;

use std::path::Path;

use crate::config::{Config, ConfigErrors, Environment};

fn environment() -> Environment {
    Environment::bare()
        .with_var("HOME", "/home/ann")
        .with_var("TOKEN", "0123456789abcdef")
        .with_var("TOKEN2", "fedcba9876543210")
        .with_var("EMPTY", "")
        .with_var("TWO_WORDS", "hunter22 hunter33")
        .with_var("CREDENTIALS_DIRECTORY", "/run/credentials/bridge")
        .with_file("/run/credentials/bridge/name", "program\n", 0o400)
        .with_file("/etc/open", "hunter22-open-secret\n", 0o644)
        .with_file("/etc/closed", "hunter22-closed-secret\n", 0o600)
        .with_file("/proc/net/if_inet6", &format!("{:0>32} 01 80 10 80       lo\n", 1), 0o444)
        .with_own_program("/usr/bin/mantyx-bridge")
}

fn parse(yaml: &str) -> Result<Config, ConfigErrors> {
    Config::parse(yaml, Path::new("/srv/bridge.yaml"), &environment())
}

/// Checks what a person is told about the mistakes in `yaml`.
#[track_caller]
fn check(yaml: &str, expected: &str) {
    let errors = parse(yaml).expect_err("the file has mistakes");
    assert_eq!(errors.to_string().trim_end(), expected);
}
