//! A scripted MANTYX: sends each run's stream byte for byte as a [`Script`] says, breaks where it
//! says, and records every request.
//!
//! The bridge's own sandbox serves the tests that need a runtime; this one serves those that need
//! exact bytes and faults. Must not: be clever. What a test does not script is accepted.

mod load;
mod results;
mod serve;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::Value;
use tokio::{net::TcpListener, sync::Notify, task::JoinSet, time::Instant};

use crate::{frames::Script, http::read_json, wait};

pub(crate) use results::Delivery;

/// The credential that the bridge must show, and that no app may ever see.
pub(crate) const CREDENTIAL: &str = "mantyx_upstream_canary_5f1e";

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn value(&self) -> Value {
        read_json(&self.body).unwrap_or(Value::Null)
    }
}

/// How the POST of a tool result is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    Status(u16),
    /// 429 with this many seconds to wait.
    TooMany(u64),
    /// The connection is closed after the request was read, with no answer.
    Reset,
    /// The result is taken, and the connection is closed without an answer.
    TakenAndReset,
}

/// A rate limit of result posts: a budget for windows that begin with a post.
#[derive(Debug)]
struct Meter {
    limit: u32,
    window: Duration,
    used: u32,
    end: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// Writes the script of a run for which none was given.
    author: Option<load::Author>,
    /// `None`: nobody counts.
    meter: Option<Meter>,
    recorded: Vec<Recorded>,
    scripts: VecDeque<Script>,
    runs: HashMap<String, Run>,
    /// Answers still to be given, by toolUseId; then 200.
    replies: HashMap<String, VecDeque<Reply>>,
    /// What stands in a script for what the test only learns later, and that.
    fills: Vec<(String, String)>,
    /// Tool uses that are answered, and names that the test released.
    released: HashSet<String>,
    /// Those who wait for a name.
    waiting: HashMap<String, Arc<Notify>>,
    canned: HashMap<String, Vec<u8>>,
    /// The credentials that are let in; `None`: all are.
    let_in: Option<Vec<String>>,
    /// Requests, by method and the end of their path, whose answer waits until a name is released.
    held: Vec<(&'static str, &'static str, String)>,
    /// Every POST of a result, by toolUseId.
    deliveries: HashMap<String, Vec<Delivery>>,
    ids: usize,
    /// What every request for a run's stream is answered with; `None`: the stream.
    refusal: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Run {
    script: Script,
    connections: usize,
    /// The highest seq that was sent whole.
    sent: u64,
    /// Whether a stream was sent to its end.
    ended: bool,
    /// When the event of a seq was sent first.
    sent_at: HashMap<u64, Instant>,
}

impl Run {
    fn new(script: Script) -> Self {
        Self { script, connections: 0, sent: 0, ended: false, sent_at: HashMap::new() }
    }
}

impl State {
    fn release(&mut self, name: &str) {
        self.released.insert(name.to_owned());
        if let Some(waiting) = self.waiting.remove(name) {
            waiting.notify_waiters();
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the lock")
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state())
    }

