//! The rules that must always hold, checked against the log of the world. Shares no code with the machine, and never looks into one.

mod records;
mod sending;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use everlink::auth::Key;

use crate::fact::{Access, Fact, Pid};
use crate::mark::{Kind, Mark};
use crate::rule::Rule;
use crate::script::{Refreshes, Setup};

/// How long a token must have been of use, so that the next sign-in is a new matter, in milliseconds.
const LIVED: u64 = 600_000;
/// The longest time from a challenge to its outcome: a sign-in of another process, discovery with all its repetitions, and an own sign-in.
const OUTCOME: u64 = 4_200_000;
/// How many exchanges an hour may have, and how many more for each challenge.
const EXCHANGES: u64 = 60;
const EXCHANGES_PER_CHALLENGE: u64 = 25;
/// How many sign-ins may begin without a token that lived.
const SIGN_INS: u32 = 3;

/// How often a process must have tried to save before the result of a renewal may be lost.
const SAVES: u32 = 4;
/// How often a process must have tried to lock before it may renew without the lock.
const LOCKS: u32 = 8;

/// The time of a fact: milliseconds by the monotonic clock, and seconds by the wall clock of the computer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct When {
    pub(crate) mono: u64,
    pub(crate) unix: u64,
}

/// What the oracle knows of a family of tokens.
#[derive(Default)]
struct Family {
    is_revoked: bool,
    serial: usize,
    /// The renewals: by which process, and whether their result reached the store.
    rotations: Vec<Rotation>,
}

struct Rotation {
    from: usize,
    by: Pid,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The process has, or will have, the answer.
    UnderWay,
    /// The result never reached the store, and the process can do nothing about it.
    Lost,
    Stored,
}

/// Challenges that have no outcome yet.
#[derive(Clone, Copy)]
struct Open {
    since: u64,
    is_step_up: bool,
    /// Whether the token was refused altogether during a sign-in for a wider scope. That comes first, so the sign-in may begin anew.
    is_interrupted: bool,
    /// The token that is too narrow.
    narrow: Option<Mark>,
    /// The token that was refused last, and how many different ones were.
    refused: (Option<Mark>, u32),
    /// Whether the outcome is a token.
    has_token: bool,
    renewals: u32,
    sign_ins: u32,
    /// How often time jumped meanwhile, so that a new token may be over at once.
    jumps: u32,
    /// Whether there was an outcome. A sign-in for a wider scope may go on, while requests that carried an older token are told to use the present one.
    is_answered: bool,
}

/// What the oracle knows of a process.
#[derive(Default)]
struct Process {
    /// The lowest number of each family that the process does not know to be replaced.
    newest: BTreeMap<usize, usize>,
    /// The refresh tokens whose grant is over, as the process was told.
    ended: BTreeSet<Mark>,
    open: Option<Open>,
    /// The access token that the process has renewed last, and when.
    renewed: Option<(Mark, u64)>,
    /// The access token that was refused soon after it had been renewed.
    refused_soon: Option<Mark>,
    /// The record that it read when it had its turn to sign in.
    turn: Option<Vec<u8>>,
    /// The access tokens that it has read without a lock.
    loaded: BTreeSet<Mark>,
    /// The access tokens that it has used.
    used: BTreeSet<Mark>,
    /// The access token that came last.
    current: Option<Mark>,
    /// The same with its time, until it has excused earlier sign-ins.
    obtained: Option<(Mark, u64)>,
    sign_ins: u32,
    has_asked: bool,
    is_signing_out: bool,
    /// Whether the store could not delete a record at the sign-out that is under way.
    has_delete_failed: bool,
    /// The refresh tokens that the process signed out of, and that the store may still have because it could not delete them.
    undeleted: BTreeSet<Mark>,
    is_idle: bool,
    /// How many attempts to lock and to save failed, one after the other.
    failed_locks: u32,
    failed_saves: u32,
    /// The present hour, and the exchanges and the challenges in it.
    hour: (u64, u64, u64),
}

