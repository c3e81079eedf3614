//! Explains why a guard makes no more quick attempts to reach its server. Knows the rules of the link only to describe them.

use everlink::client::{Cause, Ended, Event};
use everlink::{Instant, Policy};

/// What was seen of the attempts to reach the server.
pub(super) struct Attempts {
    /// The value of `--retries`.
    retries: u32,
    /// Whether the server is a child process.
    is_process: bool,
    was_ready: bool,
    /// The number of attempts that failed in a row.
    failures: u32,
    obstacle: Obstacle,
}

/// What the last end says about another attempt.
#[derive(Clone, Copy)]
enum Obstacle {
    /// The server wants other credentials.
    Credentials,
    /// The process ended by itself.
    Exit,
    /// Another attempt fails in the same way.
    Lasting,
    None,
}

impl Attempts {
    pub(super) const fn new(retries: Option<u32>, is_process: bool) -> Attempts {
        Attempts {
            retries: match retries {
                Some(retries) => retries,
                None => RETRIES,
            },
            is_process,
            was_ready: false,
            failures: 0,
            obstacle: Obstacle::None,
        }
    }

    /// Returns a text for the event if this knows more than the event itself.
    pub(super) fn describe(&mut self, at: Instant, event: &Event) -> Option<String> {
        match event {
            Event::Ready(_) => self.was_ready = true,
            // The link may have reset its count, which comes with this event.
            Event::Waiting { failures, .. } => self.failures = *failures,
            Event::Ended(ended) => {
                let is_first = self.retries == 0 && ended.ready_for.is_some();
                let before = if is_first { 0 } else { self.failures };
                self.failures = before.saturating_add(u32::from(ended.counted));
                self.obstacle = self.obstacle_of(ended);
            }
            Event::Parked { until } => {
                let seconds = until.since(at).as_secs();
                let (count, why) = (self.count(), self.why());
                return Some(format!(
                    "no more quick attempts after {count}: {why}; the next call tries again, and so does a timer in {seconds} s"
                ));
            }
            _ => {}
        }
        None
    }

    fn count(&self) -> String {
        match self.failures {
            1 => "1 failure".to_owned(),
            failures => format!("{failures} failures in a row"),
        }
    }

    fn why(&self) -> String {
        let retries = self.retries;
        match self.obstacle {
            Obstacle::Credentials => "the server wants other credentials".to_owned(),
            Obstacle::Lasting => "another attempt would fail in the same way".to_owned(),
            Obstacle::Exit if self.failures <= retries => {
                let start_for = Policy::interactive().retry.start_for.as_secs();
                format!(
                    "a process that ends by itself and was never ready is started again for only {start_for} s, whatever --retries says"
                )
            }
            Obstacle::Exit | Obstacle::None => format!("--retries allows {retries}"),
        }
    }

    fn obstacle_of(&self, ended: &Ended) -> Obstacle {
        let is_lasting = || ended.faults.iter().any(|fault| fault.kind().is_lasting());
        match ended.cause {
            Cause::Unauthorized => Obstacle::Credentials,
            _ if self.was_ready => Obstacle::None,
            Cause::HandshakeRefused { .. } => Obstacle::Lasting,
            Cause::OpenFailed | Cause::Unreachable if is_lasting() => Obstacle::Lasting,
            Cause::Died if self.is_process => Obstacle::Exit,
            _ => Obstacle::None,
        }
    }
}

/// The default of `--retries` for a guard.
const RETRIES: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_that_of_the_link() {
        assert_eq!(RETRIES, Policy::interactive().retry.budget);
    }
}
