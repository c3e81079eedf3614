//! Recordings: every step of a machine in a line of JSON, to be told again.
//!
//! The machine is a value without a clock or chance of its own: the same steps, put to a machine that is set up in the same way, have the same
//! effects. `recipe` is how it is set up, `line` what the lines look like, `scribe` who writes them, `veil` what they do not say, `player` who puts
//! them to a machine again.

mod line;
mod player;
mod recipe;
mod scribe;
mod veil;

use std::fmt::{self, Debug, Write};

pub(crate) use player::{Played, Player};
pub(crate) use recipe::{Front, Remembered, Role};

/// What stands before the number of a session that the machine itself has given out.
const OURS: &str = "session-";

/// What stands for the path that is served in front, which may be a secret.
const SERVED: &str = "/mcp";

/// The id of the session in the first event of a stream of the transport of 2024-11-05.
fn session_of_endpoint(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes.strip_prefix(b"event: endpoint\n")?).ok()?;
    let (_, id) = text.lines().next()?.split_once("?session=")?;
    Some(id)
}

/// What kind of event it is, without anything that anybody said.
fn brief(event: &impl Debug) -> String {
    /// Takes no more than two names.
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
    // An error says that there was more.
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