/// Judges the log of a world.
pub(crate) struct Oracle {
    is_rotating: bool,
    life: u64,
    issuer: usize,
    store: BTreeMap<Key, Vec<u8>>,
    families: Vec<Family>,
    /// When each access token expires, by the clock of the process that got it.
    expiries: BTreeMap<Mark, u64>,
    processes: Vec<Process>,
    /// How many sign-ins began since all faults are over, once they are.
    last_sign_ins: Option<u32>,
    clients_were_replaced: bool,
    has_lock_failed: bool,
    /// Whether clocks jumped or the store failed. Then it is not clear from outside when a token has lived.
    is_age_unclear: bool,
}

/// Ends the run: a rule is broken.
fn broken(rule: Rule, details: impl Display) -> ! {
    panic!("({}) {details}", rule as u8 + 1)
}

impl Oracle {
    pub(crate) fn new(setup: &Setup) -> Oracle {
        let count = usize::try_from(setup.processes).unwrap_or_default();
        Oracle {
            is_rotating: setup.refreshes == Refreshes::Rotating,
            life: setup.life,
            issuer: 0,
            store: BTreeMap::new(),
            families: Vec::new(),
            expiries: BTreeMap::new(),
            processes: (0..count).map(|_| Process::default()).collect(),
            last_sign_ins: None,
            clients_were_replaced: false,
            has_lock_failed: false,
            is_age_unclear: false,
        }
    }

    /// Judges a fact.
    pub(crate) fn observe(&mut self, when: When, pid: Pid, fact: &Fact<'_>) {
        match fact {
            Fact::Started => self.processes[pid] = Process::default(),
            Fact::Crashed => self.crashed(pid),
            Fact::Aborted => self.answer_lost(pid),
            Fact::StoreFailed { access } => {
                self.is_age_unclear = true;
                self.store_failed(pid, *access);
            }
            Fact::Sent { url, text } => self.sent(when, pid, url, text),
            Fact::TokensCame { access, refresh } => self.tokens_came(when, pid, *access, *refresh),
            Fact::GrantEnded { refresh } => drop(self.processes[pid].ended.insert(*refresh)),
            Fact::Issued { family } => {
                self.families.resize_with(*family + 1, Family::default);
            }
            Fact::Rotated { from } => self.rotated(pid, *from),
            Fact::Reused { token } => self.reused(pid, *token),
            Fact::Revoked { family } => self.families[*family].is_revoked = true,
            Fact::Moved { issuer } => self.issuer = *issuer,
            Fact::Read { lock, record } => self.read(when, pid, *lock, *record),
            Fact::Saved { key, record } => self.saved(pid, key, record),
            Fact::Deleted { key } => {
                if !self.processes[pid].is_signing_out {
                    broken(Rule::NothingIsForgotten, format!("{pid} deleted {key:?}"));
                }
                self.store.remove(*key);
            }
            Fact::Visited { url } => self.visited(when, pid, url),
            Fact::Challenged { token, is_step_up } => {
                self.challenged(when, pid, *token, *is_step_up);
            }
            Fact::CallSucceeded => {}
            Fact::SignInWanted => {
                self.processes[pid].sign_ins = 0;
                self.processes[pid].has_asked = true;
                self.open(when, pid, false);
            }
            Fact::SignOutWanted => {
                self.answer_lost(pid);
                let process = &mut self.processes[pid];
                process.is_signing_out = true;
                process.sign_ins = 0;
            }
            Fact::Authorized => {
                self.taken_over(when, pid);
                self.closed(when, pid, true);
            }
            Fact::Refused => {
                if self.processes[pid].open.is_none() {
                    broken(
                        Rule::OneFlow,
                        format!("{pid} reported a refusal that nobody waits for"),
                    );
                }
                self.closed(when, pid, false);
            }
            Fact::Rested { .. } => self.rested(when, pid, fact),
            Fact::TimeJumped => {
                self.is_age_unclear = true;
                for process in &mut self.processes {
                    if let Some(open) = &mut process.open {
                        open.jumps += 1;
                    }
                }
            }
            Fact::FaultsEnded => self.last_sign_ins = Some(0),
            Fact::Finished { has_token } => {
                if !has_token {
                    broken(
                        Rule::Recovers,
                        format!("{pid} got no token, though all faults are over"),
                    );
                }
            }
        }
    }

