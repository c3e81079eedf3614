//! The search: all sequences of operations, level by level. Knows no machine.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everlink::Instant;

use super::{Bounds, StateView};
use crate::world::Transcript;

/// The number of operations after which two sequences that count as the same must still look the same.
const CONTINUATION: usize = 12;

/// What is explored: how it begins, and what can happen to it.
pub(crate) struct Machine<W> {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> W,
    pub(crate) actions: Vec<Action<W>>,
    /// Whether only the first of the sequences that look the same is continued. Not if states can differ in something that is not seen.
    pub(crate) merges: bool,
    /// What is done after each sequence to see what becomes of it, and to judge that.
    pub(crate) endings: Vec<Action<W>>,
}

/// Something that happens, with its name.
pub(crate) type Action<W> = (&'static str, Box<dyn Fn(&mut W) + Sync>);

/// A machine and its surroundings, in the middle of a run.
pub(crate) trait Explored {
    /// Sees everything that can be seen without doing anything.
    fn look(&self, view: &mut StateView);
    fn now(&self) -> Instant;
    fn transcript(&mut self) -> &mut Transcript;
    /// Whether anything was done to the machine since the last call. A world that was not touched need not be built anew.
    fn was_touched(&mut self) -> bool;
}

/// What was explored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Which machine.
    pub machine: &'static str,
    /// How many actions it has.
    pub actions: usize,
    /// The length of the longest sequences that were performed.
    pub depth: usize,
    /// How many different states were found. Those after sequences of full length are not compared any more.
    pub states: usize,
    /// How many actions were performed and judged, each after another sequence.
    pub edges: usize,
    /// Whether nothing new was found in the end: longer sequences lead nowhere else.
    pub is_complete: bool,
    /// How many merged sequences were continued.
    pub pairs: usize,
    /// Those of them that should not have been merged.
    pub differing: Vec<Difference>,
}

/// Two sequences that looked the same, and that these actions tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The two.
    pub sequences: [Vec<&'static str>; 2],
    /// What shows the difference.
    pub then: Vec<&'static str>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = self.sequences.each_ref().map(|names| names.join(", "));
        write!(f, "  {one}\n  {other}\n    then {}", self.then.join(", "))
    }
}

/// A rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// By which machine.
    pub machine: &'static str,
    /// After these actions, the last of which may be an ending.
    pub sequence: Vec<&'static str>,
    /// What the rule says.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.machine, self.what)?;
        for (at, action) in self.sequence.iter().enumerate() {
            writeln!(f, "{:>4}. {action}", at + 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// Some actions in a row, by their places.
#[derive(Clone, Copy)]
struct Sequence {
    len: u8,
    actions: [u8; Sequence::LONGEST],
}

impl Sequence {
    const LONGEST: usize = 15;

    const EMPTY: Sequence = Sequence {
        len: 0,
        actions: [0; Sequence::LONGEST],
    };

    fn actions(&self) -> &[u8] {
        &self.actions[..usize::from(self.len)]
    }

    fn and(mut self, action: usize) -> Sequence {
        self.actions[usize::from(self.len)] = u8::try_from(action).expect("few actions");
        self.len += 1;
        self
    }
}

/// What is known of a sequence when every action and every ending was performed after it.
struct Judgement {
    /// The fingerprint of the state it leads to.
    digest: u64,
    /// The actions that did nothing, a bit for each: nothing was done to the machine, no output, no time passed, and the state looks the same.
    idle: u32,
}

/// All sequences of up to `bounds.depth` actions.
pub(super) fn search<W: Explored>(
    machine: &Machine<W>,
    bounds: Bounds,
) -> Result<Report, Violation> {
    let actions = machine.actions.len();
    let mut known: HashMap<u64, Sequence> = HashMap::new();
    let mut merged: Vec<[Sequence; 2]> = Vec::new();
    let mut level = vec![Sequence::EMPTY];
    let (mut depth, mut edges) = (0, 0);
    while depth < bounds.depth && !level.is_empty() {
        let judgements = judge_all(machine, &level, bounds.threads)?;
        edges += level.len() * actions;
        depth += 1;
        let mut next = Vec::new();
        for (sequence, Judgement { digest, idle }) in level.into_iter().zip(judgements) {
            if let Some(same) = known.get(&digest).filter(|_| machine.merges) {
                merged.push([*same, sequence]);
                continue;
            }
            known.insert(digest, sequence);
            for action in 0..actions {
                if idle & (1 << action) == 0 {
                    next.push(sequence.and(action));
                } else {
                    merged.push([sequence, sequence.and(action)]);
                }
            }
        }
        level = next;
    }
    let stride = merged.len().div_ceil(bounds.pairs.max(1)).max(1);
    let pairs = merged.into_iter().step_by(stride).take(bounds.pairs);
    let pairs: Vec<[Sequence; 2]> = pairs.collect();
    let differing = differing(machine, &pairs)?;
    Ok(Report {
        machine: machine.name,
        actions,
        depth,
        states: known.len(),
        edges,
        is_complete: level.is_empty(),
        pairs: pairs.len(),
        differing,
    })
}

/// Judges all these sequences, in their order; or returns what the first one breaks that breaks a rule.
fn judge_all<W: Explored>(
    machine: &Machine<W>,
    sequences: &[Sequence],
    threads: usize,
) -> Result<Vec<Judgement>, Violation> {
    // Threads take sequences in order, so all before a broken one are judged.
    let (next, broken_at) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let judged = Mutex::new(Vec::with_capacity(sequences.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let is_wanted = at <= broken_at.load(Ordering::Relaxed);
                    let Some(sequence) = sequences.get(at).filter(|_| is_wanted) else {
                        break;
                    };
                    let judgement = judge(machine, sequence.actions());
                    if judgement.is_err() {
                        broken_at.fetch_min(at, Ordering::Relaxed);
                    }
                    judged.lock().expect("no panic").push((at, judgement));
                }
            });
        }
    });
    let mut judged = judged.into_inner().expect("no panic");
    judged.sort_unstable_by_key(|(at, _)| *at);
    judged.into_iter().map(|(_, judgement)| judgement).collect()
}

