//! A small world: MANTYX, a tool, a disk, and a bridge that crashes at any moment. Whatever comes
//! in whatever order, each call has one answer, and what may not be repeated runs at most once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{call, other, table};
use crate::model::event::Call;
use crate::model::ids::RunKind;
use crate::model::recovery::{LEAST_REMAINING, Recovery, RecoveryFacts, Stage, decide};
use crate::model::run::{CallAction, EarlierCall, Run, Step};

/// What can happen next.
#[derive(Debug, Clone, Copy)]
enum Happening {
    /// The stream is opened anew this many events back, and brings this many.
    Hear { rewind: usize, count: usize },
    /// The past has been read, as far as the driver can tell.
    Settle,
    /// The disk has written all that waits.
    Commit,
    /// One of the calls under way gets on.
    GetOn(usize),
    /// The bridge dies; the disk has so many of the writes that waited.
    Crash(usize),
    /// The bridge dies, and the disk has lost these calls, and of those the last stage.
    Damage(u8, u8),
}

/// What the disk has of a call.
#[derive(Debug, Clone)]
struct Kept {
    call: Call,
    stage: Stage,
    attempts: u32,
    seq: u64,
}

/// Where a call stands in the process, after what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Made,
    Dispatching,
    Answering { known: bool },
    Posting { known: bool },
    Closed,
}

#[derive(Debug, Default)]
struct World {
    /// The events of the run: `true` is a call, `false` its answer, by its number.
    log: Vec<(bool, usize)>,
    /// The answers that MANTYX took; `true` is one of the tool.
    taken: BTreeMap<usize, Vec<bool>>,
    executions: BTreeMap<usize, usize>,
    disk: BTreeMap<usize, Kept>,
    /// What waits for the disk; what is given at once is written at once.
    queue: Vec<Vec<(usize, Kept)>>,
    /// How many writes of the queue there are until one that says that the past has been read, and
    /// to where.
    settled: Option<(usize, u64)>,
    /// What the disk has of the run.
    past_is_lost: bool,
    read_to: u64,
    damages: usize,
    /// How many events there were at the last damage: what MANTYX had sent before, it sends at
    /// once. So the past of a run counts as read behind them.
    past: usize,
    under_way: BTreeMap<usize, (At, Kept)>,
    run: Option<Run>,
}

