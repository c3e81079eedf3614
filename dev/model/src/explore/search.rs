//! The search itself: words, level by level. Knows no machine.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use everlink::Instant;

use super::{Bounds, Sight};
use crate::app::Transcript;

/// Letters after which two words that count as the same must still look the same.
const CONTINUATION: usize = 12;

/// What is explored: how it begins, and what can happen to it.
pub(crate) struct Machine<W> {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> W,
    pub(crate) letters: Vec<Deed<W>>,
    /// What is done at the end of a word to see what comes of it, and to judge that.
    pub(crate) futures: Vec<Deed<W>>,
}

/// Something that happens, by name.
pub(crate) type Deed<W> = (&'static str, fn(&mut W));

/// A machine with all that is around it, in the middle of its life.
pub(crate) trait World {
    /// Looks at all that can be seen without doing anything.
    fn look(&self, sight: &mut Sight);

    /// What time it is.
    fn now(&self) -> Instant;

    /// Where it is noted what comes out.
    fn transcript(&mut self) -> &mut Transcript;

    /// Whether anything was done to the machine since this was asked last. What looks the same after a deed that did nothing is
    /// the same.
    fn was_touched(&mut self) -> bool;
}

/// What was explored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Which machine.
    pub machine: &'static str,
    /// How many letters its alphabet has.
    pub letters: usize,
    /// The length of the longest words that were played.
    pub depth: usize,
    /// How many states were found that differ. Those of words of full length are not told apart any more.
    pub states: usize,
    /// How many letters were played and judged, each after another word.
    pub edges: usize,
    /// Whether nothing new was found in the end: longer words lead nowhere else.
    pub is_complete: bool,
    /// How many merged words were continued.
    pub pairs: usize,
    /// Those of them that should not have been merged.
    pub differing: Vec<Difference>,
}

/// Two words that look the same, and so does all that was tried after them, but not this.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The two.
    pub words: [Vec<&'static str>; 2],
    /// What shows it.
    pub then: Vec<&'static str>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = self.words.each_ref().map(|word| word.join(", "));
        write!(f, "  {one}\n  {other}\n    then {}", self.then.join(", "))
    }
}

/// A rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// By which machine.
    pub machine: &'static str,
    /// After these letters, the last of which may be a future.
    pub word: Vec<&'static str>,
    /// What the rule says.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.machine, self.what)?;
        for (at, letter) in self.word.iter().enumerate() {
            writeln!(f, "{:>4}. {letter}", at + 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// Some letters in a row, and the state that they lead to.
#[derive(Clone, Copy)]
struct Word {
    len: u8,
    letters: [u8; Word::LONGEST],
}

impl Word {
    const LONGEST: usize = 15;

    const EMPTY: Word = Word {
        len: 0,
        letters: [0; Word::LONGEST],
    };

    fn letters(&self) -> &[u8] {
        &self.letters[..usize::from(self.len)]
    }

    fn and(mut self, letter: usize) -> Word {
        self.letters[usize::from(self.len)] = u8::try_from(letter).expect("a small alphabet");
        self.len += 1;
        self
    }
}

/// What is known of a word when all that can follow on it was played.
struct Judgement {
    /// The fingerprint of where it leads.
    digest: u64,
    /// The letters after which nothing came out, no time had passed and everything looked as before, a bit for each.
    idle: u32,
}

/// All words of up to `bounds.depth` letters.
pub(crate) fn search<W: World>(machine: &Machine<W>, bounds: Bounds) -> Result<Report, Violation> {
    let letters = machine.letters.len();
    let mut known: HashMap<u64, Word> = HashMap::new();
    let mut merged: Vec<[Word; 2]> = Vec::new();
    let mut level = vec![Word::EMPTY];
    let (mut depth, mut edges) = (0, 0);
    while depth < bounds.depth && !level.is_empty() {
        let judgements = judge_all(machine, &level, bounds.threads)?;
        edges += level.len() * letters;
        depth += 1;
        let mut next = Vec::new();
        for (word, Judgement { digest, idle }) in level.into_iter().zip(judgements) {
            if let Some(same) = known.get(&digest) {
                merged.push([*same, word]);
                continue;
            }
            known.insert(digest, word);
            for letter in 0..letters {
                if idle & (1 << letter) == 0 {
                    next.push(word.and(letter));
                } else {
                    merged.push([word, word.and(letter)]);
                }
            }
        }
        level = next;
    }
    let stride = merged.len().div_ceil(bounds.pairs.max(1)).max(1);
    let pairs: Vec<[Word; 2]> = merged
        .into_iter()
        .step_by(stride)
        .take(bounds.pairs)
        .collect();
    let differing = differing(machine, &pairs)?;
    Ok(Report {
        machine: machine.name,
        letters,
        depth,
        states: known.len(),
        edges,
        is_complete: level.is_empty(),
        pairs: pairs.len(),
        differing,
    })
}

/// What is known of all these words, in their order; or what is broken by the first of them that breaks something.
fn judge_all<W: World>(
    machine: &Machine<W>,
    words: &[Word],
    threads: usize,
) -> Result<Vec<Judgement>, Violation> {
    // Threads take words in order, so all before one that is broken are judged.
    let (next, broken_at) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let judged = Mutex::new(Vec::with_capacity(words.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(word) = words.get(at) else { break };
                    if at > broken_at.load(Ordering::Relaxed) {
                        break;
                    }
                    let judgement = judge(machine, word);
                    if judgement.is_err() {
                        broken_at.fetch_min(at, Ordering::Relaxed);
                    }
                    own.push((at, judgement));
                }
                judged.lock().expect("no thread died").append(&mut own);
            });
        }
    });
    let mut judged = judged.into_inner().expect("no thread died");
    judged.sort_unstable_by_key(|(at, _)| *at);
    judged.into_iter().map(|(_, judgement)| judgement).collect()
}

