//! Explains why a guard makes no more quick attempts to reach its server. Knows the rules of the link only to describe them.

use std::time::Duration;

use everlink::client::{Cause, Ended, Event};
use everlink::{Instant, Policy};

/// What was seen of the attempts to reach the server.
pub(super) struct Attempts {
    /// How many attempts are repeated.
    retries: u32,
    /// Whether the server is a child process.
    is_process: bool,
    was_ready: bool,
    /// The number of attempts that had failed in a row when the link last waited for the next one.
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
    /// Without a value of `--retries`, the link's own default counts.
    pub(super) fn new(retries: Option<u32>, is_process: bool) -> Attempts {
        Attempts {
            retries: retries.unwrap_or(Policy::interactive().retry.budget),
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
            Event::Waiting { failures, .. } => self.failures = *failures,
            Event::Ended(ended) => self.obstacle = self.obstacle_of(ended),
            Event::Parked { until } => {
                let next = match until.since(at) <= SOON {
                    true => "another one follows at once, because a call waits",
                    false => "the next call tries again, and so does a timer",
                };
                let why = self.why();
                return Some(format!("no more quick attempts: {why}; {next}"));
            }
            _ => {}
        }
        None
    }

    fn why(&self) -> String {
        let retries = self.retries;
        match self.obstacle {
            Obstacle::Credentials => "the server wants other credentials".to_owned(),
            Obstacle::Lasting => "another attempt would fail in the same way".to_owned(),
            Obstacle::Exit if self.failures < retries => {
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

/// An attempt within this time comes from a call that waits. The timer takes at least 30 s.
const SOON: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(attempts: &mut Attempts, seconds: u64) -> String {
        let until = Instant::ZERO + Duration::from_secs(seconds);
        let text = attempts.describe(Instant::ZERO, &Event::Parked { until });
        text.expect("a text")
    }

    #[test]
    fn text_says_whether_a_waiting_call_makes_another_attempt() {
        let mut attempts = Attempts::new(None, false);
        let rule = "no more quick attempts: --retries allows 5";
        for (seconds, next) in [
            (0, "another one follows at once, because a call waits"),
            (2, "another one follows at once, because a call waits"),
            (30, "the next call tries again, and so does a timer"),
        ] {
            assert_eq!(parked(&mut attempts, seconds), format!("{rule}; {next}"));
        }
    }

    #[test]
    fn exit_of_a_process_is_blamed_on_retries_only_if_they_are_used_up() {
        for (retries, failures, words) in [
            (0, 0, "--retries allows 0;"),
            (3, 2, "for only 3 s, whatever --retries says;"),
            (3, 3, "--retries allows 3;"),
        ] {
            let mut attempts = Attempts::new(Some(retries), true);
            attempts.obstacle = Obstacle::Exit;
            let (until, budget) = (Instant::ZERO, retries);
            attempts.describe(
                until,
                &Event::Waiting {
                    until,
                    failures,
                    budget,
                },
            );
            let text = parked(&mut attempts, 30);
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
