//! Formats events as one line each, for logs and timelines, and the state of a client for debugging. Text from the server is left out, because it may be secret.

use core::fmt;

use crate::client::Client;
use crate::client::event::{Event, Outcome, Session};
use crate::driver::{CallId, Span};
use crate::protocol::LogLevel;
use crate::protocol::watch::Change;

/// One line that says what happened, and to what. It shows no payloads, arguments or samples of noise, but the text of failures and ends.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Opening { epoch, failures: 0 } => write!(f, "opening {epoch}"),
            Event::Opening { epoch, failures } => {
                write!(f, "opening {epoch}; failures in a row: {failures}")
            }
            Event::Handshaking { epoch } => write!(f, "{epoch} is open; the handshake begins"),
            Event::Ready(session) => show_session(f, session),
            Event::Draining { epoch, cause } => {
                write!(f, "{epoch} will close when its calls are done: {cause}")
            }
            Event::Closing { epoch, cause } => write!(f, "closing {epoch}: {cause}"),
            Event::Waiting {
                failures, budget, ..
            } => show_waiting(f, *failures, *budget),
            Event::Parked { .. } => f.write_str(
                "no more quick attempts; the next call tries again, and so does a timer",
            ),
            Event::Closed => f.write_str("closed"),

            Event::Ended(ended) => write!(f, "{ended}"),
            Event::Slow {
                epoch,
                waited,
                limit,
            } => write!(
                f,
                "{epoch} has been in the handshake for {} of at most {}",
                Span(*waited),
                Span(*limit)
            ),

            Event::Silent { epoch, silent } => write!(
                f,
                "{epoch} has been silent for {} and has not answered a probe",
                Span(*silent)
            ),
            Event::Responsive { epoch, silent } => write!(
                f,
                "{epoch} answers again, after {} of silence",
                Span(*silent)
            ),

            Event::Done { call, outcome } => show_outcome(f, *call, outcome),
            Event::Progress {
                call,
                progress,
                total: Some(total),
                ..
            } => write!(f, "{call} is at {progress} of {total}"),
            Event::Progress { call, progress, .. } => write!(f, "{call} is at {progress}"),

            Event::Ask(ask) => write!(f, "the server asks {}: {}", ask.ask, ask.method),
            Event::AskWithdrawn { ask, why } => write!(f, "{ask} was withdrawn: {why}"),

            Event::AuthRequired(challenge) => write!(
                f,
                "the server wants credentials, or better ones (status {})",
                challenge.status
            ),
            Event::ToolDropped { tool, why } => write!(f, "the tool `{tool}` was left out: {why}"),

            Event::Changed(Change::List(list)) => write!(f, "{list} has changed"),
            Event::Changed(Change::Resource { uri }) => write!(f, "{uri} has changed"),
            Event::Watching { epoch, .. } => write!(f, "{epoch} is watched for changes"),
            Event::Log { level, logger, .. } => show_log(f, *level, logger.as_deref()),
            Event::Notified { method, .. } => write!(f, "the server sent {method}"),
            Event::Noise(noise) => {
                write!(
                    f,
                    "{} sent something that is ignored (number {}): {}",
                    noise.epoch, noise.count, noise.what
                )
            }
        }
    }
}

/// Shows state and counters, but no payloads.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.lifecycle.state())
            .field("epoch", &self.lifecycle.epoch())
            .field("failures", &self.lifecycle.failures())
            .field("calls_waiting", &self.requests.queued())
            .field("calls_in_flight", &self.requests.in_flight())
            .field("asks_open", &self.asks.len())
            .field("next_deadline", &self.poll_timeout())
            .finish_non_exhaustive()
    }
}

fn show_session(f: &mut fmt::Formatter<'_>, session: &Session) -> fmt::Result {
    write!(f, "{} is ready: ", session.epoch)?;
    match &session.server {
        Some(server) => write!(f, "{server}")?,
        None => f.write_str("a server without a name")?,
    }
    write!(f, " speaks {}", session.version)
}

fn show_outcome(f: &mut fmt::Formatter<'_>, call: CallId, outcome: &Outcome) -> fmt::Result {
    match outcome {
        Outcome::Error(error) => write!(f, "{call} was answered with an error: {}", error.code),
        Outcome::Failed(failure) => write!(f, "{failure}"),
        Outcome::Listed(listing) => {
            let (list, items) = (listing.list, listing.items.len());
            write!(f, "{call} has read {list}: {items} items")
        }
        Outcome::Reply(result) => {
            write!(f, "{call} was answered, {} bytes", result.as_str().len())
        }
    }
}

fn show_log(f: &mut fmt::Formatter<'_>, level: LogLevel, logger: Option<&str>) -> fmt::Result {
    match logger {
        Some(logger) => write!(f, "the server logs, as {logger}: {level}"),
        None => write!(f, "the server logs: {level}"),
    }
}

fn show_waiting(f: &mut fmt::Formatter<'_>, failures: u32, budget: u32) -> fmt::Result {
    write!(
        f,
        "waiting before the next attempt; failures in a row: {failures}"
    )?;
    // While calls arrive, the link goes on after the budget is spent.
    if failures <= budget {
        write!(f, " of {budget}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::ToString;

    use crate::client::{Ask, Event, Noise, Outcome};
    use crate::driver::Instant;
    use crate::driver::{AskId, CallId, Epoch};
    use crate::json::Payload;
    use crate::protocol::LogLevel;

    #[test]
    fn failures_beyond_the_budget_are_counted_without_it() {
        let waiting = |failures| Event::Waiting {
            until: Instant::ZERO,
            failures,
            budget: 5,
        };
        assert!(waiting(5).to_string().ends_with("in a row: 5 of 5"));
        assert!(waiting(12).to_string().ends_with("in a row: 12"));
    }

    #[test]
    fn what_the_server_said_stays_out() {
        let secret = || -> Payload { r#"{"token":"sesame"}"#.parse().expect("it is JSON") };
        let events = [
            Event::Ask(Ask {
                ask: AskId::from_number(1),
                call: None,
                method: "elicitation/create".into(),
                params: Some(secret()),
                until: Instant::ZERO,
            }),
            Event::Done {
                call: CallId::from_number(1),
                outcome: Outcome::Reply(secret()),
            },
            Event::Log {
                call: None,
                level: LogLevel::Info,
                logger: None,
                data: secret(),
            },
            Event::Noise(Noise {
                epoch: Epoch::FIRST,
                what: "it is no JSON".into(),
                count: 1,
                sample: "sesame".into(),
                is_too_large: false,
            }),
            Event::Notified {
                method: "notifications/x".into(),
                params: Some(secret()),
                call: None,
            },
            Event::Progress {
                call: CallId::from_number(1),
                progress: 1.0,
                total: None,
                message: Some(Box::from("sesame")),
            },
        ];
        for event in events {
            let line = event.to_string();
            assert!(!line.is_empty() && !line.contains("sesame"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }
}
