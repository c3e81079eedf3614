//! A process of the simulated world: an authorizer, what its driver has under way, and its application.

use std::time::Duration;

use everlink::auth::{Authorizer, Config, ExchangeId, Key, Lock, Output, TokenId};
use everlink::http::Url;

use crate::mark::Mark;
use crate::site::{Effect, SERVER};

/// How often an application repeats a call that was refused.
pub(crate) const RETRIES: u8 = 2;

/// The kind of an output, to choose the one at which a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    Load,
    Lock,
    Unlock,
    Save,
    Request,
    Prepare,
    Visit,
    Other,
}

impl OutputKind {
    pub(crate) const ALL: [OutputKind; 8] = [
        OutputKind::Load,
        OutputKind::Lock,
        OutputKind::Unlock,
        OutputKind::Save,
        OutputKind::Request,
        OutputKind::Prepare,
        OutputKind::Visit,
        OutputKind::Other,
    ];

    pub(crate) const fn of(output: &Output) -> OutputKind {
        match output {
            Output::Load { .. } => OutputKind::Load,
            Output::Lock { .. } => OutputKind::Lock,
            Output::Unlock { .. } => OutputKind::Unlock,
            Output::Save { .. } | Output::Delete { .. } => OutputKind::Save,
            Output::Request(_) => OutputKind::Request,
            Output::Prepare(_) => OutputKind::Prepare,
            Output::Visit { .. } => OutputKind::Visit,
            _ => OutputKind::Other,
        }
    }
}

/// When a process dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrashPlan {
    pub(crate) at: OutputKind,
    /// Whether the output is carried out first.
    pub(crate) is_after: bool,
}

/// Something that reaches a process later.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Response {
        exchange: ExchangeId,
        status: u16,
        retry_after: Option<u64>,
        body: String,
        effect: Effect,
    },
    Failed {
        exchange: ExchangeId,
    },
    Loaded {
        record: Option<Vec<u8>>,
    },
    Locked {
        key: Key,
        lock: Lock,
    },
    Prepared {
        redirect_uri: String,
    },
    Redirected {
        query: String,
    },
    Saved,
    StoreFailed,
    /// The server judges a call.
    Call {
        token: Option<(TokenId, Mark)>,
        retries: u8,
    },
}

/// A process. It does not run if it has no authorizer.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) auth: Option<Authorizer>,
    /// Counts the starts, so that nothing reaches a later process that was meant for an earlier one.
    pub(crate) life: u64,
    /// When it began, in milliseconds.
    pub(crate) born: u64,
    /// The deadline of the authorizer, in milliseconds of the world.
    pub(crate) deadline: Option<u64>,
    pub(crate) spins: u32,
    /// When the last answer of the store arrives. Answers stay in order.
    pub(crate) store_at: u64,
    pub(crate) exchange: Option<ExchangeId>,
    pub(crate) crash: Option<CrashPlan>,
    pub(crate) is_redirect_open: bool,
    /// How many calls wait for a token that is being loaded or renewed.
    pub(crate) waiting: Vec<u8>,
    /// The calls that were refused, each with the number of repetitions left.
    pub(crate) refused: Vec<u8>,
    pub(crate) successes: u64,
}

/// The settings of every process.
pub(crate) fn config() -> Config {
    let mut config = Config::new(Url::parse(SERVER).expect("a URL"), "simulated");
    config.sign_in_timeout = Duration::from_secs(600);
    config
}
