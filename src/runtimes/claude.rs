//! A self-hosted environment of Claude Managed Agents: claims its work, keeps each claim by
//! heartbeats, and answers the custom tools of the sessions behind it.
//!
//! An item of work stands for a session. Its claim ends if its heartbeats fail for longer than they
//! hold; another worker then gets the session, and with it every call without a result. So a call
//! that the bridge has begun is known by its id, and is never made again.
//!
//! Must not: answer a tool that the bridge does not have; its owner may.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_PAD_INDIFFERENT;
use futures_util::future::OptionFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use super::hsafa::read;
use super::link::{Link, LinkError, path};
use super::{Runtime, RuntimeCall};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::http_client;
use crate::model::maps::HashSet;
use crate::model::runtime_call::{CLAUDE, SessionNews, THREAD, is_id};
use crate::model::{Call, Members, string_member};
use crate::random;

/// The longest that the service lets a poll wait, in milliseconds.
const BLOCK_MS: &str = "999";
/// The most sessions that are served at once.
const SESSIONS: usize = 64;
/// How long a session is kept after its agent has ended its turn.
const IDLE: Duration = Duration::from_secs(60);
/// How long a claim holds, before the service has said it.
const TTL: Duration = Duration::from_secs(90);
/// The longest that a claim holds, whatever the service says.
const LONGEST_TTL: u64 = 60 * 60;
/// The longest time between two heartbeats.
const BEAT: Duration = Duration::from_secs(30);
/// The most pages of a session's history that are read.
const MAX_PAGES: usize = 1_000;
/// The most that the calls of a session and the ids of what has ended may take while its history is
/// read, in bytes; and what each of them takes in addition to its texts.
const MAX_OPEN: usize = 16 << 20;
const ENTRY: usize = 64;

/// An item of work.
#[derive(Debug, Deserialize)]
struct WorkItem {
    id: String,
    data: WorkData,
    secret: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WorkData {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The service's answer to a heartbeat.
#[derive(Debug, Deserialize)]
struct Beat {
    last_heartbeat: String,
    lease_extended: bool,
    state: String,
    ttl_seconds: u64,
}

/// Why the bridge ends its work on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The session needs no worker for now, or no more.
    Done,
    /// The bridge cannot serve the item, or another worker has it: the claim runs out.
    Lost,
    /// The daemon stops: the claim runs out, and the next process gets the item.
    Stopped,
}

/// A claimed item, and the session behind it.
struct Claim {
    runtime: Arc<Runtime>,
    link: Arc<Link>,
    environment: String,
    work: WorkItem,
    /// The headers with the credential of the item or, without one, of the environment.
    headers: HeaderMap,
    /// The path of the session's events, which takes answers.
    events: String,
}

/// Polls for items of work, and serves each in a task of the daemon. It polls only while another
/// session can be served: an item that this worker has got and does not serve would wait until its
/// claim ends.
pub(super) async fn listen(
    runtime: &Arc<Runtime>,
    link: &Arc<Link>,
    environment: &str,
    stop: &CancellationToken,
) -> Result<Infallible, LinkError> {
    let sessions = Arc::new(Semaphore::new(SESSIONS));
    let worker = HeaderValue::try_from(format!("mantyx-bridge-{}", random::uuid()));
    let mut headers = link.headers.clone();
    headers.insert("anthropic-worker-id", worker.expect("an id is ASCII"));
    let path = ["v1", "environments", environment, "work", "poll"];
    let url = url(link, &path, &[("block_ms", BLOCK_MS)]);
    loop {
        let place = Arc::clone(&sessions).acquire_owned().await.expect("it is never closed");
        let request = link.request(Method::GET, url.clone(), &headers);
        let answer = link.ask(request).await?;
        runtime.note_ready(link);
        let work = parse::<Option<WorkItem>>(if answer.is_empty() { b"null" } else { &answer })?;
        if let Some(work) = work.filter(|work| is_id(&work.id) && is_id(&work.data.id)) {
            let claim = Claim::new(runtime, link, environment, work);
            if claim.acknowledge().await {
                let stop = stop.clone();
                runtime.runs.calls.spawn(&runtime.name, async move {
                    claim.serve(&stop).await;
                    drop(place);
                });
                continue;
            }
        }
        sleep(Duration::from_secs(1) + Duration::from_secs(2).mul_f64(random::share())).await;
    }
}

/// Lists the work, which needs the credential and changes nothing.
pub(super) async fn list(link: &Link, environment: &str) -> Result<(), LinkError> {
    let url = url(link, &["v1", "environments", environment, "work"], &[("limit", "1")]);
    link.ask(link.request(Method::GET, url, &link.headers)).await.map(drop)
}

/// A URL of the API.
fn url(link: &Link, segments: &[&str], query: &[(&str, &str)]) -> Url {
    let mut url = link.url(segments.iter().copied());
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// The headers of the API, with those that show a credential.
pub(super) fn headers(credential: &HeaderMap) -> HeaderMap {
    let mut headers = credential.clone();
    headers.insert("anthropic-version", HeaderValue::from_static("2026-10-21"));
    headers.insert("anthropic-beta", HeaderValue::from_static("managed-agents-2026-04-01"));
    headers
}

/// About how many bytes of memory a call takes while the history is read.
fn size(call: &Call) -> usize {
    4 * ENTRY + call.args.get().len() + call.name.len()
}

/// The thread of an event.
fn thread(event: &str) -> String {
    string_member(event, THREAD).unwrap_or_default()
}

fn parse<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Result<T, LinkError> {
    // serde's own text may repeat a part of the answer.
    serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        LinkError::Unreadable(format!("line {line}, column {column} is not as in its API"))
    })
}

