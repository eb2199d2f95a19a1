//! The credential that the requests of one run carry, if its app brings its own.
//!
//! Such credentials expire while a run continues, and an app shows a fresh one with its next
//! request. The bridge remembers a credential that MANTYX has accepted for this very run, and uses
//! it once MANTYX refuses the current one. So neither junk nor another user's credential can
//! replace a good one. The credential also decides which callers may see what the bridge knows of
//! the run.
//!
//! Must not: ask MANTYX, or let a credential out of [`UpstreamCredential`].

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{DrivenRun, RunContext};
use crate::limits::ring::Ring;
use crate::upstream::{PostCredential, UpstreamCredential};

/// For this long after MANTYX has accepted a credential for a run, the bridge does not ask again.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);
/// The most credentials that are remembered for one run; the oldest are forgotten first.
const MAX: usize = 8;

/// The credential of one run.
#[derive(Debug)]
pub struct RunCredential(watch::Sender<History>);

/// What MANTYX has said about the credentials that were shown for the run.
#[derive(Debug, Clone)]
struct History {
    current: UpstreamCredential,
    /// MANTYX has refused the current one, and no other is known.
    is_refused: bool,
    /// The credential that created the run, until MANTYX refuses it.
    creator: Option<UpstreamCredential>,
    /// The credentials that MANTYX has accepted for this run, and when.
    accepted: Ring<(UpstreamCredential, Instant), MAX>,
    /// The credentials that MANTYX has refused for this run and not accepted since.
    refused: Ring<UpstreamCredential, MAX>,
}

impl History {
    fn new(creator: UpstreamCredential) -> Self {
        Self {
            current: creator.clone(),
            is_refused: false,
            creator: Some(creator),
            accepted: Ring::default(),
            refused: Ring::default(),
        }
    }

    /// Notes that MANTYX has accepted `shown` for this run. Returns whether `shown` replaces a
    /// refused one.
    fn accept(&mut self, shown: &UpstreamCredential, now: Instant) -> bool {
        self.accepted.retain(|(accepted, _)| !accepted.is_same(shown));
        self.accepted.push((shown.clone(), now));
        self.refused.retain(|refused| !refused.is_same(shown));
        if self.is_refused {
            self.current = shown.clone();
        }
        std::mem::take(&mut self.is_refused)
    }

    /// Notes that MANTYX has refused `shown` for this run.
    fn refuse(&mut self, shown: &UpstreamCredential) {
        self.creator.take_if(|creator| creator.is_same(shown));
        self.accepted.retain(|(accepted, _)| !accepted.is_same(shown));
        self.refused.retain(|refused| !refused.is_same(shown));
        self.refused.push(shown.clone());
        if !self.current.is_same(shown) {
            return;
        }
        match self.accepted.newest() {
            Some((latest, _)) => self.current = latest.clone(),
            None => self.is_refused = true,
        }
    }

    /// Whether a caller with `shown` may see the run without a question to MANTYX. An acceptance
    /// counts for a while only, as MANTYX may revoke a credential without a word to the bridge.
    fn was_accepted_lately(&self, shown: &UpstreamCredential, now: Instant) -> bool {
        self.creator.as_ref().is_some_and(|creator| creator.is_same(shown))
            || self.accepted.iter().any(|(accepted, at)| {
                accepted.is_same(shown) && now.saturating_duration_since(*at) < GOOD_FOR
            })
    }
}

impl RunCredential {
    pub fn new(creator: UpstreamCredential) -> Self {
        Self(watch::Sender::new(History::new(creator)))
    }

    /// The credential of a run that another replica drives: MANTYX has not accepted `shown` for it
    /// yet.
    pub fn unproven(shown: UpstreamCredential) -> Self {
        Self(watch::Sender::new(History { creator: None, ..History::new(shown) }))
    }

    pub fn current(&self) -> UpstreamCredential {
        self.0.borrow().current.clone()
    }

    /// Whether the credential is an app's own, and not the bridge's.
    pub fn is_callers(&self) -> bool {
        self.0.borrow().current.is_callers()
    }

    fn accept(&self, shown: &UpstreamCredential) -> bool {
        let mut replaces = false;
        self.0.send_modify(|history| replaces = history.accept(shown, Instant::now()));
        replaces
    }

    pub fn refuse(&self, shown: &UpstreamCredential) {
        self.0.send_modify(|history| history.refuse(shown));
    }

