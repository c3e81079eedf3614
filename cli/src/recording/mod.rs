//! Records every step of a machine as a line of JSON, and replays recordings.
//!
//! The machine has no clock and no randomness of its own. The same inputs, given to a machine with the same configuration, produce the same outputs.
//! `setup` is the configuration, and `line` the format of the lines. `recorder` records each step: `converter` leaves out secrets, `redact` hides
//! content, `line_writer` puts the lines in order, `line_buffer` formats the frequent ones, and `parts` writes the files. `replay` reads them back.

mod converter;
mod line;
mod line_buffer;
mod line_writer;
mod parts;
mod recorder;
mod redact;
mod replay;
mod setup;

use std::fmt::{self, Debug, Write};

pub(crate) use replay::{Observer, ReplayResult, ReplayedEvent, Replayer};
pub(crate) use setup::{EndpointSetup, Role, SavedOffer, Setup};

/// The prefix of a recorded session id that the machine itself issued. The number of the session follows.
const ISSUED_SESSION: &str = "session-";

/// The path that is recorded instead of the served path, which may be a secret.
const RECORDED_PATH: &str = "/mcp";

/// Returns the session id from the first event of a stream of the 2024-11-05 transport.
fn session_in_endpoint_event(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes.strip_prefix(b"event: endpoint\n")?).ok()?;
    let (_, id) = text.lines().next()?.split_once("?session=")?;
    Some(id)
}

/// Returns the kind of an event, without any text from a peer.
pub(crate) fn event_kind(event: &impl Debug) -> String {
    /// Accepts the first two names of the debug output, then fails.
    struct Names(String);

    impl Write for Names {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for character in text.chars() {
                let is_end = character == ' ' || (character == '(' && self.0.contains('('));
                if is_end {
                    return Err(fmt::Error);
                }
                self.0.push(character);
            }
            Ok(())
        }
    }

    let mut names = Names(String::new());
    // An error means that there was more output.
    let _ = write!(names, "{event:?}");
    names.0
}

#[cfg(test)]
mod tests {
    use everlink::Epoch;
    use everlink::{client, relay};

    use super::event_kind;

    #[test]
    fn event_kind_has_the_variant_names_and_no_text_of_a_peer() {
        let epoch = Epoch::FIRST;
        let relayed = relay::Event::Upstream(client::Event::Handshaking { epoch });
        assert_eq!(event_kind(&relayed), "Upstream(Handshaking");
        assert_eq!(event_kind(&client::Event::Closed), "Closed");
        let method = "notifications/sesame".into();
        let notified = client::Event::Notified {
            method,
            params: None,
            call: None,
        };
        assert_eq!(event_kind(&notified), "Notified");
    }
}
