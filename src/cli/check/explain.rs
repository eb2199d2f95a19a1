//! `mantyx-bridge check --explain TOOL JSON`: what would become of a call, and which rule says so.
//!
//! Must not: ask the daemon, or make the call.

use std::path::Path;
use std::sync::Arc;

use super::stored;
use crate::cli::{Failure, Outcome, failures, print};
use crate::config::error::did_you_mean;
use crate::config::{App, Backend, Config, Environment, find};
use crate::model::catalog_search::{resolved, unresolved};
use crate::model::offer::Source;
use crate::model::rights::permission;
use crate::model::{
    Call, Members, Naming, Offer, Own, Permission, Target, ToolFilter, Verdict, visible,
};

/// Explains a call of `tool`, by its name for the model or as `backend/tool`: for the app `only`,
/// or for each app.
pub(in crate::cli) fn explain(
    path: Option<&Path>,
    [tool, arguments]: [&str; 2],
    only: Option<&str>,
) -> Outcome {
    let env = Environment::of_process();
    let config = Config::load(&find(path, &env)?, &env)?;
    Members::read(arguments)
        .map_err(|error| Failure::Usage(format!("the arguments are no JSON object: {error}")))?;
    let sources: Vec<Source> = stored::sources(&config).into_iter().map(unfiltered).collect();
    let offer = Offer::build(&sources);
    let qualified = tool.split_once('/');
    let named_route = offer.routes.iter().find(|(name, route)| {
        ***name == *tool || qualified == Some((route.backend.as_str(), route.target.tool()))
    });
    let Some((name, route)) = named_route else {
        let routes = offer.routes.iter().filter(|(name, _)| Own::named(name).is_none());
        let mut names: Vec<String> = routes.map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        let meant = did_you_mean(tool, names.iter().map(String::as_str));
        let hint = match meant {
            Some(meant) => format!("Did you mean `{meant}`?"),
            None => format!("There are: {}.", visible::first(&names)),
        };
        return Err(failures::no_tool(tool, hint));
    };
    let mut apps = stored::apps(&config);
    apps.retain(|app| only.is_none_or(|name| app.name.as_str() == name));
    if apps.is_empty() {
        return Err(Failure::Usage(format!("there is no app `{}`", only.unwrap_or_default())));
    }
    let call = Call::by_hand("", name.to_string(), serde_json::from_str(arguments).ok());
    let (call, route) = &resolved(call, route.clone(), |name| offer.route(name));
    let arguments = call.args.get();
    let backend = config.backends.get(&route.backend);
    let rules = backend.map(Backend::rules);
    let verdict = match &route.target {
        Target::Tool { input: Some(input), .. } => input.check(arguments),
        Target::Own(Own::Call) => Verdict::Invalid(unresolved(arguments)),
        _ => Verdict::Valid,
    };
    let lines = apps.iter().map(|App { name, rights, .. }| {
        let (permission, place) = permission(Some(rights), rules, route, arguments, false);
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        match (permission, &verdict) {
            (Permission::Refused(why), _) => format!("{name}: refused: {why}{place}\n"),
            (_, Verdict::Invalid(why)) => format!("{name}: refused: {why}\n"),
            (Permission::Ask, _) => format!("{name}: made once a person has approved it{place}\n"),
            (Permission::Given, _) => format!("{name}: made\n"),
        }
    });
    print(&lines.collect::<String>())
}

/// The backend with all tools that the daemon has seen last, also those that it does not offer.
fn unfiltered(source: Source) -> Source {
    let naming = Naming { tools: ToolFilter::default(), ..Naming::clone(&source.naming) };
    Source { naming: Arc::new(naming), review: Arc::default(), ..source }
}
