//! An MCP client in WebAssembly. It has no imports: JavaScript moves the bytes, starts the processes and reads the clock.
//!
//! One instance of the module is one link. All numbers are `f64`, as in JavaScript: times in milliseconds, epochs, calls. Bytes pass through
//! two buffers. JavaScript writes into the buffer that [`input`] returns, and then names their number. [`poll`] writes into the buffer at
//! [`output`], and the next call of any function may overwrite or move it.

use std::cell::RefCell;
use std::time::Duration;

use everlink::client::{CallOptions, Event, Outcome, State};
use everlink::{
    Client, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, StreamId,
};
use serde_json::json;

thread_local! {
    static LINK: RefCell<Link> = RefCell::new(Link::new(0));
}

struct Link {
    client: Client,
    /// The epoch between `Open` and `Release`. There is at most one.
    epoch: Option<Epoch>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Link {
    fn new(seed: u64) -> Link {
        let mut config = Config::child("everlink-wasm", env!("CARGO_PKG_VERSION"));
        config.seed = seed;
        Link {
            client: Client::new(config),
            epoch: None,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Feeds an input. The machine would drop one of an epoch that is over; here, its number has no value any more.
    fn handle(&mut self, now: f64, epoch: f64, input: Input<'_>) {
        if let Some(open) = self.epoch.filter(|open| open.number() as f64 == epoch) {
            self.client.handle(instant(now), open, input);
        }
    }
}

fn with<T>(act: impl FnOnce(&mut Link) -> T) -> T {
    LINK.with_borrow_mut(act)
}

fn instant(millis: f64) -> Instant {
    Instant::from_origin(Duration::try_from_secs_f64(millis / 1000.0).unwrap_or_default())
}

/// Makes room for `len` bytes, and returns where to write them.
// SAFETY: here and below, no other function of this module has the name.
#[unsafe(no_mangle)]
pub extern "C" fn input(len: usize) -> *mut u8 {
    with(|link| {
        link.input.clear();
        link.input.resize(len, 0);
        link.input.as_mut_ptr()
    })
}

/// Starts the link. The seed spreads the pauses before retries, so pass a random number.
#[unsafe(no_mangle)]
pub extern "C" fn connect(now: f64, seed: f64) {
    with(|link| {
        *link = Link::new(seed.to_bits());
        link.client.connect(instant(now));
    });
}

/// Calls a method. The input holds its name, a newline, and the parameters as JSON or nothing. Returns the number of the call, or -1 if the
/// call is not accepted. The outcome comes from [`poll`].
#[unsafe(no_mangle)]
pub extern "C" fn call(now: f64) -> f64 {
    with(|link| {
        let text = String::from_utf8_lossy(&link.input);
        let (method, params) = text.split_once('\n').unwrap_or((&text, ""));
        let params = match params {
            "" => None,
            params => match params.parse() {
                Ok(params) => Some(params),
                Err(_) => return -1.0,
            },
        };
        let (now, options) = (instant(now), CallOptions::new());
        let call = link.client.call(now, method.to_owned(), params, options);
        call.map_or(-1.0, |call| call.number() as f64)
    })
}

/// Closes the link.
#[unsafe(no_mangle)]
pub extern "C" fn shutdown(now: f64) {
    with(|link| link.client.shutdown(instant(now)));
}

/// The process has started, or could not start.
#[unsafe(no_mangle)]
pub extern "C" fn opened(now: f64, epoch: f64, is_open: bool) {
    let faults = [Fault::new(FaultKind::Other)];
    let input = if is_open {
        Input::Opened
    } else {
        Input::open_failed(&faults[..])
    };
    with(|link| link.handle(now, epoch, input));
}

/// The input holds bytes that the process wrote to its standard output, or to its standard error.
#[unsafe(no_mangle)]
pub extern "C" fn received(now: f64, epoch: f64, is_error: bool) {
    with(|link| {
        let bytes = std::mem::take(&mut link.input);
        let input = if is_error {
            Input::stderr(bytes)
        } else {
            Input::bytes(bytes)
        };
        link.handle(now, epoch, input);
    });
}

/// The system has taken `len` bytes of earlier writes.
#[unsafe(no_mangle)]
pub extern "C" fn sent(now: f64, epoch: f64, len: usize) {
    with(|link| link.handle(now, epoch, Input::sent(len)));
}

/// Nothing more can be written.
#[unsafe(no_mangle)]
pub extern "C" fn write_failed(now: f64, epoch: f64) {
    with(|link| {
        link.handle(
            now,
            epoch,
            Input::write_failed(vec![Fault::new(FaultKind::Closed)]),
        )
    });
}

/// The standard output has ended.
#[unsafe(no_mangle)]
pub extern "C" fn ended(now: f64, epoch: f64) {
    with(|link| link.handle(now, epoch, Input::end(&[])));
}

/// The process has exited: with this status, or by this signal if it is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn exited(now: f64, epoch: f64, status: i32, signal: i32) {
    let status = match signal {
        0 => ExitStatus::Code(status),
        signal => ExitStatus::Signal(signal),
    };
    with(|link| link.handle(now, epoch, Input::exited(status)));
}

/// Passes the time.
#[unsafe(no_mangle)]
pub extern "C" fn handle_timeout(now: f64) {
    with(|link| link.client.handle_timeout(instant(now)));
}

/// When to call [`handle_timeout`]; infinity if there is no deadline.
#[unsafe(no_mangle)]
pub extern "C" fn timeout() -> f64 {
    with(|link| {
        let deadline = link.client.poll_timeout();
        deadline.map_or(f64::INFINITY, |deadline| {
            deadline.at.as_nanos() as f64 / 1e6
        })
    })
}

/// Whether to go on reading.
#[unsafe(no_mangle)]
pub extern "C" fn wants_input() -> bool {
    with(|link| link.client.wants_input(StreamId::DUPLEX))
}

/// Whether the link is closed.
#[unsafe(no_mangle)]
pub extern "C" fn is_closed() -> bool {
    with(|link| link.client.state() == State::Closed)
}

/// The epoch of the last output.
#[unsafe(no_mangle)]
pub extern "C" fn epoch() -> f64 {
    with(|link| link.epoch.map_or(0.0, |epoch| epoch.number() as f64))
}

/// Where the bytes of the last output are.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    with(|link| link.output.as_ptr())
}

/// How many they are.
#[unsafe(no_mangle)]
pub extern "C" fn output_len() -> usize {
    with(|link| link.output.len())
}

/// Returns what to do next: 0 nothing, 1 start the process, 2 write the output to it, 3 close its input, 4 ask it to end, 5 kill it, 6 free
/// what is left of it, 7 a call is done (the output is JSON), 8 an event for people (the output is text).
#[unsafe(no_mangle)]
pub extern "C" fn poll() -> u32 {
    with(|link| {
        loop {
            link.output.clear();
            let Some(output) = link.client.poll_output(&mut link.output) else {
                return 0;
            };
            match output {
                Output::Open { epoch } => {
                    link.epoch = Some(epoch);
                    return 1;
                }
                Output::Write { .. } => return 2,
                Output::CloseWrite { .. } => return 3,
                Output::Terminate { .. } => return 4,
                Output::Kill { .. } => return 5,
                Output::Release { .. } => return 6,
                Output::Event(Event::Done { call, outcome }) => {
                    link.output = done(call.number(), &outcome).into_bytes();
                    return 7;
                }
                Output::Event(event) => {
                    link.output = event.to_string().into_bytes();
                    return 8;
                }
                _ => {} // `Inspect`: JavaScript cannot tell. The others are for HTTP.
            }
        }
    })
}

/// An outcome as JSON: `{"call":1,"result":{…}}`, or with `error` or `failure` in place of `result`.
fn done(call: u64, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Reply(result) => format!(r#"{{"call":{call},"result":{}}}"#, result.as_str()),
        Outcome::Error(error) => json!({"call": call, "error": error.to_string()}).to_string(),
        Outcome::Failed(failure) => {
            json!({"call": call, "failure": failure.to_string()}).to_string()
        }
        other => json!({"call": call, "error": format!("{other:?}")}).to_string(),
    }
}