/// Plays all that can follow on a word.
fn judge<W: World>(machine: &Machine<W>, word: &Word) -> Result<Judgement, Violation> {
    let mut fingerprint = DefaultHasher::new();
    let mut idle = 0;
    // What is seen at first is the same each time, since the same is played.
    let mut first: Option<Sight> = None;
    let mut untouched: Option<W> = None;
    let letters = machine.letters.iter().enumerate();
    let letters = letters.map(|(at, letter)| (1 << at, letter));
    for (bit, deed) in machine.futures.iter().map(|deed| (0, deed)).chain(letters) {
        let seen = judged(machine, word.letters(), *deed, || {
            let mut world = untouched
                .take()
                .unwrap_or_else(|| played(machine, word.letters()));
            let first = first.get_or_insert_with(|| sight(&world));
            *world.transcript() = Transcript::Seen(Box::new(first.clone()));
            world.was_touched();
            let then = world.now();
            (deed.1)(&mut world);
            let seen = glance(&mut world);
            let is_quiet = seen.outputs == 0 && world.now() == then;
            if is_quiet && sight(&world).digest() == first.digest() {
                idle |= bit;
                untouched = (!world.was_touched()).then_some(world);
            }
            seen.digest
        })?;
        fingerprint.write_u64(seen);
    }
    Ok(Judgement {
        digest: fingerprint.finish(),
        idle,
    })
}

fn sight<W: World>(world: &W) -> Sight {
    let mut sight = Sight::default();
    world.look(&mut sight);
    sight
}

/// A world after these letters.
fn played<W: World>(machine: &Machine<W>, word: &[u8]) -> W {
    let mut world = (machine.start)();
    *world.transcript() = Transcript::Unseen;
    for letter in word {
        (machine.letters[usize::from(*letter)].1)(&mut world);
    }
    world
}

/// What was seen of a world that is watched.
struct Glance {
    digest: u64,
    outputs: usize,
}

/// Looks at a world that is watched. All that was seen of it by now.
fn glance<W: World>(world: &mut W) -> Glance {
    let watched = std::mem::replace(world.transcript(), Transcript::Unseen);
    let Transcript::Seen(mut sight) = watched else {
        panic!("nobody watches");
    };
    world.look(&mut sight);
    let (digest, outputs) = (sight.digest(), sight.outputs());
    *world.transcript() = Transcript::Seen(sight);
    Glance { digest, outputs }
}

