//! What is to happen to a client over HTTP, read from bytes. Does nothing itself.

use std::time::Duration;

use everlink::http::Url;
use everlink::{Binding, FaultKind, Http, List};

use crate::rules::ORIGIN;
use crate::script::{Nap, OPS, Reply, Setup, Speech, Tape, Whose, faults};
use crate::server::PAYLOAD;

/// The first bytes of a tape as a setup.
#[must_use]
pub fn setup(tape: &mut Tape<'_>) -> Setup {
    let mut setup = Setup::read(tape);
    let url = Url::parse(&format!("{ORIGIN}mcp?key={PAYLOAD}")).expect("a URL");
    let mut http = Http::at(url);
    let traits = tape.byte();
    let has = |bit: u8| traits & (1 << bit) != 0;
    http.listens = !has(0);
    http.falls_back = !has(1);
    http.probe_timeout = setup.config.policy.probe_timeout;
    if has(2) {
        http.endpoint_timeout = tape.span();
        http.resume_after = tape.span();
        http.resume_least = tape.span();
        http.resume_most = tape.span();
        http.resumes = u32::from(tape.byte() % 4);
        http.auth_timeout = tape.span();
        http.retry_after_most = tape.span().min(Duration::from_secs(600));
        http.linger = tape.span();
    }
    if has(4) {
        http.listen_patience = tape.span();
        http.message_timeout = tape.span();
        http.stream_silence = tape.span();
    }
    if has(5) {
        // What the specification knows, and nothing that servers in use have beside it.
        http.session_loss.truncate(1);
    }
    if has(3) {
        setup.config.limits.unfinished_bytes = tape.pick(&[0, 1, 40, 200, 800, 4_000]);
    }
    setup.config.binding = Binding::Http;
    setup.config.http = Some(http.into());
    setup
}

/// Which exchange something happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum On {
    /// One of those that this can happen to: that wait for a response, or that are streams of events.
    Fit(u8),
    /// One of those that go on.
    Open(u8),
    /// One of those that are over, or were never begun in this life.
    Over(u8),
    /// One that is not begun yet.
    Unbegun(u8),
}

/// How a reply is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// As the body of an error with one of the statuses that have a meaning.
    Error(u8),
    /// As a stream of events, the last of which it is.
    Events(u8),
    /// As one text.
    Json,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The application answers a question.
    Answer {
        /// Which of all that there were.
        which: u8,
        /// With what.
        how: u8,
    },
    /// The application has other credentials, or says that there are none.
    Auth(bool),
    /// Bytes of a response arrive.
    Bytes {
        /// Of which.
        on: On,
        /// Which.
        bytes: Vec<u8>,
    },
    /// The application asks something.
    Call {
        /// Which method.
        method: u8,
        /// Its parameters.
        params: u8,
        /// Its options.
        options: u8,
    },
    /// The application takes a call back.
    Cancel {
        /// Which of all that there were.
        which: u8,
    },
    /// The application wants the link.
    Connect,
    /// A response ends.
    End {
        /// Which.
        on: On,
        /// What was seen.
        faults: Vec<FaultKind>,
    },
    /// A response begins.
    Head {
        /// Which.
        on: On,
        /// How.
        what: u8,
        /// With which further fields.
        more: u8,
    },
    /// The application cannot take more, or can again.
    Hold(bool),
    /// The application reads a list.
    List {
        /// Which.
        list: List,
        /// Its options.
        options: u8,
    },
    /// Time passes.
    Nap(Nap),
    /// The application tells something.
    Notify(u8),
    /// A life could not begin.
    OpenFailed {
        /// Which.
        whose: Whose,
        /// What was seen.
        faults: Vec<FaultKind>,
    },
    /// A life begins.
    Opened(Whose),
    /// The driver polls this often at most.
    Poll(u8),
    /// The application wants another life.
    Reconnect(Whose),
    /// A request is answered, with a whole response or as much of it as gets through.
    Reply {
        /// On which exchange.
        on: On,
        /// With what.
        how: Reply,
        /// In which form.
        form: Form,
        /// How much gets through, of 255; 0: all of it.
        cut: u8,
    },
    /// Something is said on a stream of events, in two pieces if `cut` is not zero.
    Say {
        /// On which.
        on: On,
        /// What.
        speech: Speech,
        /// Where it is cut.
        cut: u8,
    },
    /// The link is wanted, a good server takes part when it is time, and answers all that is asked.
    Serve(u8),
    /// The application has done with the link.
    Shutdown,
    /// Something that means nothing over HTTP.
    Stray {
        /// Of which exchange.
        on: On,
        /// What.
        what: u8,
    },
    /// The application says that the world is back.
    Wake,
    /// The application has another wish.
    Watch(u8),
}

