//! The backends that an MCP client has chosen of those that its app may use: by the header
//! `X-Bridge-Backends`, or by `backends` in the query of `/mcp`.
//!
//! Must not: give a client more than its app may use, or decide about a call (`calls` does).

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::json;
use url::form_urlencoded;

use super::message::{Replied, RpcError};
use super::{Api, App, proxy, query};
use crate::model::mcp::error_code;
use crate::model::spec::InjectError;
use crate::model::{BackendName, FeatureView, Offer, Rights};

/// The parameter of `/mcp` that names backends.
const PARAMETER: &str = "backends";
/// The most rights that are kept for selections.
const MAX_NARROWED: usize = 64;

/// The names of backends in a request, whether or not there are such backends.
pub(super) type Names = BTreeSet<String>;

/// The backends of a client. The default is all that its app may use.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    /// What the client has written.
    names: Option<Names>,
    backends: Option<Arc<BTreeSet<BackendName>>>,
}

/// The names that a request has; `None` if it leaves the choice to the bridge.
///
/// # Errors
///
/// The header and the query name different ones, or the query has something else.
pub(super) fn requested(headers: &HeaderMap, uri: &Uri) -> Replied<Option<Names>> {
    if let Some(why) = query::flaw(uri.query(), &[PARAMETER]) {
        return Err(RpcError::invalid_request(why));
    }
    let header = headers.get_all(proxy::SELECT).iter();
    let headers: Vec<Names> =
        header.map(|list| names(&String::from_utf8_lossy(list.as_bytes()))).collect();
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let parameters = pairs.filter(|(key, _)| key == PARAMETER).map(|(_, list)| names(&list));
    let mut all = headers.into_iter().chain(parameters);
    let first = all.next();
    if all.any(|other| Some(&other) != first.as_ref()) {
        let why = "The request names two selections of backends: send one, as `X-Bridge-Backends` \
                   or as `backends` in the query.";
        return Err(RpcError::invalid_request(why));
    }
    Ok(first)
}

fn names(list: &str) -> Names {
    proxy::names(list).into_iter().collect()
}

impl Selection {
    /// The backends of `names` in `offer`, which is what the app may use.
    ///
    /// # Errors
    ///
    /// The app has no such backend; the error names those that it has.
    pub(super) fn new(names: Option<Names>, offer: &Offer) -> Replied<Self> {
        let Some(names) = names else { return Ok(Self::default()) };
        let mut backends = BTreeSet::new();
        for name in &names {
            match offer.backends().find(|(backend, _)| backend.as_str() == name) {
                Some((backend, _)) => backends.insert(backend.clone()),
                None => return Err(unknown(name.clone(), offer)),
            };
        }
        Ok(Self { names: Some(names), backends: Some(Arc::new(backends)) })
    }

    /// Refuses a request of the session with this selection that names another one: the client
    /// would see other tools than it was told of, and no server can say so.
    pub(super) fn admit(&self, names: Option<&Names>) -> Replied<()> {
        if names.is_none() || names == self.names.as_ref() {
            return Ok(());
        }
        let why = "The session was begun with another selection of backends. Send the same one, or \
                   none, or begin another session with `initialize`.";
        Err(RpcError::invalid_request(why))
    }
}

fn unknown(name: String, offer: &Offer) -> RpcError {
    let candidates: Vec<String> =
        offer.backends().map(|(backend, _)| backend.to_string()).collect();
    let list = if candidates.is_empty() { "none".to_owned() } else { candidates.join(", ") };
    let data = json!({ "candidates": candidates }).to_string();
    let why = InjectError::UnknownBackend { name, candidates };
    let message = format!("{why}. It may use: {list}.");
    let error = RpcError::new(StatusCode::BAD_REQUEST, error_code::INVALID_PARAMS, message);
    RpcError { data: Some(data), ..error }
}

/// The rights of apps within selections. Each is made once, as the view of an offer is kept for as
/// long as the rights that it was made for: otherwise each request would make it again.
#[derive(Debug, Default)]
pub(super) struct NarrowedRights(Mutex<Vec<Narrowed>>);

#[derive(Debug)]
struct Narrowed {
    of_app: Weak<Rights>,
    backends: Arc<BTreeSet<BackendName>>,
    rights: Arc<Rights>,
}

impl NarrowedRights {
    fn get(&self, of_app: &Arc<Rights>, backends: &Arc<BTreeSet<BackendName>>) -> Arc<Rights> {
        let mut all = self.0.lock();
        all.retain(|one| one.of_app.strong_count() > 0);
        let known = all.iter().find(|one| {
            Weak::ptr_eq(&one.of_app, &Arc::downgrade(of_app)) && one.backends == *backends
        });
        if let Some(narrowed) = known {
            return Arc::clone(&narrowed.rights);
        }
        if all.len() >= MAX_NARROWED {
            all.remove(0);
        }
        let rights = Arc::new(of_app.within(backends));
        let (of_app, backends) = (Arc::downgrade(of_app), Arc::clone(backends));
        all.push(Narrowed { of_app, backends, rights: Arc::clone(&rights) });
        rights
    }
}