    /// Notes that MANTYX has accepted a request of the bridge's own with `shown`: a credential that
    /// was refused before works again.
    ///
    /// Other successes are not noted as acceptances. They come with each post, and would let the
    /// caller who brought the credential read the run for as long as it runs, without a question to
    /// MANTYX, which may have taken the right to read from that caller.
    pub fn note_success(&self, shown: &UpstreamCredential) {
        let refused_before = {
            let history = self.0.borrow();
            history.is_refused && history.current.is_same(shown)
        };
        if refused_before {
            self.accept(shown);
        }
    }

    fn was_accepted_lately(&self, shown: &UpstreamCredential) -> bool {
        self.0.borrow().was_accepted_lately(shown, Instant::now())
    }

    /// Resolves when MANTYX refuses `shown` for the run.
    async fn wait_until_refused(&self, shown: &UpstreamCredential) {
        let mut changes = self.0.subscribe();
        let refusal = changes.wait_for(|history| history.refused.iter().any(|r| r.is_same(shown)));
        refusal.await.expect("the sender is in `self`");
    }

    /// Resolves when the run has another credential than `shown`.
    pub async fn wait_for_replacement(&self, shown: &UpstreamCredential) {
        let mut changes = self.0.subscribe();
        let other = changes.wait_for(|history| !history.current.is_same(shown)).await;
        other.expect("the sender is in `self`");
    }
}

/// The credential of a run for the posts of its results.
pub struct RunPostCredential<'a> {
    pub context: &'a RunContext,
    pub run: &'a DrivenRun,
}

impl PostCredential for RunPostCredential<'_> {
    fn now(&self) -> UpstreamCredential {
        self.context.credential_of(self.run)
    }

    fn refused(&self, shown: &UpstreamCredential) {
        self.run.credential.refuse(shown);
    }

    fn taken(&self, shown: &UpstreamCredential) {
        self.run.credential.note_success(shown);
    }

    async fn wait_for_replacement(&self, shown: &UpstreamCredential) {
        if shown.is_callers() {
            self.run.credential.wait_for_replacement(shown).await;
        } else {
            // A configured credential is replaced by a reload, and the next attempt asks for it.
            std::future::pending::<()>().await;
        }
    }
}

impl DrivenRun {
    /// Resolves when MANTYX refuses `shown`, the credential of an app, for this run.
    pub async fn wait_until_refused(&self, shown: &UpstreamCredential) {
        if !shown.is_callers() {
            return std::future::pending().await;
        }
        self.credential.wait_until_refused(shown).await;
    }
}

impl RunContext {
    /// The credential for the requests of `run`: its caller's own, or the one that is configured
    /// now, as a reload may have replaced the one that the run began with.
    pub fn credential_of(&self, run: &DrivenRun) -> UpstreamCredential {
        let current = run.credential.current();
        if current.is_callers() {
            return current;
        }
        let settings = self.calls.settings();
        let app = settings.app(&run.app);
        app.and_then(|app| self.upstream.credential_of(&app.app)).unwrap_or(current)
    }

    /// Whether a caller with this credential may see what the bridge knows of `run`. If callers
    /// bring their own credentials, these identify them, and MANTYX must have accepted this one for
    /// the run within `GOOD_FOR`. Without that, one user of an app would see the calls of another.
    pub fn may_read(&self, run: &DrivenRun, shown: &UpstreamCredential) -> bool {
        let without_users = !shown.is_callers() && !run.credential.is_callers();
        without_users || run.credential.was_accepted_lately(shown)
    }

    /// Notes that MANTYX has accepted this credential of the run's app for `run`.
    pub fn accepted(&self, run: &DrivenRun, shown: &UpstreamCredential) {
        if (shown.is_callers() || run.credential.is_callers()) && run.credential.accept(shown) {
            // MANTYX refused the stream to the credential before: readers now wait for the next
            // attempt.
            run.expect_attempt();
        }
    }

