//! `mantyx-bridge init`: writes a first bridge.yaml from its arguments, from the user's answers,
//! and from the files that it finds.
//!
//! Must not: overwrite a file unasked, or write a secret into one.

mod ask;
mod draft;
mod probe;

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use clap::Args;

use self::{ask::Asker, draft::Draft, probe::Kind};
use super::{Failure, Outcome, complain, exists, import::Imported, print, write_new};
use crate::config::{Config, Environment};

/// How to go on if the file exists.
const OTHERWISE: &str = "--force overwrites it, --output names another file";

/// The arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "bridge.yaml")]
    output: PathBuf,
    /// The MANTYX workspace that the bridge's own commands use
    #[arg(long)]
    workspace: Option<String>,
    /// The sandbox inside the bridge in place of MANTYX: no account, no network
    #[arg(long)]
    sandbox: bool,
    /// Imports the servers of this mcpServers file; may be repeated
    #[arg(long, value_name = "FILE")]
    import: Vec<PathBuf>,
    /// Adds the A2A agent at this address; may be repeated
    #[arg(long, value_name = "URL")]
    a2a: Vec<String>,
    /// Adds the MCP server at this address; may be repeated
    #[arg(long, value_name = "URL")]
    mcp: Vec<String>,
    /// Asks nothing
    #[arg(long, short)]
    yes: bool,
    /// Overwrites an existing file
    #[arg(long)]
    force: bool,
}

pub(super) async fn init(settings: &Settings, env: &Environment) -> Outcome {
    let output = &settings.output;
    if output.exists() && !settings.force {
        return Err(exists(output, OTHERWISE));
    }
    let on = !settings.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut asker = Asker { input: Box::new(io::stdin().lock()), on };
    let draft = collect(settings, &mut asker, env).await?;
    let text = draft.yaml();
    write_new(output, &text, settings.force, OTHERWISE)?;
    complain(&draft.imported.remarks(env));
    if let Err(errors) = Config::parse(&text, output, &draft.imported.with_variables(env)) {
        complain(&format!("Correct the file by hand:\n{errors}"));
    }
    let file = match output == Path::new("bridge.yaml") {
        true => String::new(),
        false => format!(" -c {}", output.display()),
    };
    print(&format!(
        "{} is written. What comes next:\n  mantyx-bridge check{file}\n  mantyx-bridge \
         doctor{file}\n  mantyx-bridge serve{file}\n",
        output.display()
    ))
}

/// Collects the contents of the file.
async fn collect(
    settings: &Settings,
    asker: &mut Asker,
    env: &Environment,
) -> Result<Draft, Failure> {
    let mut draft = Draft { sandbox: settings.sandbox, ..Draft::default() };
    if let Some(workspace) = &settings.workspace {
        probe::check_workspace(workspace).map_err(Failure::Usage)?;
        draft.workspace = Some(workspace.clone());
    } else if !settings.sandbox {
        draft.workspace = ask_workspace(asker)?;
        draft.sandbox = draft.workspace.is_none();
    }
    for path in &settings.import {
        draft.imported.load(path, env)?;
    }
    for path in usual_places(env) {
        let is_named = settings.import.iter().any(|named| same_file(named, &path));
        let mut found = Imported::default();
        // `init` does not report problems in other programs' files that the user has not named.
        if is_named || found.load(&path, env).is_err() || found.count() == 0 {
            continue;
        }
        let count = found.count();
        let shown = path.display();
        if !asker.on {
            complain(&format!("found {count} MCP servers in {shown}: --import adds them"));
        } else if asker.yes(&format!("Take over {count} MCP servers from {shown}? "), true)? {
            draft.imported.load(&path, env)?;
        }
    }
    for (kind, urls) in [(Kind::Mcp, &settings.mcp), (Kind::A2a, &settings.a2a)] {
        for url in urls {
            add(&mut draft, kind, url, None, env).await?;
        }
        while let Some(url) = asker.text(kind.question())? {
            if let Err(Failure::Usage(why) | Failure::Failed(why)) =
                add(&mut draft, kind, &url, Some(asker), env).await
            {
                complain(&why);
            }
        }
    }
    Ok(draft)
}

fn ask_workspace(asker: &mut Asker) -> Result<Option<String>, Failure> {
    let question = "Your MANTYX workspace (nothing: the sandbox, which needs no account): ";
    while let Some(workspace) = asker.text(question)? {
        match probe::check_workspace(&workspace) {
            Ok(()) => return Ok(Some(workspace)),
            Err(why) => complain(&why),
        }
    }
    Ok(None)
}

/// Probes `url` and adds it, whether or not it responds. If a person can answer, one that does not
/// respond is added only if they agree.
async fn add(
    draft: &mut Draft,
    kind: Kind,
    url: &str,
    asker: Option<&mut Asker>,
    env: &Environment,
) -> Outcome {
    let tried = probe::probe(kind, url, env).await?;
    let shown = shown(url);
    let name = match tried {
        Ok(found) => {
            complain(&format!("{shown} answers: {}", found.what));
            found.name
        }
        Err(why) => {
            complain(&format!("{shown} does not answer: {why}"));
            if let Some(asker) = asker
                && !asker.yes("Add it all the same? ", false)?
            {
                return Ok(());
            }
            kind.name_of_host(url)
        }
    };
    let name = draft.imported.legal_name(&name);
    let url = draft.imported.hide_in(&name, url);
    match kind {
        Kind::Mcp => draft.imported.push_url(name, &url),
        Kind::A2a => {
            draft.imported.reserve(&name);
            draft.agents.push((name, url));
        }
    }
    Ok(())
}

/// `url` without the parts that may be secret. It cannot hold a user or a password.
fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// The files where other programs keep their MCP servers on Linux.
fn usual_places(env: &Environment) -> Vec<PathBuf> {
    const OF_A_USER: [&str; 4] = [
        ".claude.json",
        ".config/Claude/claude_desktop_config.json",
        ".cursor/mcp.json",
        ".config/Code/User/mcp.json",
    ];
    const OF_A_PROJECT: [&str; 3] = [".cursor/mcp.json", ".vscode/mcp.json", ".mcp.json"];
    let home = env.filled_var("HOME").map(Path::new);
    let users = home.into_iter().flat_map(|home| OF_A_USER.map(|place| home.join(place)));
    let places = users.chain(OF_A_PROJECT.map(PathBuf::from)).filter(|path| path.is_file());
    // In the home directory, a user's file and a project's file can be the same.
    let mut known: Vec<PathBuf> = Vec::new();
    for place in places {
        if !known.iter().any(|known| same_file(known, &place)) {
            known.push(place);
        }
    }
    known
}

fn same_file(a: &Path, b: &Path) -> bool {
    fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

#[cfg(test)]
mod tests;