    /// Waits until `name` is released. Only those who wait for it are woken.
    async fn released(&self, name: &str) {
        let waiting = {
            let mut state = self.state();
            if state.released.contains(name) {
                return;
            }
            Arc::clone(state.waiting.entry(name.to_owned()).or_default()).notified_owned()
        };
        waiting.await;
    }
}

/// A running scripted MANTYX; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Mantyx {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Mantyx {
    /// Listens on a free port.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared { state: Mutex::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::accept(listener, Arc::clone(&shared)));
        Self { addr, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The `upstream` part of a configuration.
    pub(crate) fn upstream(&self) -> String {
        format!(
            "upstream: {{base_url: \"{}\", workspace: acme, credential: {CREDENTIAL}}}\n",
            self.url()
        )
    }

    /// The next submitted run will send this.
    pub(crate) fn script(&self, script: Script) {
        self.shared.change(|state| state.scripts.push_back(script));
    }

    /// [`Self::script`], in place of what was meant for submissions that never came.
    pub(crate) fn script_instead(&self, script: Script) {
        self.shared.change(|state| state.scripts = VecDeque::from([script]));
    }

    /// There is a run of this id, which was not submitted here, or is one of an eval.
    pub(crate) fn has_run(&self, id: &str, script: Script) {
        self.shared.change(|state| state.runs.insert(id.into(), Run::new(script)));
    }

    /// The next POSTs of this tool use's result are answered so, and then with 200.
    pub(crate) fn replies(&self, id: &str, replies: impl IntoIterator<Item = Reply>) {
        self.shared.change(|state| state.replies.insert(id.into(), replies.into_iter().collect()));
    }

    /// From now on, takes `limit` results in each `window`, tells what is left, and answers what is
    /// beyond it with 429.
    pub(crate) fn meter(&self, limit: u32, window: Duration) {
        let meter = Meter { limit, window, used: 0, end: None };
        self.shared.change(|state| state.meter = Some(meter));
    }

    /// Answers `method target` with this first line and these headers, and this body.
    pub(crate) fn canned(&self, method: &str, target: &str, head: &[&str], body: &str) {
        let head = head.join("\r\n");
        let length = match head.contains("Transfer-Encoding") {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let answer = format!("{head}\r\n{length}\r\n{body}");
        self.shared
            .change(|state| state.canned.insert(format!("{method} {target}"), answer.into_bytes()));
    }

    /// Answers every request for a run's stream with this first line and these headers, and this
    /// body, until [`Self::give_streams`].
    pub(crate) fn refuse_streams(&self, head: &[&str], body: &str) {
        let head = head.join("\r\n");
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.shared.change(|state| state.refusal = Some(answer.into_bytes()));
    }

    pub(crate) fn give_streams(&self) {
        self.shared.change(|state| state.refusal = None);
    }

    /// From now on, whatever comes with another credential than these gets 401.
    pub(crate) fn lets_in(&self, credentials: &[&str]) {
        let shown = credentials.iter().map(|credential| format!("Bearer {credential}")).collect();
        self.shared.change(|state| state.let_in = Some(shown));
    }

    /// Takes the next `method …suffix`, and holds its answer back until `name` is released.
    pub(crate) fn hold(&self, method: &'static str, suffix: &'static str, name: &str) {
        self.shared.change(|state| state.held.push((method, suffix, name.into())));
    }

    /// Lets the streams and the answers that wait for `name` go on.
    pub(crate) fn release(&self, name: &str) {
        self.shared.change(|state| state.release(name));
    }

    /// Puts `text` in place of `mark` in all that is sent from now on, and lets the streams that
    /// wait for `mark` go on.
    pub(crate) fn fill(&self, mark: &str, text: &str) {
        self.shared.change(|state| state.fills.push((mark.into(), text.into())));
        self.release(mark);
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.shared.state().recorded.clone()
    }

    /// The requests of `method` whose path, query left out, ends with `suffix`.
    pub(crate) fn requests(&self, method: &str, suffix: &str) -> Vec<Recorded> {
        let matches = |request: &Recorded| {
            let path = request.target.split('?').next().unwrap_or_default();
            request.method == method && path.ends_with(suffix)
        };
        self.recorded().into_iter().filter(matches).collect()
    }

    /// The one request of `method` to a path that ends with `suffix`.
    #[track_caller]
    pub(crate) fn only(&self, method: &str, suffix: &str) -> Recorded {
        let mut found = self.requests(method, suffix);
        assert_eq!(found.len(), 1, "{method} …{suffix} should reach MANTYX once: {found:?}");
        found.remove(0)
    }

    /// The POSTs that answer one tool use, in their order.
    pub(crate) fn posts(&self, id: &str) -> Vec<Recorded> {
        let mut posts = self.requests("POST", "/tool-results");
        posts.retain(|post| post.value()["toolUseId"] == id);
        posts
    }

    /// Waits for `count` POSTs that answer one tool use.
    pub(crate) async fn wait_posts(&self, id: &str, count: usize) -> Vec<Recorded> {
        let what = format!("the result of {id} should be posted {count} times");
        wait::until(&what, Duration::from_secs(30), async || {
            Some(self.posts(id)).filter(|posts| posts.len() >= count)
        })
        .await
    }

    /// Waits for the answer to a tool use; asserts that it is posted only once.
    pub(crate) async fn answer(&self, id: &str) -> Value {
        let posts = self.wait_posts(id, 1).await;
        assert_eq!(posts.len(), 1, "one POST for one tool use: {posts:?}");
        posts.first().map_or(Value::Null, Recorded::value)
    }

    /// How often the stream of a run was opened.
    pub(crate) fn opened(&self, run: &str) -> usize {
        self.shared.state().runs.get(run).map_or(0, |run| run.connections)
    }
}
