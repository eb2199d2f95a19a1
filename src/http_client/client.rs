//! A client that sends no request on a connection which its server may be closing at that moment.
//!
//! A server closes idle connections after some time. If a request is on its way at that moment, it
//! gets no answer, and the client cannot know whether the server has read it: a call that must not
//! be made twice is then lost. So the client reuses a connection only while it has been idle for
//! clearly less time than the server waits ([`reuse`]). The caller says which requests may be sent
//! twice.
//!
//! Must not: send a request twice unless the caller has said that it may be.

mod reuse;

use std::sync::{Arc, OnceLock};

use http::Method;
use parking_lot::Mutex;
use reqwest::{ClientBuilder, IntoUrl, RequestBuilder, Response};
use url::Origin;

use reuse::{MILLIS, Reuse};

use crate::model::maps::HashMap;

/// The most origins whose keep-alive is remembered. The configuration and agents' cards name the
/// origins, so more of them are a mistake. A forgotten origin starts again with the shortest time.
const MAX_ORIGINS: usize = 1024;

/// A client with one set of settings; clones share its connections.
#[derive(Clone, derive_more::Debug)]
#[debug("Client(..)")]
pub struct Client(Arc<Shared>);

struct Shared {
    settings: Box<dyn Fn() -> ClientBuilder + Send + Sync>,
    /// The library fixes the longest idle time when a client is built. So there is one client for
    /// each time that [`Reuse`] knows, built when it is first needed.
    pools: [OnceLock<reqwest::Client>; MILLIS.len()],
    /// The keep-alive that each server has announced.
    servers: Mutex<HashMap<Origin, Reuse>>,
    /// That of the others.
    unknown: Reuse,
}

impl Client {
    /// A client whose builders come from `settings`, which is called once for each pool.
    pub(super) fn with_settings(
        settings: impl Fn() -> ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::with(Reuse::UNKNOWN, settings)
    }

    /// A client for a server that may speak HTTP/2. Until its first answer shows that it does not,
    /// an idle connection counts as usable for long: such a server announces the end of one.
    pub(super) fn sharing(settings: impl Fn() -> ClientBuilder + Send + Sync + 'static) -> Self {
        Self::with(Reuse::LONGEST, settings)
    }

    fn with(unknown: Reuse, settings: impl Fn() -> ClientBuilder + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            settings: Box::new(settings),
            pools: Default::default(),
            servers: Mutex::default(),
            unknown,
        }))
    }

    /// A request, for [`Self::send`] or [`Self::send_repeatable`]. If it is sent by its own method,
    /// it uses the pool for servers without a known keep-alive.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.0.pool(self.0.unknown).request(method, url)
    }

    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Sends a request that may have an effect, once. Over HTTP/2, a request is sent again only if
    /// GOAWAY or `REFUSED_STREAM` proves that the server has not processed it.
    pub async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        self.execute(request.build()?).await
    }

    /// Sends a request that only reads. If its connection breaks before the answer, sends it once
    /// more on a fresh one.
    pub async fn send_repeatable(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        let request = request.build()?;
        let again = request.try_clone();
        match (self.execute(request).await, again) {
            (Err(error), Some(again)) if is_broken(&error) => {
                let answer = self.0.pool(Reuse::NEVER).execute(again).await;
                answer.inspect(|response| self.0.heard(response))
            }
            (answer, _) => answer,
        }
    }

    /// [`Self::send_repeatable`] if the request only reads, else [`Self::send`].
    pub async fn send_as(
        &self,
        request: RequestBuilder,
        only_reads: bool,
    ) -> reqwest::Result<Response> {
        if only_reads { self.send_repeatable(request).await } else { self.send(request).await }
    }

    async fn execute(&self, request: reqwest::Request) -> reqwest::Result<Response> {
        #[cfg(test)]
        if let Some(world) = crate::simulated::world() {
            return world.exchange(request).await;
        }
        let reuse = self.0.reuse(&request.url().origin());
        let answer = self.0.pool(reuse).execute(request).await;
        answer.inspect(|response| self.0.heard(response))
    }
}

impl Shared {
    fn pool(&self, reuse: Reuse) -> &reqwest::Client {
        let pool = self.pools.get(reuse.0).expect("there is one for each");
        pool.get_or_init(|| {
            let builder = (self.settings)().pool_idle_timeout(reuse.longest_idle());
            super::build(match reuse {
                Reuse::NEVER => builder.pool_max_idle_per_host(0),
                _ => builder,
            })
        })
    }

    fn reuse(&self, server: &Origin) -> Reuse {
        let servers = self.servers.lock();
        servers.get(server).copied().unwrap_or(self.unknown)
    }

    /// Records the keep-alive that an answer announces.
    fn heard(&self, response: &Response) {
        let Some(said) = Reuse::said(response.version(), response.headers()) else { return };
        let mut servers = self.servers.lock();
        match servers.get_mut(&response.url().origin()) {
            // Several servers with different settings may share one name, and so a pool.
            Some(known) => *known = (*known).min(said),
            None => {
                if servers.len() >= MAX_ORIGINS {
                    servers.clear();
                }
                servers.insert(response.url().origin(), said);
            }
        }
    }
}

/// Whether the connection ended while an answer was due.
fn is_broken(error: &reqwest::Error) -> bool {
    error.is_request() && !error.is_connect() && !error.is_timeout()
}

#[cfg(test)]
mod tests;
