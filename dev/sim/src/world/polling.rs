//! Polls all machines until none has output, and carries out what they output. Starts and stops what is below a leg.

use std::time::Duration;

use everlink::client::{self, State};
use everlink::relay::{self, Side};
use everlink::{Output, Relay};

use super::server::{LastServer, LowerOutput, relay_outputs};
use super::{RelayProcess, World, WorldEvent, configs};
use crate::oracle::check_no_secret;
use crate::report::record_trace;

impl World<'_> {
    pub(super) fn poll_all(&mut self) {
        loop {
            let mut is_idle = self.poll_host();
            is_idle &= self.poll_relay();
            is_idle &= self.poll_last_server();
            if is_idle {
                return;
            }
        }
    }

    pub(super) fn poll_host(&mut self) -> bool {
        let mut outputs = Vec::new();
        let execute = |output, bytes| outputs.push((output, bytes));
        self.host.poll(self.now, self.report, execute);
        let is_idle = outputs.is_empty();
        for (output, bytes) in outputs {
            match output {
                Output::Event(event) => self.react_to_event(&event),
                output => self.execute(0, output.and_then_event(|_| None), bytes),
            }
        }
        is_idle
    }

    /// Schedules the reaction of the application to an event.
    pub(super) fn react_to_event(&mut self, event: &client::Event) {
        if let client::Event::AuthRequired(_) = event {
            self.schedule_credentials(0);
        }
    }

    pub(super) fn schedule_credentials(&mut self, leg: usize) {
        let supplied = self.faults_cleared || self.rng.below(3) > 0;
        let after = self.rng.span(10, 3_000);
        self.after(after, WorldEvent::Credentials(leg, supplied));
    }

    pub(super) fn poll_relay(&mut self) -> bool {
        let mut is_idle = true;
        let mut buf = Vec::new();
        loop {
            let polled = self
                .relay
                .as_mut()
                .and_then(|m| m.relay.poll_output(&mut buf));
            let Some((side, output)) = polled else {
                return is_idle;
            };
            is_idle = false;
            let output_text = format!("{output:?}");
            check_no_secret(&output_text);
            let bytes = std::mem::take(&mut buf);
            self.record_offer(side, &output, &bytes);
            record_trace(self.report, self.now, || {
                let text = String::from_utf8_lossy(&bytes);
                format!("      relay, {side:?}: {output_text} {}", text.trim_end())
            });
            match (side, output) {
                (_, Output::Event(relay::Event::Upstream(client::Event::AuthRequired(_)))) => {
                    self.schedule_credentials(1)
                }
                (Side::Upstream, output) => {
                    self.execute(1, output.and_then_event(|_| None), bytes);
                }
                (_, output) => {
                    for output in relay_outputs(output, bytes) {
                        self.handle_output(0, output);
                    }
                }
            }
        }
    }

    /// Records whether a relay makes an offer before its server is ready.
    pub(super) fn record_offer(&mut self, side: Side, output: &Output<relay::Event>, bytes: &[u8]) {
        let Some(relay_process) = &mut self.relay else {
            return;
        };
        if let Output::Event(relay::Event::Upstream(event)) = output {
            relay_process.was_ready |= event.state() == Some(State::Ready);
        }
        let is_offer = String::from_utf8_lossy(bytes).contains("\"capabilities\":");
        if side == Side::Downstream && is_offer && !relay_process.was_ready {
            self.was_offered_early = true;
        }
    }

    pub(super) fn poll_last_server(&mut self) -> bool {
        let Some((last_server, mut context)) = self.server_in_context(None) else {
            return true;
        };
        last_server.poll(&mut context);
        let process = last_server.process;
        let (outputs, answers) = last_server.take();
        let is_idle = outputs.is_empty() && answers.is_empty();
        for (after, answer) in answers {
            let event = WorldEvent::Answer(process, answer);
            self.after(Duration::from_millis(after), event);
        }
        let leg = self.legs.len() - 1;
        for output in outputs {
            self.handle_output(leg, output);
        }
        is_idle
    }

    /// Executes an output of an upper end.
    pub(super) fn execute(
        &mut self,
        leg: usize,
        output: Option<Output<std::convert::Infallible>>,
        bytes: Vec<u8>,
    ) {
        let Some(output) = output else {
            return;
        };
        if self.legs[leg].is_http {
            self.execute_network(leg, output, bytes);
        } else {
            self.execute_pipe(leg, output, bytes);
        }
    }

    /// Executes an output of a lower end.
    pub(super) fn handle_output(&mut self, leg: usize, output: LowerOutput) {
        if self.legs[leg].is_http {
            self.output_to_network(leg, output);
        } else {
            self.output_to_pipe(leg, output);
        }
    }

    /// Starts the lower end of a leg.
    pub(super) fn start(&mut self, leg: usize) {
        self.processes += 1;
        let process = self.processes;
        if leg + 1 < self.legs.len() {
            let relay = Box::new(Relay::new(configs::relay(&self.setup)));
            self.relay = Some(RelayProcess {
                process,
                relay,
                denied: None,
                was_ready: false,
            });
        } else {
            self.last_server = Some(LastServer::new(
                &self.setup,
                process,
                &mut self.server_faults,
            ));
        }
    }

    /// Stops the lower end of a leg and releases everything behind it.
    pub(super) fn stop(&mut self, leg: usize) {
        if leg + 1 < self.legs.len() {
            self.relay = None;
            self.release(leg + 1);
        } else {
            self.last_server = None;
        }
    }

    /// The process at the lower end, if it runs.
    pub(super) fn process_below(&self, leg: usize) -> Option<u64> {
        if leg + 1 < self.legs.len() {
            return self.relay_id();
        }
        self.last_server
            .as_ref()
            .map(|last_server| last_server.process)
    }

    /// Releases the transport of an upper end.
    pub(super) fn release(&mut self, leg: usize) {
        if self.legs[leg].is_http {
            self.abort_all_exchanges(leg);
        } else if self.legs[leg].child.take().is_some() {
            self.stop(leg);
        }
        self.legs[leg].epoch = None;
    }
}