    /// The clients of the authorization server are no longer known, so one flow may ask twice.
    pub(crate) const fn clients_forgotten(&mut self) {
        self.clients_were_replaced = true;
    }

    fn crashed(&mut self, pid: Pid) {
        self.answer_lost(pid);
        self.processes[pid] = Process::default();
    }

    /// What the process was about to store is lost.
    fn answer_lost(&mut self, pid: Pid) {
        for family in &mut self.families {
            let rotations = family.rotations.iter_mut();
            for rotation in rotations.filter(|rotation| rotation.by == pid) {
                if rotation.fate == Fate::UnderWay {
                    rotation.fate = Fate::Lost;
                }
            }
        }
    }

    fn store_failed(&mut self, pid: Pid, access: Access) {
        let process = &mut self.processes[pid];
        match access {
            Access::Load => {}
            Access::Lock => {
                process.turn = None;
                process.failed_locks += 1;
                self.has_lock_failed = true;
            }
            Access::Save => {
                process.has_delete_failed |= process.is_signing_out;
                process.failed_saves += 1;
                if process.failed_saves >= SAVES {
                    self.answer_lost(pid);
                }
            }
        }
    }

    fn rotated(&mut self, pid: Pid, from: Mark) {
        let family = &mut self.families[from.family];
        family.serial += 1;
        family.rotations.push(Rotation {
            from: from.serial,
            by: pid,
            // A process that cannot take the lock must go on at some time.
            fate: if self.processes[pid].failed_locks >= LOCKS {
                Fate::Lost
            } else {
                Fate::UnderWay
            },
        });
    }

    fn reused(&mut self, pid: Pid, token: Mark) {
        let family = &mut self.families[token.family];
        family.is_revoked = true;
        let mut rotations = family.rotations.iter();
        let found = rotations.find(|rotation| rotation.from == token.serial);
        let is_lost = found.is_some_and(|rotation| rotation.fate == Fate::Lost);
        if is_lost || self.processes[pid].failed_locks >= LOCKS {
            return;
        }
        let by = found.map(|rotation| rotation.by);
        broken(
            Rule::FamilyIsKept,
            format!("{pid} used {token:?}, which {by:?} had renewed"),
        );
    }

    fn tokens_came(&mut self, when: When, pid: Pid, access: Mark, refresh: Option<Mark>) {
        self.forgive_if_lived(when, pid);
        self.expiries.insert(access, when.unix + self.life);
        let process = &mut self.processes[pid];
        process.obtained = Some((access, when.mono));
        process.current = Some(access);
        if let Some(refresh) = refresh {
            process.newest.insert(refresh.family, refresh.serial);
        }
        if access.serial == 0 {
            return;
        }
        process.renewed = Some((access, when.mono));
        let Some(open) = &mut process.open else {
            return;
        };
        open.renewals += 1;
        if open.renewals > open.refused.1 + open.jumps {
            broken(
                Rule::OneFlow,
                format!("{pid} renewed {} times for one challenge", open.renewals),
            );
        }
    }

    fn is_usable(&self, refresh: Mark) -> bool {
        let family = &self.families[refresh.family];
        let is_newest = !self.is_rotating || refresh.serial == family.serial;
        !family.is_revoked && is_newest && refresh.issuer == self.issuer
    }

