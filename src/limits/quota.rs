//! Counts the calls of one app, or those to one backend, and refuses those beyond its quota. The
//! counts outlive reloads that leave the quota as it is, and no restart.
//!
//! Must not: count a call that is not made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::clock;
use crate::config::Quota;
use crate::config::value::format_duration;
use crate::model::CallRequest;
use crate::model::sentences;

/// How many different calls of runs are counted; the one that is not made for longest is forgotten.
const MAX_DIFFERENT: usize = 4_096;

/// Of a run and a call of it.
type Digest = [u8; 32];

/// A quota, and what is used of it.
#[derive(Debug)]
pub struct Meter {
    quota: Quota,
    /// The app or the backend, for the model and people.
    of: String,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// When the last calls were made: at most as many as the quota allows.
    made: VecDeque<Instant>,
    /// How often a run has made the same call; the last one is at the end.
    same: VecDeque<(Digest, usize)>,
}

impl Meter {
    /// The meter of `quota`, with the counts of `before` if that one is of the same quota.
    pub fn after(before: Option<&Arc<Self>>, of: &str, quota: Option<Quota>) -> Option<Arc<Self>> {
        let (quota, of) = (quota?, of.to_owned());
        let same = before.filter(|before| before.quota == quota);
        Some(same.map_or_else(|| Arc::new(Self { quota, of, used: <_>::default() }), Arc::clone))
    }

    /// If all calls of a time are used up, says so, and until when.
    pub fn used_up(&self) -> Option<String> {
        self.full(&self.used.lock())
    }

    fn full(&self, used: &Used) -> Option<String> {
        let (calls, per) = self.quota.calls?;
        let oldest = used.made.front().filter(|_| used.made.len() == calls)?;
        let exact = per.checked_sub(oldest.elapsed()).filter(|wait| !wait.is_zero())?;
        let wait = Duration::from_secs(exact.as_secs() + u64::from(exact.subsec_nanos() > 0));
        let until = humantime::format_rfc3339_seconds(clock::now() + wait);
        let (of, per, wait) = (&self.of, format_duration(per), humantime::format_duration(wait));
        Some(format!("{of} has used up its quota, {calls} in {per}, until {until} (for {wait})."))
    }

    /// Why a call may not be made; `key` is the same for the same calls of a run.
    fn refuses(&self, used: &Used, key: Option<&Digest>) -> Option<String> {
        let same = used.same.iter().find(|(digest, _)| Some(digest) == key);
        if let (Some(limit), Some((_, count))) = (self.quota.identical, same)
            && *count >= limit
        {
            return Some(sentences::same_call_too_often(count));
        }
        Some(sentences::over_quota(&self.full(used)?))
    }

    fn add(&self, used: &mut Used, key: Option<&Digest>) {
        if let Some((calls, _)) = self.quota.calls {
            used.made.push_back(Instant::now());
            if used.made.len() > calls {
                used.made.pop_front();
            }
        }
        let Some(key) = key.filter(|_| self.quota.identical.is_some()) else { return };
        let at = used.same.iter().position(|(digest, _)| digest == key);
        let before = at.and_then(|at| used.same.remove(at)).map_or(0, |(_, count)| count);
        used.same.push_back((*key, before + 1));
        if used.same.len() > MAX_DIFFERENT {
            used.same.pop_front();
        }
    }
}

