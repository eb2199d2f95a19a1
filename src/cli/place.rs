//! Which daemon a command asks, by its options, and the command line that names it.
//!
//! Must not: connect to it.

use std::path::PathBuf;

use secrecy::SecretString;

use super::client::Place;
use super::{Failure, Global, Outcome, commands, complain, failures};
use crate::config::{Contact, Environment, find};

/// A hint for a command that changes something, while the file has mistakes.
const NAME_IT: &str = "\nTo use the daemon that runs all the same: --url";
/// A hint for a command that needs the daemon, while the file has mistakes.
const UNTIL_THEN: &str = "\nA running daemon keeps its earlier configuration.";

/// The token for `--url`.
fn token(global: &Global, url: &str, env: &Environment) -> Outcome<Option<SecretString>> {
    let Some(file) = &global.token_file else {
        let token = env.filled_var("MANTYX_BRIDGE_TOKEN").map(SecretString::from);
        // On a socket, the user may be known.
        if token.is_none() && !url.starts_with("unix:") {
            return Err(failures::no_token_given());
        }
        return Ok(token);
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    Ok(Some(text.trim().into()))
}

/// Refuses an address by which no daemon can be asked, without repeating a password in it.
fn check_url(text: &str) -> Outcome {
    let url = url::Url::parse(text).map_err(|_bad| failures::bad_url())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(failures::user_in_url());
    }
    if !matches!(url.scheme(), "http" | "https" | "unix") {
        return Err(failures::bad_url());
    }
    Ok(())
}

/// Where the daemon is, for `app` or the app that may use most. A command that `changes` something
/// is refused if the daemon has to be found without the file that is there, and so is an app beside
/// an address, which has no configuration.
pub(super) fn place_of(
    global: &Global,
    env: &Environment,
    app: Option<&str>,
    changes: bool,
) -> Outcome<Place> {
    if let Some(url) = &global.url {
        check_url(url)?;
        if app.is_some() {
            return Err(failures::app_with_url());
        }
        let token = token(global, url, env)?;
        return Ok(Place::Given { url: url.clone(), token });
    }
    let config = global.config.as_deref();
    let errors = match find(config, env).and_then(|file| Contact::load(&file, env, app)) {
        Ok(contact) => return Ok(Place::Configured(Box::new(contact))),
        Err(errors) => errors,
    };
    // A daemon keeps running while its file is being edited.
    let names_file = config.is_some() || env.filled_var("MANTYX_BRIDGE_CONFIG").is_some();
    let daemon = if !names_file && app.is_none() { Place::noted(env)? } else { None };
    let Some(daemon) = daemon else {
        let exists = find(config, env).is_ok_and(|file| file.exists());
        let hint = if exists { UNTIL_THEN } else { "" };
        return Err(Failure::Usage(format!("{errors}{hint}")));
    };
    if let (Ok(_), Place::Noted { url, .. }) = (find(config, env), &daemon) {
        // The file may be another daemon's than the one that is found without it.
        if changes {
            return Err(Failure::Usage(format!("{errors}{NAME_IT} {url}")));
        }
        complain(&format!("note: {}; asking the daemon at {url}", errors.summary()));
    }
    Ok(daemon)
}

/// The command line of this daemon, as a person types it elsewhere: the program, with the options
/// that name the daemon.
pub(super) fn program(global: &Global, env: &Environment) -> String {
    let mut words = vec!["mantyx-bridge".to_owned()];
    let from_env = env.filled_var("MANTYX_BRIDGE_CONFIG").map(PathBuf::from);
    let config = global.config.clone().or(from_env);
    let files = [("-c", config.as_ref()), ("--token-file", global.token_file.as_ref())];
    for (option, file) in files {
        if let Some(file) = file {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            words.extend([option.to_owned(), path.display().to_string()]);
        }
    }
    if let Some(url) = &global.url {
        words.extend(["--url".to_owned(), url.clone()]);
    }
    commands::line(&words)
}