    fn visited(&mut self, when: When, pid: Pid, url: &str) {
        for kind in Kind::ALL {
            if Mark::find(url, kind).is_some() {
                broken(
                    Rule::SecretsStayHome,
                    format!("{pid} showed {kind:?} to the browser"),
                );
            }
        }
        self.forgive_if_lived(when, pid);
        let process = &mut self.processes[pid];
        let turn = process.turn.as_deref();
        let refresh = Mark::find_in(turn, Kind::Refresh);
        let access = Mark::find_in(turn, Kind::Access);
        process.sign_ins += 1;
        let count = process.sign_ins;
        let is_step_up = process.open.is_some_and(|open| open.is_step_up);
        // What it renewed may not have been saved.
        let is_of_refused = |refused: Mark| {
            access.is_some_and(|access| access.family == refused.family && access <= refused)
        };
        let is_refused_soon = process.refused_soon.is_some_and(is_of_refused);
        let (mut of_flow, mut jumps) = (0, 0);
        if let Some(open) = &mut process.open {
            open.sign_ins += 1;
            (of_flow, jumps) = (open.sign_ins, open.jumps + u32::from(open.is_interrupted));
        }
        // The person has signed out of these tokens, so the process must not take them over.
        let is_signed_out = refresh.is_some_and(|mark| process.undeleted.contains(&mark));
        let is_needed = is_step_up || is_refused_soon || is_signed_out;
        if !is_needed && refresh.is_some_and(|mark| self.is_usable(mark)) {
            broken(
                Rule::NoNeedlessSignIn,
                format!("{pid} opened a browser, and the store has {refresh:?}"),
            );
        }
        // A token can expire in a sleep before it was used.
        if of_flow > (1 + jumps) * (1 + u32::from(self.clients_were_replaced)) {
            broken(
                Rule::OneFlow,
                format!("{pid} opened {of_flow} browsers for one challenge"),
            );
        }
        // The application has asked for one of them itself.
        let sign_ins =
            SIGN_INS + u32::from(self.processes[pid].has_asked) + u32::from(self.is_age_unclear);
        // A client that is no longer known leads to another request in the same sign-in.
        let most = sign_ins * (1 + u32::from(self.clients_were_replaced));
        if count > most {
            broken(
                Rule::FewSignIns,
                format!("{pid} opened {count} browsers without a token that lived"),
            );
        }
        if let Some(last) = &mut self.last_sign_ins {
            *last += 1;
            if *last > 1 + u32::from(self.clients_were_replaced) {
                broken(
                    Rule::Recovers,
                    "more than one sign-in was needed after all faults were over",
                );
            }
        }
    }

    /// Counts sign-ins anew if the last token was of use. Each token counts once.
    fn forgive_if_lived(&mut self, when: When, pid: Pid) {
        // Tokens are renewed a minute before they expire.
        let is_of_use = self.has_lived(when, pid, 60);
        let process = &mut self.processes[pid];
        // Nothing is used up while there is nothing to excuse: the process may count the token later than the oracle.
        if is_of_use && process.sign_ins > 0 {
            process.sign_ins = 0;
            process.obtained = None;
        }
    }

    /// Whether the last token has lived for ten minutes, or ends in this many seconds, and has excused nothing yet.
    fn has_lived(&self, when: When, pid: Pid, margin: u64) -> bool {
        self.processes[pid].obtained.is_some_and(|(access, at)| {
            let expiry = self.expiries.get(&access).copied().unwrap_or(u64::MAX);
            when.mono >= at + LIVED || when.unix + margin >= expiry
        })
    }

    fn open(&mut self, when: When, pid: Pid, is_step_up: bool) {
        let open = self.processes[pid].open.get_or_insert(Open {
            since: when.mono,
            is_step_up: false,
            is_interrupted: false,
            narrow: None,
            refused: (None, 1),
            has_token: false,
            renewals: 0,
            sign_ins: 0,
            jumps: 0,
            is_answered: false,
        });
        if open.is_answered {
            open.is_answered = false;
            open.since = when.mono;
        }
        open.is_interrupted |= open.is_step_up && !is_step_up;
        open.is_step_up |= is_step_up;
    }

