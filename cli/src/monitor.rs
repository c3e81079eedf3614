//! Watches the events of a link for a command: answers requests for credentials and explains delays. Knows no command.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use everlink::client::{Cause, Ended, Event};
use everlink::relay;
use everlink_tokio::{Events, Guard, Link};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::authorization::SignIn;
use crate::output::warn;

/// The default of `--retries` for commands with a person who waits for one result. Two retries take about one second.
pub(crate) const RETRIES: u32 = 2;

/// The pause before the program says that it tries again. The outcome may come within this time and says the same. 20 ms is enough because the task
/// that waits for the outcome is woken together with this one.
const RETRY_NOTICE_DELAY: Duration = Duration::from_millis(20);

/// Watches a link for a person who waits for one result, and says why it takes longer. The caller aborts it when the outcome is known.
pub(crate) async fn monitor_link(mut events: Events<Event>, link: Link, sign_in: SignIn) {
    let mut last_end = None;
    while let Some(event) = events.recv().await {
        match &*event {
            Event::AuthRequired(_) => {
                drop(tokio::spawn(sign_in.clone().answer_link(link.clone())));
            }
            Event::Ended(ended) if ended.counted && !is_handshake_timeout(ended) => {
                last_end = Some(Ended::clone(ended));
            }
            Event::Responsive { .. } | Event::Silent { .. } | Event::Slow { .. } => warn(&event),
            Event::Waiting { .. } => {
                if let Some(ended) = last_end.take() {
                    sleep(RETRY_NOTICE_DELAY).await;
                    warn(&format_args!("{ended}\neverlink: trying again"));
                }
            }
            _ => {}
        }
    }
}

/// Waits until a connection ends because its handshake took too long. Another attempt would take just as long.
pub(crate) async fn handshake_timed_out(mut events: Events<Event>) -> Arc<Ended> {
    while let Some(event) = events.recv().await {
        if let Event::Ended(ended) = &*event {
            if is_handshake_timeout(ended) {
                return Arc::clone(ended);
            }
        }
    }
    pending().await
}

fn is_handshake_timeout(ended: &Ended) -> bool {
    matches!(ended.cause, Cause::HandshakeTimedOut | Cause::OpenTimedOut)
}

/// Answers requests for credentials of the link behind a relay. Other events are logged elsewhere.
pub(crate) async fn monitor_relay(mut events: Events<relay::Event>, guard: Guard, sign_in: SignIn) {
    let (has_offer, offer) = watch::channel(false);
    while let Some(event) = events.recv().await {
        match &*event {
            relay::Event::Upstream(Event::AuthRequired(_)) => {
                let sign_in = sign_in.clone();
                drop(tokio::spawn(
                    sign_in.answer_relay(guard.clone(), offer.clone()),
                ));
            }
            relay::Event::Upstream(Event::Ready(_)) | relay::Event::OfferedInAdvance => {
                has_offer.send_replace(true);
            }
            _ => {}
        }
    }
}