/// Counts a call that is made now with all of `meters`, or with none if one of them refuses it; the
/// model's answer then.
///
/// # Errors
///
/// A quota is used up.
pub fn count(meters: &[&Meter], call: &CallRequest) -> Result<(), String> {
    let key = call.run.as_ref().map(|by| {
        let (backend, arguments) = (call.route.backend.as_str(), call.arguments.get());
        let parts = [by.workspace.as_str(), by.run.as_str(), backend, call.tool(), arguments];
        Digest::from(Sha256::digest(parts.join("\0")))
    });
    // All locks together, as two calls may be made at once. All callers name the app's first.
    let mut locked: Vec<_> = meters.iter().map(|meter| (meter, meter.used.lock())).collect();
    let why = locked.iter().find_map(|(meter, used)| meter.refuses(used, key.as_ref()));
    why.map_or(Ok(()), Err)?;
    locked.iter_mut().for_each(|(meter, used)| meter.add(used, key.as_ref()));
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Which calls are refused, and when they are made again.

    use tokio::time::advance;

    use super::*;
    use crate::backend::fake::{request, request_of};

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn meter(of: &str, calls: Option<(usize, Duration)>, identical: Option<usize>) -> Arc<Meter> {
        Meter::after(None, of, Some(Quota { calls, identical })).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn any_time_of_this_length_has_so_many_calls() {
        let meter = meter("`fs`", Some((2, HOUR)), None);
        let call = || count(&[&meter], &request("pay", "{}"));
        call().unwrap();
        advance(HOUR / 2).await;
        assert_eq!(meter.used_up(), None);
        call().unwrap();
        let told = call().unwrap_err();
        assert!(told.starts_with("`fs` has used up its quota, 2 in 1h, until 2"), "{told}");
        assert!(told.contains("Z (for 30m). The call was not made"), "{told}");
        advance(HOUR / 2 - Duration::from_millis(1)).await;
        let told = meter.used_up().unwrap();
        assert!(told.ends_with("Z (for 1s)."), "{told}");
        call().unwrap_err();
        advance(Duration::from_millis(1)).await;
        assert_eq!(meter.used_up(), None, "a refused call does not count");
        call().unwrap();
        call().unwrap_err();
        advance(HOUR / 2).await;
        call().unwrap();
        call().unwrap_err();
        advance(9 * HOUR).await;
        call().unwrap();
        call().unwrap();
        call().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_with_all_quotas_or_none() {
        let app = meter("the app", Some((3, HOUR)), None);
        let (small, other) =
            (meter("`small`", Some((1, HOUR)), None), meter("`other`", None, Some(9)));
        let made = |backend: &Meter| count(&[&app, backend], &request("x", "{}"));
        made(&small).unwrap();
        for _ in 0..5 {
            assert!(made(&small).unwrap_err().contains("`small`"));
        }
        made(&other).unwrap();
        made(&other).unwrap();
        assert!(made(&other).unwrap_err().contains("the app"));
        assert_eq!(other.used_up(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_call_of_a_run_is_stopped() {
        let meter = meter("`fs`", None, Some(2));
        let call = |run: &str, tool: &str, args: &str| {
            count(&[&meter], &request_of(run, None, tool, args))
        };
        for run in ["r", "s"] {
            call(run, "look", r#"{"a":1}"#).unwrap();
            call(run, "look", r#"{"a":1}"#).unwrap();
            let told = call(run, "look", r#"{"a":1}"#).unwrap_err();
            assert!(told.contains("2 times already"), "{told}");
            call(run, "look", r#"{"a":2}"#).unwrap();
            call(run, "find", r#"{"a":1}"#).unwrap();
        }
        advance(100 * HOUR).await;
        call("r", "look", r#"{"a":1}"#).unwrap_err();
        for _ in 0..5 {
            count(&[&meter], &request("look", "{}")).expect("a call by hand has no run");
        }
        for number in 0..MAX_DIFFERENT {
            call("t", "look", &number.to_string()).unwrap();
        }
        call("r", "look", r#"{"a":1}"#).expect("it is forgotten");
        let used = meter.used.lock();
        assert_eq!(used.same.len(), MAX_DIFFERENT);
        assert!(used.made.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn counts_outlive_a_reload_that_leaves_the_quota() {
        let before = meter("`fs`", Some((1, HOUR)), None);
        count(&[&before], &request("x", "{}")).unwrap();
        let with = |quota| Meter::after(Some(&before), "`fs`", quota);
        assert!(with(Some(before.quota)).unwrap().used_up().is_some());
        let other = Quota { calls: Some((2, HOUR)), identical: None };
        assert!(with(Some(other)).unwrap().used_up().is_none());
        assert!(with(None).is_none());
    }
}