/// Performs everything that can follow on a sequence.
fn judge<W: Explored>(machine: &Machine<W>, sequence: &[u8]) -> Result<Judgement, Violation> {
    let mut fingerprint = DefaultHasher::new();
    let mut idle = 0;
    // The first view is the same each time, since the same was performed.
    let mut first: Option<StateView> = None;
    let mut untouched: Option<W> = None;
    let actions = machine.actions.iter().enumerate();
    let actions = actions.map(|(at, action)| (1 << at, action));
    let endings = machine.endings.iter().map(|ending| (0, ending));
    for (bit, (name, act)) in endings.chain(actions) {
        let digest = caught(machine, sequence, name, || {
            let world = untouched.take();
            let mut world = world.unwrap_or_else(|| performed(machine, sequence));
            let first = first.get_or_insert_with(|| view(&world));
            *world.transcript() = Transcript::Seen(Box::new(first.clone()));
            world.was_touched();
            let then = world.now();
            act(&mut world);
            let mut seen = seen(&mut world);
            // A deadline behind the next one shows only in how long an ending takes.
            seen.since(world.now(), Some(then), Duration::MAX);
            let is_quiet = seen.outputs() == 0 && world.now() == then;
            if is_quiet && !world.was_touched() && view(&world).digest() == first.digest() {
                idle |= bit;
                untouched = Some(world);
            }
            seen.digest()
        })?;
        fingerprint.write_u64(digest);
    }
    let digest = fingerprint.finish();
    Ok(Judgement { digest, idle })
}

fn view<W: Explored>(world: &W) -> StateView {
    let mut view = StateView::default();
    world.look(&mut view);
    view
}

/// A world after these actions.
fn performed<W: Explored>(machine: &Machine<W>, sequence: &[u8]) -> W {
    let mut world = (machine.start)();
    *world.transcript() = Transcript::Unseen;
    for action in sequence {
        (machine.actions[usize::from(*action)].1)(&mut world);
    }
    world
}

/// Everything that was seen of a world by now, its state included.
fn seen<W: Explored>(world: &mut W) -> StateView {
    let transcript = std::mem::replace(world.transcript(), Transcript::Unseen);
    let Transcript::Seen(mut view) = transcript else {
        panic!("nothing was seen");
    };
    world.look(&mut view);
    *world.transcript() = Transcript::Seen(view.clone());
    *view
}

/// Those of these pairs that a random continuation tells apart.
fn differing<W: Explored>(
    machine: &Machine<W>,
    pairs: &[[Sequence; 2]],
) -> Result<Vec<Difference>, Violation> {
    let mut differing = Vec::new();
    let mut seed = 1_u64;
    for pair in pairs {
        let mut then = Vec::new();
        for _ in 0..CONTINUATION {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let action = (seed >> 33) as usize % machine.actions.len();
            then.push(u8::try_from(action).expect("few actions"));
        }
        let [one, other] = pair.map(|sequence| digests(machine, sequence.actions(), &then));
        let (one, other) = (one?, other?);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        differing.extend(differs.map(|at| Difference {
            sequences: pair.map(|sequence| names(machine, sequence.actions())),
            then: names(machine, &then[..at]),
        }));
    }
    Ok(differing)
}