/// Every second call may be made again.
fn repeatable(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn number(call: &Call) -> usize {
    call.tool_use.as_str().trim_start_matches("tu").parse().unwrap()
}

/// What is known of a call that the disk has.
fn known(of: usize, kept: &Kept) -> RecoveryFacts {
    RecoveryFacts {
        stage: kept.stage,
        attempts: kept.attempts,
        has_handle: false,
        repeatable: repeatable(of),
        remaining: LEAST_REMAINING,
    }
}

impl World {
    fn run(&mut self) -> &mut Run {
        self.run.get_or_insert_with(|| Run::new(RunKind::Agent, table()))
    }

    fn hear(&mut self, rewind: usize, count: usize) {
        let last = self.run().last_seq() as usize;
        self.run().opened();
        let from = last.saturating_sub(rewind);
        let events: Vec<_> = self.log.iter().copied().enumerate().skip(from).take(count).collect();
        for (at, (is_call, of)) in events {
            let (seq, id) = (at as u64 + 1, format!("tu{of}"));
            let event = if is_call {
                call(seq, &id, "fs_ls", "mcp_local", &format!("{{\"n\":{of}}}"))
            } else {
                other(seq, "local_tool_result_in", &format!(r#"{{"toolUseId":"{id}"}}"#))
            };
            if let Step::Mask(call, work) = self.run().on_event(event) {
                self.work(vec![(call, work)]);
            }
        }
    }

    fn settle(&mut self) {
        let past = self.past;
        if self.run().past_is_lost() && (self.run().last_seq() as usize) < past {
            return;
        }
        let held = self.run().settle();
        // Written in one piece with the calls.
        self.settled = Some((self.queue.len() + 1, self.run().last_seq()));
        self.work(held);
    }

    fn work(&mut self, calls: Vec<(Call, CallAction)>) {
        let (mut written, mut unknown) = (Vec::new(), Vec::new());
        for (call, work) in calls {
            let of = number(&call);
            match work {
                CallAction::Make(_) => {
                    let seq = self.run().last_seq();
                    // What an earlier life has left keeps its count.
                    let attempts = self.disk.get(&of).map_or(0, |kept| kept.attempts);
                    let kept = Kept { call, stage: Stage::Received, attempts, seq };
                    written.push((of, kept.clone()));
                    self.under_way.insert(of, (At::Made, kept));
                }
                CallAction::Doubtful(_) => {
                    let seq = self.run().last_seq();
                    let attempts = self.disk.get(&of).map_or(0, |kept| kept.attempts).max(1);
                    let kept = Kept { call, stage: Stage::Dispatched, attempts, seq };
                    written.push((of, kept.clone()));
                    match decide(known(of, &kept)) {
                        Recovery::Make => drop(self.under_way.insert(of, (At::Made, kept))),
                        Recovery::Unknown => unknown.push((of, kept)),
                        other => panic!("{other:?}"),
                    }
                }
                CallAction::Nothing | CallAction::Hold => {}
                other => panic!("{other:?}"),
            }
        }
        self.queue.push(written);
        for (of, mut kept) in unknown {
            kept.stage = Stage::Answered;
            self.queue.push(vec![(of, kept.clone())]);
            self.under_way.insert(of, (At::Answering { known: false }, kept));
        }
    }

    fn commit(&mut self, count: usize) {
        let count = count.min(self.queue.len());
        self.disk.extend(self.queue.drain(..count).flatten());
        match self.settled {
            Some((left, to)) if left <= count => {
                (self.settled, self.past_is_lost, self.read_to) = (None, false, to);
            }
            Some((left, to)) => self.settled = Some((left - count, to)),
            None => (),
        }
    }

    fn damage(&mut self, lost: u8, last: u8) {
        let hit = |mask: u8, of: usize| mask >> (of % 8) & 1 == 1;
        self.commit(usize::MAX);
        self.disk.retain(|of, _| !hit(lost, *of));
        for (of, kept) in &mut self.disk {
            if hit(last, *of) {
                kept.stage = match kept.stage {
                    Stage::Closed => Stage::Answered,
                    Stage::Answered => Stage::Dispatched,
                    Stage::Dispatched | Stage::Received => Stage::Received,
                };
            }
            // As the journal does.
            if kept.stage == Stage::Received {
                kept.stage = Stage::Dispatched;
            }
            kept.attempts = kept.attempts.max(1);
        }
        self.past_is_lost = true;
        self.damages += 1;
        self.past = self.log.len();
        self.crash(0);
    }

    /// Writes a stage down; what waits for it goes on with the next step, when the disk has it.
    fn write(&mut self, of: usize, stage: Stage, at: At) {
        let (now, kept) = self.under_way.get_mut(&of).unwrap();
        *now = at;
        kept.stage = stage;
        kept.attempts += u32::from(stage == Stage::Dispatched);
        let kept = kept.clone();
        self.queue.push(vec![(of, kept)]);
    }

    fn get_on(&mut self, choice: usize) {
        let open: Vec<usize> = self.under_way.keys().copied().collect();
        let Some(of) = open.get(choice % open.len().max(1)).copied() else { return };
        let at = self.under_way[&of].0;
        let on_disk = |stage| self.queue.is_empty() && self.disk[&of].stage == stage;
        match at {
            At::Made => self.write(of, Stage::Dispatched, At::Dispatching),
            At::Dispatching if on_disk(Stage::Dispatched) => {
                *self.executions.entry(of).or_default() += 1;
                self.write(of, Stage::Answered, At::Answering { known: true });
            }
            At::Answering { known } if on_disk(Stage::Answered) => {
                self.under_way.get_mut(&of).unwrap().0 = At::Posting { known };
            }
            At::Posting { known } => {
                // The first one counts; MANTYX does not want another (404, 409).
                let taken = self.taken.entry(of).or_default();
                if taken.is_empty() {
                    taken.push(known);
                    self.log.push((false, of));
                }
                self.write(of, Stage::Closed, At::Closed);
            }
            At::Closed => drop(self.under_way.remove(&of)),
            At::Dispatching | At::Answering { .. } => {}
        }
    }

    fn crash(&mut self, written: usize) {
        self.commit(written);
        self.queue.clear();
        self.settled = None;
        self.under_way.clear();
        let (mut seen, mut again, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for (of, kept) in &self.disk {
            let recovery = decide(known(*of, kept));
            if recovery == Recovery::Make {
                again.push(kept.call.clone());
                continue;
            }
            let content = kept.call.content();
            let tool_use = kept.call.tool_use.clone();
            seen.push(EarlierCall { agent_run: None, tool_use, content });
            let at = match recovery {
                Recovery::Post => At::Posting { known: self.executions.contains_key(of) },
                Recovery::Unknown => At::Answering { known: false },
                Recovery::Nothing => continue,
                other => panic!("{other:?}"),
            };
            open.push((*of, at, kept.clone()));
        }
        let last_seq = self.disk.values().map(|kept| kept.seq).max().unwrap_or(0);
        let last_seq = last_seq.max(self.read_to);
        self.run = Some(if self.past_is_lost {
            Run::with_lost_past(RunKind::Agent, table(), seen, again)
        } else {
            Run::resumed(RunKind::Agent, table(), (self.read_to, last_seq), seen, again)
        });
        for (of, at, mut kept) in open {
            if matches!(at, At::Answering { .. }) {
                kept.stage = Stage::Answered;
                self.queue.push(vec![(of, kept.clone())]);
            }
            self.under_way.insert(of, (at, kept));
        }
    }

    /// All goes well from now on.
    fn finish(&mut self) {
        for _ in 0..3 {
            self.hear(0, usize::MAX);
            self.settle();
            for round in 0..self.log.len() * 20 {
                self.commit(usize::MAX);
                self.get_on(round);
            }
        }
    }
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0usize..4, 1usize..6).prop_map(|(rewind, count)| Happening::Hear { rewind, count }),
        2 => Just(Happening::Settle),
        4 => Just(Happening::Commit),
        8 => (0usize..8).prop_map(Happening::GetOn),
        1 => (0usize..6).prop_map(Happening::Crash),
        1 => any::<(u8, u8)>().prop_map(|(lost, last)| Happening::Damage(lost, last)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_answer_for_every_call_and_no_effect_twice(
        calls in 1usize..8,
        happenings in prop::collection::vec(happening(), 0..120),
    ) {
        let log = (0..calls).map(|of| (true, of)).collect();
        let mut world = World { log, ..World::default() };
        for happening in happenings {
            match happening {
                Happening::Hear { rewind, count } => world.hear(rewind, count),
                Happening::Settle => world.settle(),
                Happening::Commit => world.commit(usize::MAX),
                Happening::GetOn(choice) => world.get_on(choice),
                Happening::Crash(written) => world.crash(written),
                Happening::Damage(lost, last) => world.damage(lost, last),
            }
        }
        world.finish();
        for of in 0..calls {
            let executions = world.executions.get(&of).copied().unwrap_or(0);
            // What is lost may be that it was made twice.
            let most = if repeatable(of) { 2 + world.damages } else { 1 };
            prop_assert!(executions <= most, "call {} ran {} times", of, executions);
            let answers = world.taken.get(&of).map_or(&[][..], Vec::as_slice);
            prop_assert_eq!(answers.len(), 1, "call {}", of);
            prop_assert!(executions > 0 || !answers[0], "a result of nothing");
        }
    }
}