/// The token in the `secret` of an item, which replaces the environment's key for its session: a
/// base64 text with an object.
fn session_token(secret: &str) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Secret {
        sessions_token: String,
    }
    let text = URL_SAFE_PAD_INDIFFERENT.decode(secret).ok()?;
    let secret: Secret = serde_json::from_slice(&text).ok()?;
    let token = Some(secret.sessions_token).filter(|token| !token.is_empty())?;
    http_client::sensitive(&format!("Bearer {token}")).ok()
}

impl Claim {
    fn new(runtime: &Arc<Runtime>, link: &Arc<Link>, environment: &str, work: WorkItem) -> Self {
        let mut headers = link.headers.clone();
        let events = path(["v1", "sessions", &work.data.id, "events"]);
        let token = work.secret.as_deref().map(session_token);
        if let Some(None) = token {
            warn!(
                runtime = %runtime.name, work = work.id,
                "the item's secret has no token; using the environment's key"
            );
        }
        if let Some(token) = token.flatten() {
            headers.insert(header::AUTHORIZATION, token.clone());
            // Answers of earlier claims take it as well.
            runtime.authorize(&events, token);
        }
        let (runtime, link) = (Arc::clone(runtime), Arc::clone(link));
        Self { runtime, link, environment: environment.to_owned(), work, headers, events }
    }

    /// Whether the item is the bridge's now.
    async fn acknowledge(&self) -> bool {
        let Self { runtime, work, .. } = self;
        let acknowledged = self.of_work("ack", &[], "{}").await.inspect_err(|error| {
            // Without it, the service gives the item to another worker.
            warn!(runtime = %runtime.name, work = work.id, %error, "the item was not claimed");
        });
        acknowledged.is_ok()
    }