/// Whether only one of these sequences would be continued.
#[cfg(test)]
pub(super) fn are_merged<W: Explored>(machine: &Machine<W>, sequences: [&[&str]; 2]) -> bool {
    let place = |name: &&str| {
        let place = machine.actions.iter().position(|action| action.0 == *name);
        u8::try_from(place.expect("an action")).expect("few actions")
    };
    let [one, other] = sequences.map(|names| {
        let sequence: Vec<u8> = names.iter().map(place).collect();
        let judgement = judge(machine, &sequence);
        let digest = judgement.map(|judgement| judgement.digest);
        digest.unwrap_or_else(|violation| panic!("{violation}"))
    });
    one == other
}

/// What is seen after a sequence and after each action of its continuation.
fn digests<W: Explored>(
    machine: &Machine<W>,
    sequence: &[u8],
    continuation: &[u8],
) -> Result<Vec<u64>, Violation> {
    let whole = [sequence, continuation].concat();
    caught(machine, &whole, "nothing", || {
        let mut world = performed(machine, sequence);
        *world.transcript() = Transcript::Seen(Box::default());
        let mut digests = vec![seen(&mut world).digest()];
        for action in continuation {
            (machine.actions[usize::from(*action)].1)(&mut world);
            digests.push(seen(&mut world).digest());
        }
        digests
    })
}

fn caught<W, T>(
    machine: &Machine<W>,
    sequence: &[u8],
    last: &'static str,
    act: impl FnOnce() -> T,
) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let fixed = payload.downcast_ref::<&str>().map(|text| text.to_string());
        let mut sequence = names(machine, sequence);
        sequence.push(last);
        Violation {
            machine: machine.name,
            sequence,
            what: text.or(fixed).unwrap_or_default(),
        }
    })
}

fn names<W>(machine: &Machine<W>, sequence: &[u8]) -> Vec<&'static str> {
    let names = sequence
        .iter()
        .map(|at| machine.actions[usize::from(*at)].0);
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts to four and begins again. It hides whether it was ever reset.
    struct Toy {
        count: u8,
        resets: u8,
        transcript: Transcript,
    }

    impl Explored for Toy {
        fn look(&self, view: &mut StateView) {
            view.plain(self.count);
        }

        fn now(&self) -> Instant {
            Instant::ZERO
        }

        fn transcript(&mut self) -> &mut Transcript {
            &mut self.transcript
        }

        fn was_touched(&mut self) -> bool {
            true
        }
    }

    fn toy(actions: Vec<Action<Toy>>) -> Machine<Toy> {
        Machine {
            name: "toy",
            merges: true,
            start: || Toy {
                count: 0,
                resets: 0,
                transcript: Transcript::Unseen,
            },
            actions,
            endings: vec![("nothing", Box::new(|_| {}))],
        }
    }

    fn count() -> Action<Toy> {
        ("count", Box::new(|toy| toy.count = (toy.count + 1) % 5))
    }

    fn reset() -> Action<Toy> {
        let act = |toy: &mut Toy| {
            toy.count = 0;
            toy.resets += 1;
        };
        ("reset", Box::new(act))
    }

    fn judge_three() -> Action<Toy> {
        let act = |toy: &mut Toy| assert_ne!(toy.count, 3, "three is wrong");
        ("judge", Box::new(act))
    }

    #[test]
    fn a_broken_rule_is_found_by_the_shortest_sequence() {
        for threads in [1, 3] {
            let bounds = Bounds::depth(9).with_threads(threads);
            let found = search(&toy(vec![reset(), judge_three(), count()]), bounds).unwrap_err();
            assert_eq!(found.sequence, ["count", "count", "count", "judge"]);
            assert!(found.what.contains("three is wrong"), "{found}");
        }
    }

    #[test]
    fn a_search_ends_when_nothing_new_is_found() {
        let report = search(&toy(vec![count(), reset()]), Bounds::depth(9)).unwrap();
        assert!(report.is_complete);
        assert_eq!((report.states, report.depth), (5, 6));
        // The empty sequence, and each action after each state; each of these sequences is judged with both actions.
        assert_eq!(report.edges, (1 + 5 * 2) * 2);
    }

    #[test]
    fn states_that_are_merged_and_differ_are_noticed() {
        let tell = |toy: &mut Toy| {
            let is_told = toy.count == 1 && toy.resets > 0;
            toy.transcript.note(&is_told);
        };
        let machine = toy(vec![count(), reset(), ("tell", Box::new(tell))]);
        let bounds = Bounds::depth(4).with_pairs(100);
        assert_ne!(search(&machine, bounds).unwrap().differing, []);
    }
}