/// Those of these pairs that do not look the same for ever.
fn differing<W: World>(
    machine: &Machine<W>,
    pairs: &[[Word; 2]],
) -> Result<Vec<Difference>, Violation> {
    let mut differing = Vec::new();
    let mut seed = 1_u64;
    for pair in pairs {
        let mut then = Vec::new();
        for _ in 0..CONTINUATION {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let letter = (seed >> 33) as usize % machine.letters.len();
            then.push(u8::try_from(letter).expect("a small alphabet"));
        }
        let [one, other] = pair.map(|word| story(machine, &word, &then));
        let (one, other) = (one?, other?);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        differing.extend(differs.map(|at| Difference {
            words: pair.map(|word| names(machine, word.letters())),
            then: names(machine, &then[..at]),
        }));
    }
    Ok(differing)
}

/// What is seen of a word and after each letter of its continuation.
fn story<W: World>(
    machine: &Machine<W>,
    word: &Word,
    continuation: &[u8],
) -> Result<Vec<u64>, Violation> {
    let whole = [word.letters(), continuation].concat();
    judged(machine, &whole, ("nothing", |_| {}), || {
        let mut world = played(machine, word.letters());
        *world.transcript() = Transcript::Seen(Box::default());
        let mut seen = vec![glance(&mut world).digest];
        for letter in continuation {
            (machine.letters[usize::from(*letter)].1)(&mut world);
            seen.push(glance(&mut world).digest);
        }
        seen
    })
}

fn judged<W, T>(
    machine: &Machine<W>,
    word: &[u8],
    last: Deed<W>,
    play: impl FnOnce() -> T,
) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let fixed = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let mut word = names(machine, word);
        word.push(last.0);
        Violation {
            machine: machine.name,
            word,
            what: text.or(fixed).unwrap_or_default(),
        }
    })
}

fn names<W>(machine: &Machine<W>, word: &[u8]) -> Vec<&'static str> {
    let names = word
        .iter()
        .map(|letter| machine.letters[usize::from(*letter)].0);
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts to four and begins again; what it hides is whether it was ever asked to.
    struct Toy {
        count: u8,
        resets: u8,
        transcript: Transcript,
    }

    impl World for Toy {
        fn look(&self, sight: &mut Sight) {
            sight.plain(self.count);
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

    fn toy(letters: &[Deed<Toy>]) -> Machine<Toy> {
        Machine {
            name: "toy",
            start: || Toy {
                count: 0,
                resets: 0,
                transcript: Transcript::Unseen,
            },
            letters: letters.to_vec(),
            futures: vec![("nothing", |_| {})],
        }
    }

    const COUNT: Deed<Toy> = ("count", |toy| toy.count = (toy.count + 1) % 5);
    const RESET: Deed<Toy> = ("reset", |toy| {
        toy.count = 0;
        toy.resets += 1;
    });
    const JUDGE: Deed<Toy> = ("judge", |toy| assert_ne!(toy.count, 3, "three is wrong"));

    #[test]
    fn what_is_broken_is_found_by_the_shortest_word() {
        for threads in [1, 3] {
            let bounds = Bounds::depth(9).with_threads(threads);
            let found = search(&toy(&[RESET, JUDGE, COUNT]), bounds).unwrap_err();
            assert_eq!(found.word, ["count", "count", "count", "judge"]);
            assert!(found.what.contains("three is wrong"), "{found}");
        }
    }

    #[test]
    fn a_search_ends_when_nothing_new_is_found() {
        let report = search(&toy(&[COUNT, RESET]), Bounds::depth(9)).unwrap();
        assert!(report.is_complete);
        assert_eq!((report.states, report.depth), (5, 6));
        // The empty word, and each letter after each state but the one that does nothing in the first; each of these words is
        // looked at with both letters.
        assert_eq!(report.edges, (1 + 5 * 2 - 1) * 2);
    }

    #[test]
    fn states_that_are_merged_and_differ_are_noticed() {
        const TELL: Deed<Toy> = ("tell", |toy| {
            let is_told = toy.count == 1 && toy.resets > 0;
            toy.transcript.note(&is_told);
        });
        let machine = toy(&[COUNT, RESET, TELL]);
        let bounds = Bounds::depth(4).with_pairs(100);
        assert_ne!(search(&machine, bounds).unwrap().differing, []);
    }
}
