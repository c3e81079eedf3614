//! Formats the events of a relay for logs and timelines, with the side before each event.

use core::fmt;

use super::{Event, Side};

/// Shows the event and its side. Leaves out the carried messages; includes the texts of failures and ends.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Downstream(event) => write!(f, "host: {event}"),
            Event::Lost(failure) => write!(f, "no reply: {failure}"),
            Event::NotPassed { to, method, count } => {
                let to = match to {
                    Side::Downstream => "host",
                    Side::Upstream => "server",
                };
                write!(
                    f,
                    "a notification could not be passed on to the {to}: {method} (number {count})"
                )
            }
            Event::OfferedInAdvance => {
                f.write_str("host: answered before the server is ready; calls wait for the server")
            }
            Event::Traced(trace) => write!(f, "answered: {}", trace.method),
            Event::Unattributed { method } => write!(
                f,
                "nobody was asked: the server sent {method} without saying for which client, and several have used it"
            ),
            Event::Upstream(event) => write!(f, "server: {event}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::Event;
    use crate::client;
    use crate::driver::Epoch;
    use crate::protocol::LogLevel;
    use crate::server;

    #[test]
    fn an_event_says_of_which_side_it_is() {
        let epoch = Epoch::FIRST;
        let behind = Event::Upstream(client::Event::Handshaking { epoch });
        assert!(
            behind
                .to_string()
                .starts_with("server: connection 1 is open")
        );
        let in_front = Event::Downstream(server::Event::Initialized);
        assert!(in_front.to_string().starts_with("host: the client"));
    }

    #[test]
    fn what_was_said_stays_out() {
        let said = Event::Upstream(client::Event::Log {
            call: None,
            level: LogLevel::Info,
            logger: None,
            data: r#""sesame""#.parse().expect("it is JSON"),
        });
        assert!(!said.to_string().contains("sesame"), "{said}");
        let said = Event::Downstream(server::Event::Notified {
            caller: server::Caller::exchange(crate::StreamId::new(1)),
            method: "notifications/x".into(),
            params: r#"{"token":"sesame"}"#.parse().ok(),
        });
        assert!(!said.to_string().contains("sesame"), "{said}");
    }
}
