//! The application: four tools. Must not depend on the driver.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use everlink::protocol::code;
use everlink::server::{Event, Progress, Request};
use everlink::{ErrorObject, Instant, Payload, RequestId, Server};
use serde::Deserialize;

use crate::{board, heap};

/// The answer to `tools/list`. A tool that only reads says so, for hosts that ask a person before all other calls.
const LIST: &str = include_str!("tools.json");

/// The LED that `blink` uses.
const BLINKING: u8 = 1;
/// How long it is on, and then off.
const HALF_PERIOD: Duration = Duration::from_millis(100);

/// The tools, with the calls that are not answered yet.
#[derive(Default)]
pub(crate) struct Tools {
    /// At most `Limits::requests`.
    blinking: Vec<Blink>,
}

/// A call of `blink` that is not answered yet.
struct Blink {
    request: RequestId,
    times: u32,
    /// How often the LED has been switched. It is off after two times each.
    switched: u32,
    next: Instant,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct With<T> {
    arguments: T,
}

#[derive(Deserialize)]
struct LedArguments {
    led: u8,
    on: bool,
}

#[derive(Deserialize)]
struct BlinkArguments {
    times: u32,
}

impl Tools {
    /// Takes an event of the server.
    pub(crate) fn handle(&mut self, server: &mut Server, now: Instant, event: Event) {
        match event {
            Event::Request(request) => {
                let done = match self.answer(now, &request) {
                    Ok(Some(result)) => server.respond(now, request.request, result),
                    Ok(None) => Ok(()),
                    Err(error) => server.fail(now, request.request, error),
                };
                if let Err(misuse) = done {
                    board::log(misuse);
                }
            }
            Event::Cancelled { request, .. } => {
                self.blinking.retain(|blink| blink.request != request);
                board::set_led(BLINKING, false);
            }
            _ => {} // this server has no use for the others
        }
    }

    /// When [`handle_timeout`](Tools::handle_timeout) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.blinking.iter().map(|blink| blink.next).min()
    }

    /// Goes on with the calls of `blink`, and answers those that are done.
    pub(crate) fn handle_timeout(&mut self, server: &mut Server, now: Instant) {
        self.blinking.retain_mut(|blink| {
            if blink.next > now {
                return true;
            }
            blink.switched += 1;
            blink.next = now + HALF_PERIOD;
            board::set_led(BLINKING, blink.switched % 2 == 1);
            let blinked = blink.switched / 2;
            let is_done = blinked == blink.times;
            // A request that was cancelled in the meantime needs no answer.
            let _ = if is_done {
                server.respond(
                    now,
                    blink.request,
                    result(&format!("{{\"blinked\":{blinked}}}")),
                )
            } else {
                let progress = Progress::new(f64::from(blinked)).of(f64::from(blink.times));
                server.progress(now, blink.request, progress)
            };
            !is_done
        });
    }

    /// The answer to a request, or `None` if it comes later.
    fn answer(&mut self, now: Instant, request: &Request) -> Result<Option<Payload>, ErrorObject> {
        match &*request.method {
            "tools/list" => Ok(LIST.parse().ok()),
            "tools/call" => self.call(now, request),
            unknown => {
                let text = format!("{unknown} is not served here");
                Err(ErrorObject::new(code::METHOD_NOT_FOUND, text))
            }
        }
    }

    fn call(&mut self, now: Instant, request: &Request) -> Result<Option<Payload>, ErrorObject> {
        let params = request.params.as_ref();
        let call: Call<'_> = read(params)?;
        let value = match &*call.name {
            "temperature" => format!("{{\"celsius\":{}}}", temperature(now)),
            "led" => {
                let With { arguments } = read::<With<LedArguments>>(params)?;
                if arguments.led > 1 {
                    return Err(invalid("this board has the LEDs 0 and 1".into()));
                }
                board::set_led(arguments.led, arguments.on);
                let is_on = board::led(arguments.led);
                format!("{{\"led\":{},\"on\":{is_on}}}", arguments.led)
            }
            "blink" => {
                let With { arguments } = read::<With<BlinkArguments>>(params)?;
                if !(1..=50).contains(&arguments.times) {
                    return Err(invalid("an LED blinks 1 to 50 times".into()));
                }
                self.blinking.push(Blink {
                    request: request.request,
                    times: arguments.times,
                    switched: 0,
                    next: now,
                });
                return Ok(None);
            }
            "memory" => memory(now),
            unknown => return Err(invalid(format!("there is no tool `{unknown}`"))),
        };
        Ok(Some(result(&value)))
    }
}

/// A simulated sensor: the board warms up from 20 °C to 26 °C within a minute, and cools down in the next one.
fn temperature(now: Instant) -> String {
    let millis = now.as_nanos() / 1_000_000 % 120_000;
    let hundredths = 2_000 + millis.min(120_000 - millis) / 100;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn memory(now: Instant) -> String {
    let (stack_peak, stack_size) = heap::stack();
    let uptime = now.as_nanos() / 1_000_000;
    format!(
        "{{\"heapSize\":{},\"heapUsed\":{},\"heapPeak\":{},\"heapReach\":{},\"stackSize\":{stack_size},\"stackPeak\":{stack_peak},\"uptimeMs\":{uptime}}}",
        heap::SIZE,
        heap::used(),
        heap::peak(),
        heap::reach(),
    )
}

/// The result of a call: the value itself, and as text for clients that read only that. The value is JSON and has no backslash.
fn result(value: &str) -> Payload {
    let text = value.replace('"', "\\\"");
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"structuredContent":{value}}}"#)
        .parse()
        .expect("a tool writes JSON")
}

/// Reads the parameters of a call.
fn read<'a, T: Deserialize<'a>>(params: Option<&'a Payload>) -> Result<T, ErrorObject> {
    let params = params.ok_or_else(|| invalid("a call has parameters".into()))?;
    params
        .parse()
        .map_err(|error| invalid(format!("the parameters do not fit: {error}")))
}

fn invalid(text: String) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, text)
}