    /// Notes that MANTYX has refused this credential of the run's app for `run`.
    pub fn refused(&self, run: &DrivenRun, shown: &UpstreamCredential) {
        if shown.is_callers() {
            run.credential.refuse(shown);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which credential is whose turn, by table.

    use super::*;

    fn shown(name: &str) -> UpstreamCredential {
        let value = http::HeaderValue::try_from(format!("Bearer {name}")).unwrap();
        UpstreamCredential::of_caller(&http::HeaderMap::from_iter([(
            http::header::AUTHORIZATION,
            value,
        )]))
    }

    /// After `steps` (`+x` is accepted, `-x` is refused, a number lets so many seconds pass) the
    /// current one, and which of `a` (the creator), `b` and `c` are known.
    #[track_caller]
    fn check(steps: &str, current: &str, known: &str) {
        let mut now = Instant::now();
        let mut state = History::new(shown("a"));
        for step in steps.split_whitespace() {
            match step.split_at(1) {
                ("+", name) => {
                    state.accept(&shown(name), now);
                }
                ("-", name) => state.refuse(&shown(name)),
                _ => now += Duration::from_secs(step.parse().unwrap()),
            }
        }
        let named = |wanted: &UpstreamCredential| {
            ["a", "b", "c"].into_iter().find(|name| shown(name).is_same(wanted)).unwrap()
        };
        let refused = if state.is_refused { "!" } else { "" };
        assert_eq!(format!("{}{refused}", named(&state.current)), current, "{steps}");
        let knows = |name: &&str| state.was_accepted_lately(&shown(name), now);
        assert_eq!(["a", "b", "c"].into_iter().filter(knows).collect::<String>(), known, "{steps}");
    }

    #[test]
    fn a_credential_replaces_one_that_is_refused() {
        struct Case {
            steps: &'static str,
            current: &'static str,
            known: &'static str,
        }
        for Case { steps, current, known } in [
            Case { steps: "", current: "a", known: "a" },
            // What is good is not replaced.
            Case { steps: "+b", current: "a", known: "ab" },
            Case { steps: "+b +c -c", current: "a", known: "ab" },
            // The latest that was accepted is taken, be it before or after.
            Case { steps: "-a", current: "a!", known: "" },
            Case { steps: "-a +b", current: "b", known: "b" },
            Case { steps: "+b +c -a", current: "c", known: "bc" },
            Case { steps: "+c +b -a -b", current: "c", known: "c" },
            Case { steps: "+b -a -b", current: "b!", known: "" },
            Case { steps: "-a +a", current: "a", known: "a" },
            Case { steps: "-a -b +c", current: "c", known: "c" },
            // What was refused is forgotten, and what is old has to be asked about.
            Case { steps: "300", current: "a", known: "a" },
            Case { steps: "+b 299", current: "a", known: "ab" },
            Case { steps: "+b 300", current: "a", known: "a" },
            Case { steps: "+b 200 +b 200", current: "a", known: "ab" },
            Case { steps: "+b 300 -a", current: "b", known: "" },
            Case { steps: "-a +b 300 +c", current: "b", known: "c" },
        ] {
            check(steps, current, known);
        }
    }

    #[test]
    fn remembered_credentials_are_bounded() {
        let mut state = History::new(shown("a"));
        let now = Instant::now();
        for n in 0..100 {
            state.accept(&shown(&n.to_string()), now);
        }
        assert_eq!(state.accepted.iter().count(), MAX);
        assert!(
            state.was_accepted_lately(&shown("99"), now)
                && !state.was_accepted_lately(&shown("91"), now)
        );
        assert!(state.was_accepted_lately(&shown("a"), now), "the creator stays");
    }

    #[tokio::test]
    async fn refusal_of_a_credential_is_told_to_its_readers() {
        let run = RunCredential::new(shown("a"));
        run.accept(&shown("b"));
        let reader = shown("b");
        let mut refused = Box::pin(run.wait_until_refused(&reader));
        run.refuse(&shown("a"));
        run.accept(&shown("c"));
        assert!(futures_util::poll!(&mut refused).is_pending());
        run.refuse(&shown("b"));
        refused.await;
        run.accept(&shown("b"));
        assert!(futures_util::poll!(Box::pin(run.wait_until_refused(&reader))).is_pending());
    }

    #[tokio::test]
    async fn new_credential_is_told_to_those_that_wait() {
        let run = RunCredential::new(shown("a"));
        let first = shown("a");
        run.refuse(&first);
        let ((), ()) = tokio::join!(run.wait_for_replacement(&first), async {
            tokio::task::yield_now().await;
            run.accept(&shown("b"));
        });
        run.note_success(&shown("a"));
        assert!(!run.was_accepted_lately(&shown("a")), "it is not the current one");
        run.refuse(&shown("b"));
        run.note_success(&shown("b"));
        assert!(run.was_accepted_lately(&shown("b")), "it works again");
    }
}
