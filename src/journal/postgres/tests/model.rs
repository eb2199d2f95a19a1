//! Two replicas, one run and two calls, in every order of their steps: the statements that write
//! dispatches, lost connections, processes that freeze and go on, deaths, takeovers and handovers.
//! No call's effect happens twice.
//!
//! A promotion of a synchronous standby is to a replica what a lost connection is. Must not: model
//! time; a dispatch window closes at any moment, and a takeover comes at any moment after that.

use stateright::{Checker, Model, Property};

const CALLS: usize = 2;

/// What a statement proves before it writes a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// The epoch of the run, as a condition without a lock.
    Condition,
    /// That no other replica has taken the place of this one, under a lock.
    Lives,
    /// Both, under locks, in the session of this connection.
    Ours,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Received,
    Dispatched,
}

/// A statement that the database works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Statement {
    call: usize,
    /// It wrote its row, which others do not see yet.
    passed: bool,
    /// Its connection is there to hear of the commit.
    is_heard: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Replica {
    is_dead: bool,
    is_frozen: bool,
    has_lease: bool,
    /// The epoch in which it drives the run.
    drives: Option<u8>,
    generation: u8,
    session: u8,
    /// Calls whose dispatch is still to be written.
    queue: Vec<usize>,
    statements: Vec<Statement>,
    /// Calls whose dispatch is written.
    written: Vec<usize>,
    /// Calls that are sent next: the dispatch window was looked at.
    armed: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    replicas: [Replica; 2],
    generations: [u8; 2],
    sessions: [u8; 2],
    owner: usize,
    epoch: u8,
    stages: [Stage; CALLS],
    effects: [u8; CALLS],
    /// How much more may go wrong.
    faults: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Act {
    /// A statement begins, with its conditions and locks.
    Execute(usize),
    Commit(usize, usize),
    Abort(usize, usize),
    /// The connection that writes breaks; its statement may go on.
    LoseConnection(usize),
    /// A new connection begins its session.
    Reconnect(usize),
    /// The dispatch window is looked at.
    Arm(usize, usize),
    Send(usize, usize),
    LeaseEnds(usize),
    Freeze(usize),
    Thaw(usize),
    Die(usize),
    /// The other replica fences this one.
    Fence(usize),
    /// The other replica claims the run of this one, and reads its calls.
    Claim(usize),
    /// A replica that lives hands its run over; what is in its queue stays there.
    HandOver(usize),
}

struct Group {
    fence: Fence,
    faults: u8,
}

impl Group {
    fn passes(&self, world: &World, at: usize) -> bool {
        let replica = &world.replicas[at];
        let owns = world.owner == at && replica.drives == Some(world.epoch);
        let lives = world.generations[at] == replica.generation;
        match self.fence {
            Fence::Condition => owns,
            Fence::Lives => lives,
            Fence::Ours => owns && lives && world.sessions[at] == replica.session,
        }
    }

    /// Whether the row of `call` may be written: a replica that gets the run back may have the call
    /// in its queue twice.
    fn compares(&self, world: &World, call: usize) -> bool {
        self.fence != Fence::Ours || world.stages[call] == Stage::Received
    }

    /// Whether a statement of `at` holds a lock that a takeover needs.
    fn holds_replica(&self, world: &World, at: usize) -> bool {
        let open = world.replicas[at].statements.iter().any(|statement| statement.passed);
        self.fence != Fence::Condition && open
    }

    fn holds_run(&self, world: &World, at: usize) -> bool {
        let open = world.replicas[at].statements.iter().any(|statement| statement.passed);
        self.fence == Fence::Ours && open
    }
}

/// What the new owner makes of the run: calls that were not dispatched are made.
fn take_up(world: &mut World, at: usize) {
    world.owner = at;
    world.epoch += 1;
    let received = (0..CALLS).filter(|call| world.stages[*call] == Stage::Received);
    world.replicas[at].queue = received.collect();
    world.replicas[at].drives = Some(world.epoch);
}

impl Model for Group {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let replica = |drives: Option<u8>| Replica {
            is_dead: false,
            is_frozen: false,
            has_lease: true,
            drives,
            generation: 1,
            session: 1,
            queue: if drives.is_some() { (0..CALLS).collect() } else { Vec::new() },
            statements: Vec::new(),
            written: Vec::new(),
            armed: Vec::new(),
        };
        vec![World {
            replicas: [replica(Some(1)), replica(None)],
            generations: [1, 1],
            sessions: [1, 1],
            owner: 0,
            epoch: 1,
            stages: [Stage::Received; CALLS],
            effects: [0; CALLS],
            faults: self.faults,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        for at in 0..2 {
            let replica = &world.replicas[at];
            let other = &world.replicas[1 - at];
            for index in 0..replica.statements.len() {
                acts.push(Act::Commit(at, index));
            }
            if !replica.has_lease && !other.is_dead && !other.is_frozen && world.owner == at {
                acts.push(Act::Fence(at));
                acts.push(Act::Claim(at));
            }
            if replica.is_dead {
                continue;
            }
            if replica.has_lease {
                acts.push(Act::LeaseEnds(at));
            }
            if world.faults > 0 {
                acts.extend([Act::LoseConnection(at), Act::Die(at)]);
                acts.extend((!replica.is_frozen).then_some(Act::Freeze(at)));
                acts.extend((0..replica.statements.len()).map(|index| Act::Abort(at, index)));
            }
            if replica.is_frozen {
                acts.push(Act::Thaw(at));
                continue;
            }
            let is_connected = world.sessions[at] == replica.session;
            match is_connected {
                true if replica.statements.is_empty() && !replica.queue.is_empty() => {
                    acts.push(Act::Execute(at));
                }
                true => {}
                false => acts.push(Act::Reconnect(at)),
            }
            acts.extend(replica.written.iter().map(|call| Act::Arm(at, *call)));
            acts.extend(replica.armed.iter().map(|call| Act::Send(at, *call)));
            if replica.drives == Some(world.epoch) && world.owner == at && !other.is_dead {
                acts.push(Act::HandOver(at));
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        match act {
            Act::Execute(at) => {
                let call = next.replicas[at].queue.remove(0);
                // A second write of a row waits for the first.
                let both = || world.replicas.iter().flat_map(|replica| &replica.statements);
                if self.fence == Fence::Ours && both().any(|open| open.passed && open.call == call)
                {
                    return None;
                }
                let passed = self.passes(world, at) && self.compares(world, call);
                next.replicas[at].statements.push(Statement { call, passed, is_heard: true });
            }
            Act::Commit(at, index) => {
                let Statement { call, passed, is_heard } =
                    next.replicas[at].statements.remove(index);
                if passed {
                    next.stages[call] = Stage::Dispatched;
                }
                if passed && is_heard && !world.replicas[at].is_dead {
                    next.replicas[at].written.push(call);
                }
            }
            Act::Abort(at, index) => {
                next.faults -= 1;
                let statement = next.replicas[at].statements.remove(index);
                if statement.is_heard {
                    next.replicas[at].queue.insert(0, statement.call);
                }
            }
            Act::LoseConnection(at) => {
                next.faults -= 1;
                // The batch is written again by the next session.
                let replica = &mut next.replicas[at];
                for statement in replica.statements.iter_mut().filter(|it| it.is_heard) {
                    statement.is_heard = false;
                    replica.queue.insert(0, statement.call);
                }
                replica.session = 0;
            }
            Act::Reconnect(at) => {
                // It raises its session, and so waits for the locks of its earlier statements.
                if self.fence != Fence::Condition
                    && (self.holds_replica(world, at)
                        || world.generations[at] != world.replicas[at].generation)
                {
                    return None;
                }
                next.sessions[at] += 1;
                next.replicas[at].session = next.sessions[at];
            }
            Act::Arm(at, call) => {
                let replica = &mut next.replicas[at];
                replica.written.retain(|it| *it != call);
                if replica.has_lease {
                    replica.armed.push(call);
                }
            }
            Act::Send(at, call) => {
                next.replicas[at].armed.retain(|it| *it != call);
                next.effects[call] += 1;
            }
            Act::LeaseEnds(at) => next.replicas[at].has_lease = false,
            Act::Freeze(at) => {
                next.faults -= 1;
                next.replicas[at].is_frozen = true;
            }
            Act::Thaw(at) => next.replicas[at].is_frozen = false,
            Act::Die(at) => {
                next.faults -= 1;
                let replica = &mut next.replicas[at];
                (replica.is_dead, replica.has_lease) = (true, false);
                replica.statements.iter_mut().for_each(|statement| statement.is_heard = false);
                replica.queue.clear();
                replica.written.clear();
                replica.armed.clear();
            }
            Act::Fence(at) => {
                if self.holds_replica(world, at) {
                    return None;
                }
                next.generations[at] = 2;
            }
            Act::Claim(at) => {
                if world.generations[at] != 2 || self.holds_run(world, at) {
                    return None;
                }
                take_up(&mut next, 1 - at);
            }
            Act::HandOver(at) => {
                if self.holds_run(world, at) {
                    return None;
                }
                // Without the epoch, what is left in its queue carries what it owned.
                if self.fence != Fence::Lives {
                    next.replicas[at].drives = None;
                }
                take_up(&mut next, 1 - at);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one effect", |_, world: &World| {
                world.effects.iter().all(|effects| *effects <= 1)
            }),
            Property::sometimes("calls are made", |_, world: &World| world.effects == [1; CALLS]),
            Property::sometimes("a takeover makes calls", |_, world: &World| {
                world.generations[0] == 2 && world.owner == 1 && world.effects == [1; CALLS]
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        // Two handovers, or a takeover and one.
        world.epoch <= 3 && world.sessions.iter().all(|session| *session <= 3)
    }
}

fn checked(fence: Fence) -> impl Checker<Group> {
    Group { fence, faults: 2 }.checker().threads(2).spawn_bfs().join()
}

#[test]
fn our_fence_lets_no_effect_happen_twice() {
    let checker = checked(Fence::Ours);
    assert!(checker.unique_state_count() > 1_000, "{}", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn the_usual_fence_does() {
    checked(Fence::Condition).assert_any_discovery("at most one effect");
}

#[test]
fn a_fence_that_only_proves_that_the_replica_lives_does() {
    checked(Fence::Lives).assert_any_discovery("at most one effect");
}