impl Api {
    /// What `app` may use within `selection`, by its present rights; `None` if the app was removed.
    fn rights_within(&self, app: &App, selection: &Selection) -> Option<Arc<Rights>> {
        let rights = if app.is_operator() {
            Arc::clone(&app.rights)
        } else {
            Arc::clone(&self.runs.calls.app(&app.name)?.rights)
        };
        match &selection.backends {
            Some(backends) => Some(self.mcp_sessions.narrowed.get(&rights, backends)),
            None => Some(rights),
        }
    }

    /// The rights that a search of a client's is limited to; `None` where its app's count.
    pub(super) fn search_rights(&self, app: &App, selection: &Selection) -> Option<Arc<Rights>> {
        selection.backends.as_ref()?;
        self.rights_within(app, selection)
    }

    /// The tools that `app` may use within `selection`.
    pub(super) fn offer_within(&self, app: &App, selection: &Selection) -> Arc<Offer> {
        match self.rights_within(app, selection) {
            Some(rights) => self.backends().registry.offer().seen_by(&rights),
            None => Arc::default(),
        }
    }

    /// The resources and prompts that `app` may use within `selection`.
    pub(super) fn features_within(&self, app: &App, selection: &Selection) -> Arc<FeatureView> {
        let no_rights =
            || Arc::new(Rights { backends: Some(BTreeSet::new()), ..Rights::default() });
        let rights = self.rights_within(app, selection).unwrap_or_else(no_rights);
        self.backends().registry.features(&rights)
    }
}

#[cfg(test)]
mod tests {
    //! What a request names, and what becomes of it.

    use super::*;
    use crate::model::offer::tests::server;

    fn names_in(headers: &[&str], uri: &str) -> Replied<Option<Names>> {
        let mut map = HeaderMap::new();
        for list in headers {
            map.append(proxy::SELECT, list.parse().unwrap());
        }
        requested(&map, &uri.parse().unwrap())
    }

    fn backend(name: &str) -> BackendName {
        BackendName::parse(name).unwrap()
    }

    fn set(list: &[&str]) -> Option<Names> {
        Some(list.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn selection_is_read_from_the_header_or_the_query() {
        assert_eq!(names_in(&[], "/mcp"), Ok(None));
        assert_eq!(names_in(&["fs, hr"], "/mcp"), Ok(set(&["fs", "hr"])));
        assert_eq!(names_in(&[], "/mcp?backends=fs%2Chr"), Ok(set(&["fs", "hr"])));
        assert_eq!(names_in(&["hr,fs"], "/mcp?backends=fs,hr"), Ok(set(&["fs", "hr"])));
        assert_eq!(names_in(&["none"], "/mcp"), Ok(set(&[])));
        for (headers, uri) in [
            (&["fs"][..], "/mcp?backends=hr"),
            (&["fs", "hr"], "/mcp"),
            (&[], "/mcp?backends=a&backends=b"),
            (&[], "/mcp?Backends=a"),
            (&["fs"], "/mcp?x=1"),
        ] {
            let error = names_in(headers, uri).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{headers:?} {uri}");
        }
    }

    #[test]
    fn selection_of_an_unknown_backend_is_refused_with_the_names_of_all() {
        let offer = Offer::build(&[server("fs", &[]), server("hr", &[])]);
        assert!(Selection::new(set(&["fs"]), &offer).is_ok());
        let error = Selection::new(set(&["fs", "zz"]), &offer).unwrap_err();
        assert!(error.message.contains("\"zz\"") && error.message.contains("fs, hr"), "{error:?}");
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn session_takes_its_own_selection_alone() {
        let offer = Offer::build(&[server("fs", &[]), server("hr", &[])]);
        let chosen = Selection::new(set(&["fs"]), &offer).unwrap();
        assert!(chosen.admit(None).is_ok() && chosen.admit(set(&["fs"]).as_ref()).is_ok());
        assert!(chosen.admit(set(&["fs", "hr"]).as_ref()).is_err());
        let all = Selection::default();
        assert!(all.admit(None).is_ok() && all.admit(set(&["fs"]).as_ref()).is_err());
    }

    #[test]
    fn rights_within_a_selection_are_made_once_and_never_more_than_the_app_has() {
        let narrowed = NarrowedRights::default();
        let of_app =
            Arc::new(Rights { backends: Some([backend("fs")].into()), ..Rights::default() });
        let both = Arc::new(BTreeSet::from([backend("fs"), backend("hr")]));
        let rights = narrowed.get(&of_app, &both);
        assert!(rights.include(&backend("fs")) && !rights.include(&backend("hr")));
        assert!(Arc::ptr_eq(&rights, &narrowed.get(&of_app, &both)));
        drop(of_app);
        let all = Arc::new(Rights::default());
        let of_all = narrowed.get(&all, &both);
        assert!(of_all.include(&backend("hr")) && !of_all.include(&backend("ci")));
        assert_eq!(narrowed.0.lock().len(), 1, "those of an app that is gone are dropped");
        for n in 0..2 * MAX_NARROWED {
            narrowed.get(&all, &Arc::new([backend(&format!("b{n}"))].into()));
        }
        assert_eq!(narrowed.0.lock().len(), MAX_NARROWED);
    }
}
