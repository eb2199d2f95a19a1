//! How posts are spread over a window, and what answers tell.

use http::HeaderValue;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn told(limit: u32, left: u32, seconds: u64) -> Option<AnnouncedBudget> {
    Some(AnnouncedBudget { limit, remaining: left, reset: Some(Duration::from_secs(seconds)) })
}

/// When each of `count` posts goes, in seconds from now, all of which want to go at once and are
/// answered at once, by a MANTYX that counts windows of `window` seconds from the first post on;
/// and how many it refused.
fn play(limit: u32, window: u64, count: usize) -> (Vec<f64>, usize) {
    let begin = Instant::now();
    let (mut budget, mut now) = (Window::new(begin), begin);
    let (mut end, mut used, mut refused) = (begin, 0, 0);
    let mut times = Vec::new();
    while times.len() < count {
        let next = budget.next(now);
        if next > now {
            now = next;
            continue;
        }
        let post = budget.take(now);
        if now >= end {
            (end, used) = (now + Duration::from_secs(window), 0);
        }
        used += 1;
        if used > limit {
            refused += 1;
        } else {
            times.push((now - begin).as_secs_f64());
        }
        budget.ended();
        let left = limit.saturating_sub(used);
        // As whole seconds, rounded up.
        budget.note(told(limit, left, (end - now).as_secs_f64().ceil() as u64), Some(post), now);
    }
    (times, refused)
}

#[test]
fn two_thirds_go_at_once_and_the_rest_is_spread() {
    let (times, refused) = play(600, 60, 700);
    assert_eq!(refused, 0);
    assert!(times[..400].iter().all(|at| *at == 0.0), "the burst");
    let spread = &times[400..600];
    // Towards the end, the rounding of the end counts for more.
    assert!(spread.windows(2).take(150).all(|pair| (0.25..0.35).contains(&(pair[1] - pair[0]))));
    assert!((55.0..62.0).contains(&spread[199]), "until the window ends: {}", spread[199]);
    assert!(times[600] >= 60.0 && times[699] < 62.0, "then the next one: {:?}", &times[600..]);
}

#[test]
fn no_budget_is_overdrawn() {
    struct Case {
        limit: u32,
        window: u64,
        count: usize,
    }
    for Case { limit, window, count } in [
        Case { limit: 20, window: 2, count: 200 },
        Case { limit: 1, window: 1, count: 5 },
        Case { limit: 2, window: 60, count: 7 },
        Case { limit: 3, window: 10, count: 30 },
        Case { limit: 120, window: 60, count: 500 },
        Case { limit: 6000, window: 60, count: 9000 },
    ] {
        let (times, refused) = play(limit, window, count);
        assert_eq!(refused, 0, "{limit} in {window} s");
        let least = (count as f64 / f64::from(limit)).floor() * window as f64;
        let last = times[count - 1];
        assert!(last <= 2.0 * least + 4.0, "{limit} in {window} s took {last} s, not {least} s");
    }
}

#[test]
fn the_second_post_waits_for_the_first_answer() {
    let now = Instant::now();
    let mut budget = Window::new(now);
    assert_eq!(budget.next(now), now);
    budget.take(now);
    assert_eq!(budget.next(now), now + SECOND, "not for ever");
    budget.ended();
    budget.note(None, None, now);
    for _ in 0..5000 {
        assert_eq!(budget.next(now), now, "nobody counts");
        budget.take(now);
    }
    budget.refused(7 * SECOND, now);
    assert_eq!(budget.next(now), now + 7 * SECOND);
    let now = now + 7 * SECOND;
    assert_eq!(budget.next(now), now, "then there is a budget");
}

#[test]
fn answers_in_any_order_do_not_raise_what_is_left() {
    let now = Instant::now();
    let mut budget = Window::new(now);
    let first = budget.take(now);
    budget.ended();
    budget.note(told(20, 19, 10), Some(first), now);
    let burst: Vec<Post> = std::iter::repeat_with(|| budget.take(now)).take(13).collect();
    assert_eq!(budget.remaining, 6);
    for (post, left) in burst.iter().zip([18, 6, 12, 7, 17, 8, 9, 10, 11, 13, 14, 15, 16]) {
        budget.ended();
        budget.note(told(20, left, 10), Some(*post), now);
        assert_eq!(budget.remaining, 6);
    }
    assert!(budget.next(now) > now, "no more than a third");
    // Another program of the same credential has left nothing.
    budget.note(told(20, 0, 10), None, now);
    assert_eq!(budget.next(now), now + 11 * SECOND);
    // To one that went alone: the window is one that slides.
    let alone = budget.take(now);
    budget.ended();
    budget.note(told(20, 14, 10), Some(alone), now);
    assert_eq!((budget.remaining, budget.next(now)), (14, now));
}

#[test]
fn headers() {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    let read = |bucket: &'static str, reset: &'static str| {
        let mut headers = HeaderMap::new();
        for (name, value) in [(LIMIT, "600"), (REMAINING, "599"), (BUCKET, bucket), (RESET, reset)]
        {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        AnnouncedBudget::read(&headers, wall)
    };
    for reset in ["42", "42.0", " 42", "1795000042", "1795000042000"] {
        for bucket in ["", "lifecycle", "developer_api:Lifecycle"] {
            assert_eq!(read(bucket, reset), told(600, 599, 42), "{bucket:?} {reset:?}");
        }
        assert_eq!(read("run_start", reset), None, "another budget");
    }
    assert_eq!(read("", "1794999999"), told(600, 599, 0), "a clock that is ahead");
    for reset in ["", "soon", "86400", "NaN", "inf", "1e300", "1799000000"] {
        assert_eq!(
            read("", reset),
            Some(AnnouncedBudget { limit: 600, remaining: 599, reset: None }),
            "{reset}"
        );
    }
    for (name, value) in [(LIMIT, "0"), (LIMIT, "many"), (REMAINING, "-1")] {
        let mut headers = HeaderMap::new();
        headers.insert(LIMIT, HeaderValue::from_static("5"));
        headers.insert(REMAINING, HeaderValue::from_static("5"));
        headers.insert(name, HeaderValue::from_static(value));
        assert_eq!(AnnouncedBudget::read(&headers, wall), None);
    }
    assert_eq!(AnnouncedBudget::read(&HeaderMap::new(), wall), None);
}