    fn challenged(&mut self, when: When, pid: Pid, token: Option<Mark>, is_step_up: bool) {
        self.open(when, pid, is_step_up);
        let has_lived = self.has_lived(when, pid, 0);
        let process = &mut self.processes[pid];
        if has_lived && process.is_idle && token == process.current {
            // The process counts the token now, even if there is nothing to excuse.
            process.sign_ins = 0;
            process.obtained = None;
        }
        if let Some(open) = process.open.as_mut().filter(|_| token.is_some()) {
            // A renewal before the first challenge was one that the application asked for.
            let has_reason = open.refused.0.is_some() || open.renewals > 0;
            let is_other = has_reason && open.refused.0 != token;
            open.refused = (token, open.refused.1 + u32::from(is_other));
            if token == process.current {
                // The token of a sign-in may be refused before its outcome is told. That is a challenge of its own.
                open.sign_ins = 0;
            }
        }
        // During a renewal, the request is told to use the renewed token, and is refused once more.
        let is_alone = is_step_up && process.is_idle;
        if let Some(open) = process.open.as_mut().filter(|_| is_alone) {
            open.narrow = token;
        }
        if process.hour.0 != when.mono / 3_600_000 {
            process.hour = (when.mono / 3_600_000, 0, 0);
        }
        process.hour.2 += 1;
        let renewed = process.renewed.filter(|(of, _)| Some(*of) == token);
        if let Some((access, at)) = renewed {
            if when.mono < at + LIVED {
                process.refused_soon = Some(access);
            }
        }
    }

    /// The process uses its newest token from now on. It may have seen it before, when it could not use it.
    fn taken_over(&mut self, when: When, pid: Pid) {
        let process = &mut self.processes[pid];
        if let Some(access) = process.current {
            if process.used.insert(access) {
                process.obtained = Some((access, when.mono));
            }
        }
    }

    fn closed(&mut self, when: When, pid: Pid, has_token: bool) {
        let Some(open) = &mut self.processes[pid].open else {
            return;
        };
        let before = *open;
        open.is_answered = true;
        open.has_token = has_token;
        self.check_age(when, pid, before);
    }

    fn check_age(&mut self, when: When, pid: Pid, open: Open) {
        if when.mono > open.since + OUTCOME && !open.is_answered {
            let minutes = (when.mono - open.since) / 60_000;
            broken(
                Rule::OneFlow,
                format!("a challenge of {pid} had no outcome for {minutes} minutes"),
            );
        }
    }

    fn rested(&mut self, when: When, pid: Pid, fact: &Fact<'_>) {
        let Fact::Rested {
            is_idle,
            has_deadline,
            spins,
            locks,
            is_redirect_open,
        } = fact
        else {
            return;
        };
        if !is_idle && !has_deadline {
            broken(
                Rule::NoEndlessWait,
                format!("{pid} waits without a deadline"),
            );
        }
        if *is_idle && (*locks > 0 || *is_redirect_open) {
            broken(
                Rule::NoEndlessWait,
                format!("{pid} is idle with {locks} locks; redirect open: {is_redirect_open}"),
            );
        }
        if *spins > 3 {
            broken(Rule::NoHotLoop, format!("a deadline of {pid} stays due"));
        }
        self.processes[pid].is_idle = *is_idle;
        if *is_idle {
            self.processes[pid].is_signing_out = false;
            self.processes[pid].has_delete_failed = false;
        }
        if let Some(open) = self.processes[pid].open {
            if *is_idle {
                self.processes[pid].open = None;
            }
            let is_same = open.narrow.is_some() && open.narrow == self.processes[pid].current;
            if *is_idle && is_same && open.has_token && open.is_answered {
                broken(
                    Rule::OneFlow,
                    format!("{pid} shall use a token again that is too narrow"),
                );
            }
            if *is_idle && !open.is_answered {
                broken(
                    Rule::OneFlow,
                    format!("{pid} is idle, and a challenge has no outcome"),
                );
            }
            self.check_age(when, pid, open);
        }
    }
}