impl Op {
    /// The rest of a tape as things that happen.
    #[must_use]
    pub fn read_all(tape: &mut Tape<'_>) -> Vec<Op> {
        let mut ops = Vec::new();
        while !tape.is_empty() && ops.len() < OPS {
            ops.push(Op::read(tape));
        }
        ops
    }

    fn read(tape: &mut Tape<'_>) -> Op {
        match tape.byte() % 56 {
            0..=6 => Op::Serve(tape.byte()),
            7..=16 => Op::Reply {
                on: On::read(tape),
                how: Reply::read(tape),
                form: Form::read(tape),
                cut: match tape.byte() {
                    0..192 => 0,
                    byte => (byte - 192) * 4 + byte % 4,
                },
            },
            17..=20 => Op::Head {
                on: On::read(tape),
                what: tape.byte(),
                more: tape.byte(),
            },
            21..=24 => Op::Say {
                on: On::read(tape),
                speech: Speech::read(tape, 1),
                cut: tape.byte(),
            },
            25 => Op::Bytes {
                on: On::read(tape),
                bytes: {
                    let len = tape.byte();
                    tape.take(usize::from(len)).to_vec()
                },
            },
            26..=28 => Op::End {
                on: On::read(tape),
                faults: faults(tape),
            },
            29..=32 => Op::Call {
                method: tape.byte(),
                params: tape.byte(),
                options: tape.byte(),
            },
            33..=36 => Op::Nap(Nap::read(tape)),
            37..=38 => Op::Opened(Whose::read(tape)),
            39 => Op::OpenFailed {
                whose: Whose::read(tape),
                faults: faults(tape),
            },
            40 => Op::Connect,
            41 => Op::Reconnect(Whose::read(tape)),
            42..=43 => Op::Auth(tape.byte() % 4 != 0),
            44 => Op::List {
                list: tape.pick(&List::ALL),
                options: tape.byte(),
            },
            45..=46 => Op::Cancel { which: tape.byte() },
            47..=48 => Op::Answer {
                which: tape.byte(),
                how: tape.byte(),
            },
            49 => Op::Watch(tape.byte()),
            50 => Op::Notify(tape.byte()),
            51 => Op::Stray {
                on: On::read(tape),
                what: tape.byte(),
            },
            52 => match tape.byte() {
                0..32 => Op::Shutdown,
                byte @ 32..96 => Op::Hold(byte % 2 == 0),
                _ => Op::Wake,
            },
            _ => Op::Poll(tape.byte()),
        }
    }
}

impl On {
    fn read(tape: &mut Tape<'_>) -> On {
        match tape.byte() {
            byte @ 0..160 => On::Fit(byte),
            byte @ 160..200 => On::Open(byte - 160),
            byte @ 200..240 => On::Over(byte - 200),
            byte @ 240.. => On::Unbegun(byte - 240),
        }
    }
}

impl Form {
    fn read(tape: &mut Tape<'_>) -> Form {
        match tape.byte() {
            byte @ 0..64 => Form::Error(byte),
            byte @ 64..160 => Form::Events(byte - 64),
            _ => Form::Json,
        }
    }
}
