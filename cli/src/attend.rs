//! What is seen to while a link works: that nobody waits for credentials that will not come, or wonders why nothing happens. Knows no command.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use everlink::client::{Cause, Ended, Event};
use everlink_tokio::{Events, Guard, Link};
use tokio::time::sleep;

use crate::shown::warn;

/// What to do where credentials are wanted: there is nobody here who could be asked for others than those of the arguments.
pub(crate) const NO_CREDENTIALS: &str =
    "give it a token with --bearer-env VARIABLE, or a header with --header";

/// So many attempts in a row may fail while a person waits for one thing to be done, if nothing else is said: that is about a second.
pub(crate) const RETRIES: u32 = 2;

/// Before it is said that something is tried again, the outcome may come, which says the same. 20 ms: whoever gets it is woken with this task.
const OUTCOME_FIRST: Duration = Duration::from_millis(20);

/// Sees to a link for a person who waits for one thing to be done: says why that takes longer. To be aborted when the outcome is there.
pub(crate) async fn attend(mut events: Events<Event>, link: Link) {
    let mut last_end = None;
    while let Some(event) = events.recv().await {
        match &*event {
            Event::AuthRequired(_) => link.denied(NO_CREDENTIALS),
            Event::Ended(ended) if ended.counted && !is_too_slow(ended) => {
                last_end = Some(Ended::clone(ended));
            }
            Event::Responsive { .. } | Event::Silent { .. } | Event::Slow { .. } => warn(&event),
            Event::Waiting { .. } => {
                if let Some(ended) = last_end.take() {
                    sleep(OUTCOME_FIRST).await;
                    warn(&format_args!("{ended}\neverlink: trying again"));
                }
            }
            _ => {}
        }
    }
}

/// Waits until a connection has ended because its handshake took too long. To try again would take as long.
pub(crate) async fn too_slow(mut events: Events<Event>) -> Arc<Ended> {
    while let Some(event) = events.recv().await {
        if let Event::Ended(ended) = &*event {
            if is_too_slow(ended) {
                return Arc::clone(ended);
            }
        }
    }
    pending().await
}

fn is_too_slow(ended: &Ended) -> bool {
    matches!(ended.cause, Cause::HandshakeTimedOut | Cause::OpenTimedOut)
}

/// Sees to the link behind a relay. What happens to it is told elsewhere.
pub(crate) async fn attend_relay(mut events: Events<everlink::relay::Event>, guard: Guard) {
    while let Some(event) = events.recv().await {
        if let everlink::relay::Event::Upstream(Event::AuthRequired(_)) = &*event {
            guard.denied(NO_CREDENTIALS);
        }
    }
}
