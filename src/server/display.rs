//! Formats events as text, one line each, for logs and timelines. Content from clients is left out, because it may be secret.

use core::fmt;

use crate::server::event::{Cancelled, EndOfService, Event, Refused, Unanswered};

/// Formats an event as one line. Parameters, answers and samples of noise are left out. The client's name and the faults of the transport
/// are included.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Met(peer) => {
                match &peer.client {
                    Some(client) => write!(f, "{client}")?,
                    None => f.write_str("a client without a name")?,
                }
                write!(f, " connected and speaks {}", peer.version)
            }
            Event::Initialized => f.write_str("the client finished the handshake"),
            Event::Draining { why } => {
                write!(f, "will close when its requests are done: {why}")
            }
            Event::Closed { faults } => {
                f.write_str("closed")?;
                for (index, fault) in faults.iter().enumerate() {
                    write!(f, "{}{fault}", if index == 0 { ": " } else { ", and " })?;
                }
                Ok(())
            }

            Event::Request(request) => {
                write!(f, "the client sent {}: {}", request.request, request.method)
            }
            Event::Cancelled { request, why } => {
                write!(f, "{request} was cancelled: {why}")
            }
            Event::Answered { ask, outcome, .. } => match outcome {
                Ok(answer) => write!(f, "{ask} was answered, {} bytes", answer.as_str().len()),
                Err(Unanswered::Error(error)) => {
                    write!(f, "{ask} was answered with an error: {}", error.code)
                }
                Err(why) => write!(f, "{ask} has no answer: {why}"),
            },

            Event::Watching(_) => f.write_str("the subscriptions of clients have changed"),
            Event::Notified { method, .. } => write!(f, "the client sent {method}"),
            Event::NotificationsDropped { count } => write!(
                f,
                "notifications were dropped because the client does not read: {count} so far"
            ),
            Event::Refused(refused) => refused.fmt(f),
            Event::Noise(noise) => write!(
                f,
                "the client sent something that is ignored (number {}): {}",
                noise.count, noise.what
            ),
        }
    }
}

/// Leaves out the path and the address, which may be secret.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a request was refused with {}: {}",
            self.status, self.why
        )?;
        if self.count > 1 {
            write!(f, " ({} times so far)", self.count)?;
        }
        Ok(())
    }
}

/// Leaves out the reason that the client gave.
impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cancelled::Anew => "the client started over",
            Cancelled::ByPeer { .. } => "the client does not want it any more",
            Cancelled::NotResumed => "the client was asked and did not come back",
            Cancelled::OutOfTime => "the time to finish is over",
            Cancelled::PeerGone => "the client is gone",
        })
    }
}

impl fmt::Display for EndOfService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndOfService::EndOfInput => "the client closed its end",
            EndOfService::Shutdown => "a shutdown was asked for",
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::super::{Caller, Peer, Request};
    use super::*;
    use crate::driver::FaultKind;
    use crate::driver::{AskId, Epoch, RequestId};
    use crate::json::Payload;
    use crate::protocol::{ClientCapabilities, Implementation, Version};
    use crate::util::Arc;
    use crate::util::noise::Noise;
    use crate::wire::ErrorObject;

    fn peer() -> Arc<Peer> {
        Arc::new(Peer {
            version: Version::V2025_06_18,
            client: Some(Implementation::new("host", "1.2")),
            capabilities: ClientCapabilities::default(),
            introduction: None,
        })
    }

    #[test]
    fn what_clients_said_stays_out() {
        let secret = || -> Payload { r#"{"token":"sesame"}"#.parse().expect("it is JSON") };
        let (ask, request) = (AskId::from_number(1), RequestId::from_number(1));
        let answered = |outcome| Event::Answered {
            ask,
            request: None,
            outcome,
        };
        let why = Cancelled::ByPeer {
            reason: Some("sesame".into()),
            meta: Some(secret()),
        };
        let events = [
            answered(Ok(secret())),
            answered(Err(Unanswered::Error(ErrorObject::new(-1, "sesame")))),
            Event::Cancelled { request, why },
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
                caller: Caller::LINK,
            },
            Event::Request(Request {
                request,
                method: "tools/call".into(),
                params: Some(secret()),
                peer: peer(),
                user: Some("sesame".into()),
                trace: None,
                caller: Caller::LINK,
                wants_progress: false,
                log_level: None,
                input: None,
            }),
        ];
        for event in events {
            let line = event.to_string();
            assert!(!line.is_empty() && !line.contains("sesame"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_life_is_told() {
        let why = EndOfService::EndOfInput;
        let faults = vec![FaultKind::Reset.into(), FaultKind::BrokenPipe.into()];
        for (event, starts, ends) in [
            (
                Event::Met(peer()),
                "host 1.2 connected",
                "speaks 2025-06-18",
            ),
            (
                Event::Draining { why },
                "will close",
                "the client closed its end",
            ),
            (Event::Closed { faults: vec![] }, "closed", "closed"),
            (Event::Closed { faults }, "closed: ", ""),
        ] {
            let line = event.to_string();
            assert!(line.starts_with(starts) && line.ends_with(ends), "{line}");
        }
    }
}
