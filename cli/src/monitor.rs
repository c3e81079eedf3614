//! Watches a link's events while a command waits: answers requests for credentials, explains delays. Does not depend on any single command.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use everlink::client::{Cause, Ended, Event};
use everlink::relay;
use everlink_tokio::{CallError, Events, Guard, Link};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::authorization::SignIn;
use crate::output::warn;

/// The default of `--retries` when a person waits for one result. Two retries take about one second.
pub(crate) const RETRIES: u32 = 2;

/// The delay before the retry notice. If the outcome arrives first, the notice is not printed, because the outcome has the same text. 20 ms is enough
/// because the task that waits for the outcome is woken together with this one.
const RETRY_NOTICE_DELAY: Duration = Duration::from_millis(20);

/// Answers requests for credentials, and prints why the result is late. The caller aborts this task when the outcome is known.
pub(crate) async fn monitor_link(mut events: Events<Event>, link: Link, sign_in: SignIn) {
    let mut last_end = None;
    while let Some(event) = events.recv().await {
        match &*event {
            Event::AuthRequired(_) => {
                drop(tokio::spawn(sign_in.clone().answer_link(link.clone())));
            }
            Event::Ended(ended) if ended.counted && !is_connect_timeout(ended) => {
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

/// Removes the time of the next attempt from the error of a call, because a command that makes one call ends before that.
pub(crate) fn without_next_attempt(error: CallError) -> CallError {
    match error {
        CallError::Failed(mut failure) => {
            failure.next_attempt = None;
            CallError::Failed(failure)
        }
        error => error,
    }
}

/// Completes when a connection ends because open or handshake timed out. Never completes otherwise. A retry would take as long again.
pub(crate) async fn connect_timed_out(mut events: Events<Event>) -> Arc<Ended> {
    while let Some(event) = events.recv().await {
        if let Event::Ended(ended) = &*event {
            if is_connect_timeout(ended) {
                return Arc::clone(ended);
            }
        }
    }
    pending().await
}

fn is_connect_timeout(ended: &Ended) -> bool {
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
