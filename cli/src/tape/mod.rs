//! Records every step of a machine as a line of JSON, and replays recordings.
//!
//! The machine has no clock and no randomness of its own. The same inputs, given to a machine with the same configuration, produce the same outputs.
//! `recipe` is the configuration, `line` the format of the lines, `scribe` the recorder, `veil` the redaction, and `player` the replay.

mod line;
mod player;
mod recipe;
mod scribe;
mod veil;

use std::fmt::{self, Debug, Write};

pub(crate) use player::{Played, Player};
pub(crate) use recipe::{Front, Remembered, Role};

/// The prefix of a recorded session id that the machine itself issued. The number of the session follows.
const OURS: &str = "session-";

/// The path that is recorded instead of the served path, which may be a secret.
const SERVED: &str = "/mcp";

/// Returns the session id from the first event of a stream of the 2024-11-05 transport.
fn session_of_endpoint(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes.strip_prefix(b"event: endpoint\n")?).ok()?;
    let (_, id) = text.lines().next()?.split_once("?session=")?;
    Some(id)
}

/// Returns the kind of an event, without any text from a peer.
fn brief(event: &impl Debug) -> String {
    /// Accepts the first two names of the debug output, then fails.
    struct Names(String);

    impl Write for Names {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for letter in text.chars() {
                let is_over = letter == ' ' || (letter == '(' && self.0.contains('('));
                if is_over {
                    return Err(fmt::Error);
                }
                self.0.push(letter);
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

    use super::brief;

    #[test]
    fn a_brief_event_is_its_kind() {
        let epoch = Epoch::FIRST;
        let behind = relay::Event::Upstream(client::Event::Handshaking { epoch });
        assert_eq!(brief(&behind), "Upstream(Handshaking");
        assert_eq!(brief(&client::Event::Closed), "Closed");
        let method = "notifications/sesame".into();
        let said = client::Event::Notified {
            method,
            params: None,
            call: None,
        };
        assert_eq!(brief(&said), "Notified");
    }
}