    /// Serves the session until it needs no worker, the claim is lost, or the daemon stops.
    async fn serve(&self, stop: &CancellationToken) {
        let Self { runtime, work, .. } = self;
        let (id, session) = (&work.id, &work.data.id);
        info!(runtime = %runtime.name, work = id, session, "claimed");
        let end = if work.data.kind == "session" {
            tokio::select! {
                () = stop.cancelled() => End::Stopped,
                end = self.keep() => end,
                end = self.answer() => end,
            }
        } else {
            End::Done
        };
        info!(runtime = %runtime.name, work = id, session, ?end, "the item is left");
        if end != End::Done {
            return;
        }
        if let Err(error) = self.of_work("stop", &[], r#"{"force":true}"#).await
            && error.status() != Some(StatusCode::CONFLICT)
        {
            warn!(runtime = %runtime.name, work = id, %error, "the item was not stopped");
        }
    }

    /// Sends a request about the item.
    async fn of_work(
        &self,
        what: &str,
        query: &[(&str, &str)],
        body: &'static str,
    ) -> Result<bytes::Bytes, LinkError> {
        let path = ["v1", "environments", &self.environment, "work", &self.work.id, what];
        let link = &self.link;
        let request = link.request(Method::POST, url(link, &path, query), &self.headers);
        link.ask(request.header(header::CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Keeps the claim by heartbeats; returns when it has ended.
    ///
    /// Each heartbeat names the one before. If another worker has got the item meanwhile, the
    /// service refuses it, and this one leaves the session: two workers would answer the same
    /// calls. A heartbeat that fails is no loss yet, as the claim holds until its time is over.
    async fn keep(&self) -> End {
        let mut last = "NO_HEARTBEAT".to_owned();
        let (mut ttl, mut interval) = (TTL, BEAT);
        let mut lasts = Instant::now() + ttl;
        loop {
            let query = [("expected_last_heartbeat", last.as_str())];
            let response = match timeout(interval, self.of_work("heartbeat", &query, "{}")).await {
                Ok(response) => response,
                Err(_elapsed) => Err(LinkError::Silent),
            };
            match response.and_then(|answer| parse::<Beat>(&answer)) {
                Ok(beat) => {
                    if matches!(beat.state.as_str(), "stopping" | "stopped") || !beat.lease_extended
                    {
                        return End::Done;
                    }
                    if beat.ttl_seconds > 0 {
                        ttl = Duration::from_secs(beat.ttl_seconds.min(LONGEST_TTL));
                        interval = (ttl / 2).clamp(Duration::from_secs(1), BEAT);
                    }
                    last = beat.last_heartbeat;
                    lasts = Instant::now() + ttl;
                }
                Err(error) => {
                    warn!(runtime = %self.runtime.name, work = self.work.id, %error, "no heartbeat");
                    if error.status() == Some(StatusCode::FORBIDDEN)
                        || self.link.refuses_for_good(&error)
                        || Instant::now() >= lasts
                    {
                        return End::Lost;
                    }
                }
            }
            sleep(interval).await;
        }
    }

    /// Answers the calls of the session, and connects again after each failure.
    async fn answer(&self) -> End {
        let mut backoff = Backoff::for_connections();
        let mut idle = None;
        loop {
            let error = match self.read(&mut idle).await {
                Ok(end) => return end,
                Err(error) => error,
            };
            let session = &self.work.data.id;
            warn!(runtime = %self.runtime.name, session, %error, "the session's stream broke");
            match error.status() {
                Some(StatusCode::NOT_FOUND | StatusCode::GONE) => return End::Done,
                Some(StatusCode::FORBIDDEN) => return End::Lost,
                _ if self.link.refuses_for_good(&error) => return End::Lost,
                _ => sleep(backoff.next_wait().max(error.retry_after())).await,
            }
        }
    }

    /// Reads the session's past, for the calls that have no result yet, and then its stream. If its
    /// agent has nothing to do, the session is left at `idle`.
    async fn read(&self, idle: &mut Option<Instant>) -> Result<End, LinkError> {
        let Self { runtime, link, .. } = self;
        let path = ["v1", "sessions", &self.work.data.id, "events", "stream"];
        // Opened first, so that no event falls between the two.
        let mut events = link.open(url(link, &path, &[]), &self.headers).await?;
        let mut threads_over = HashSet::default();
        match self.past(&mut threads_over).await? {
            SessionNews::Over => return Ok(End::Done),
            SessionNews::Idle => {
                idle.get_or_insert_with(|| Instant::now() + IDLE);
            }
            _ => *idle = None,
        }
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                Some(()) = OptionFuture::from(idle.map(sleep_until)) => return Ok(End::Done),
            };
            match SessionNews::read(&event) {
                SessionNews::Over => return Ok(End::Done),
                SessionNews::Idle => *idle = Some(Instant::now() + IDLE),
                SessionNews::ThreadOver(id) if threads_over.len() < MAX_PAGES => {
                    threads_over.insert(id);
                }
                SessionNews::ThreadOver(_) | SessionNews::Neutral => (),
                SessionNews::Works | SessionNews::Answered(_) => *idle = None,
            }
            if let Some(call) = read(runtime, CLAUDE.read(&event))
                && !threads_over.contains(&thread(&event))
            {
                self.take(call).await;
            }
        }
    }

    /// Takes the calls of the session's history that have no result and may get one. Returns what
    /// its last event says.
    async fn past(&self, threads_over: &mut HashSet<String>) -> Result<SessionNews, LinkError> {
        let Self { runtime, link, .. } = self;
        let path = ["v1", "sessions", &self.work.data.id, "events"];
        let request = link.request(Method::GET, url(link, &path[..3], &[]), &self.headers);
        let session = link.ask(request).await?;
        let session_text = std::str::from_utf8(&session).unwrap_or_default();
        // An archived session need not say so in its history.
        if string_member(session_text, "status").as_deref() == Some("terminated") {
            return Ok(SessionNews::Over);
        }
        let offer = runtime.offer();
        let mut calls: Vec<(Call, String)> = Vec::new();
        let mut memory = Budget::of_process().hold_for(Some(runtime.name.clone()));
        let mut results = HashSet::default();
        let mut last = SessionNews::Works;
        let mut page = String::new();
        for _ in 0..MAX_PAGES {
            let mut query = vec![("limit", "1000")];
            if !page.is_empty() {
                query.push(("page", &page));
            }
            let request = link.request(Method::GET, url(link, &path, &query), &self.headers);
            let answer = link.ask(request).await?;
            let text = std::str::from_utf8(&answer).unwrap_or_default();
            let Ok(members) = Members::read(text) else {
                return Err(LinkError::Unreadable("it is no object".to_owned()));
            };
            for event in members.array("data").unwrap_or_default() {
                match SessionNews::read(event.get()) {
                    SessionNews::Answered(id) => drop(results.insert(id)),
                    SessionNews::ThreadOver(id) => drop(threads_over.insert(id)),
                    SessionNews::Over => return Ok(SessionNews::Over),
                    SessionNews::Neutral => (),
                    news => last = news,
                }
                if let Some(call) = read(runtime, CLAUDE.read(event.get()))
                    && offer.route(&call.name).is_some()
                {
                    calls.push((call, thread(event.get())));
                }
            }
            calls.retain(|(call, _)| !results.contains(call.tool_use.as_str()));
            let ids = results.iter().chain(&*threads_over).map(|id| ENTRY + id.len());
            let size = ids.sum::<usize>() + calls.iter().map(|(call, _)| size(call)).sum::<usize>();
            if size > MAX_OPEN {
                return Err(LinkError::Unreadable("its history is too long".to_owned()));
            }
            memory.follow(size);
            match members.string("next_page") {
                Some(next) if next != page => page = next,
                _ => break,
            }
        }
        // Each call that is taken pays for its arguments.
        drop(memory);
        for (call, thread) in calls {
            if !threads_over.contains(&thread) {
                self.take(call).await;
            }
        }
        Ok(last)
    }

    async fn take(&self, call: Call) {
        let Self { runtime, link, work, events, .. } = self;
        let Some(route) = runtime.offer().route(&call.name).cloned() else { return };
        let request = RuntimeCall { call, run: work.data.id.clone(), post_to: events.clone() };
        runtime.take(&link.wire, request, Some(route)).await;
    }
}
