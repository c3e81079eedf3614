//! A relay between the client at one pair of hands and the server at another, whatever they are. Decides nothing.

use std::io;
use std::task::Context;

use everlink::relay::{Config, Side};
use everlink_handle::{Guard, GuardOwner};

use crate::drive::{Clock, Hands, clear, heard_or, start};

/// Starts a relay between a client in front and a server behind, driven by a task on the present runtime.
///
/// In front: [`stdio::Streams`](crate::stdio::Streams) or an [`http::Front`](crate::http::Front). Behind: [`child::Children`](crate::child::Children)
/// or [`http::Exchanges`](crate::http::Exchanges). The config says the same of both.
///
/// # Errors
///
/// Outside a runtime.
pub fn relay(
    config: Config,
    front: impl Hands + 'static,
    back: impl Hands + 'static,
) -> io::Result<Guard> {
    let (guard, owner) = Guard::new(config);
    start(drive_relay(owner, front, back))?;
    Ok(guard)
}

/// Drives a relay to its end, for who has set up its owner.
pub async fn drive_relay(mut owner: GuardOwner, mut front: impl Hands, mut back: impl Hands) {
    let (mut clock, mut buf) = (Clock::start(), Vec::new());
    loop {
        owner.serve(clock.now());
        while let Some((side, output)) = owner.poll_output(&mut buf) {
            if side == Side::Downstream {
                front.perform(output, &buf);
            } else {
                back.perform(output, &buf);
            }
            clear(&mut buf);
        }
        if owner.is_closed() {
            // What is left of the transports goes before whoever waits for the end hears of it.
            drop((front, back));
            return;
        }
        let due = owner.poll_timeout();
        let reads = [Side::Downstream, Side::Upstream].map(|side| owner.wants_input(side));
        let (asked, front, back) = (&mut owner, &mut front, &mut back);
        let next = move |cx: &mut Context<'_>| {
            let is_asked = asked.belongs_to(cx.waker());
            let mut heard = back.poll_heard(cx, reads[1]).map(|it| (Side::Upstream, it));
            if heard.is_pending() {
                heard = front
                    .poll_heard(cx, reads[0])
                    .map(|it| (Side::Downstream, it));
            }
            heard_or(is_asked, heard)
        };
        let Some((side, (epoch, input))) = clock.wait(due, next).await.flatten() else {
            continue;
        };
        if side == Side::Downstream {
            owner.handle_downstream(clock.now(), input);
        } else {
            owner.handle_upstream(clock.now(), epoch, input);
        }
    }
}
