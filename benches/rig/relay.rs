//! A relay between a host and a server that are only lines of text. Measures nothing itself.

use everlink::protocol::Era;
use everlink::relay::{self, Relay, Side};
use everlink::{Config, Epoch, Input, Instant, Output};

use super::{dialect, wire_id};

const NOW: Instant = Instant::ZERO;

/// The metadata that a modern host sends with every request.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"host","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

pub(crate) struct RelayRig {
    relay: Relay,
    epoch: Epoch,
    era: Era,
    calls: u64,
    buf: Vec<u8>,
    /// The last line for the host.
    to_host: Vec<u8>,
    to_server: Vec<u8>,
}

impl RelayRig {
    /// Creates a relay whose host and server, both of this era, have finished their handshakes.
    pub(crate) fn ready(era: Era) -> RelayRig {
        let mut config = relay::Config::new(Config::child("guard", "1.0"), [7; 16]);
        config.upstream.dialect = dialect(era);
        let mut rig = RelayRig {
            relay: Relay::new(config),
            epoch: Epoch::FIRST,
            era,
            calls: 0,
            buf: Vec::with_capacity(1 << 10),
            to_host: Vec::with_capacity(1 << 10),
            to_server: Vec::with_capacity(1 << 10),
        };
        let is_legacy = era == Era::Legacy;
        let (request, result) = match is_legacy {
            true => (
                r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#.to_owned(),
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}"#,
            ),
            false => (
                format!(r#"{{"jsonrpc":"2.0","id":"a","method":"server/discover","params":{{{META}}}}}"#),
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#,
            ),
        };
        rig.host_sends(&request);
        rig.server_replies(result);
        if is_legacy {
            rig.host_sends(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        rig
    }

    /// Returns the next call of the host, as its line.
    pub(crate) fn next_call(&mut self) -> String {
        self.calls += 1;
        let (id, arguments) = (self.calls, r#""name":"echo","arguments":{"text":"hello"}"#);
        let meta = if self.era == Era::Legacy {
            String::new()
        } else {
            format!(",{META}")
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{arguments}{meta}}}}}"#
        )
    }

    /// Sends this call from the host and this result from the server. Returns the length of the line that the host gets.
    pub(crate) fn round_trip(&mut self, call: &str, result: &str) -> usize {
        self.host_sends(call);
        self.server_replies(result);
        self.to_host.len()
    }

    fn host_sends(&mut self, line: &str) {
        self.relay
            .handle_downstream(NOW, Input::bytes(line.as_bytes()));
        self.relay.handle_downstream(NOW, Input::bytes(&b"\n"[..]));
        self.drain_outputs();
    }

    fn server_replies(&mut self, result: &str) {
        let id = wire_id(&self.to_server);
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        let input = Input::bytes(line.as_bytes());
        self.relay.handle_upstream(NOW, self.epoch, input);
        self.drain_outputs();
    }

    fn drain_outputs(&mut self) {
        self.buf.clear();
        while let Some((side, output)) = self.relay.poll_output(&mut self.buf) {
            match (side, output) {
                (_, Output::Open { epoch }) => {
                    self.epoch = epoch;
                    self.relay.handle_upstream(NOW, epoch, Input::Opened);
                }
                (Side::Downstream, Output::Write { len, .. }) => {
                    core::mem::swap(&mut self.buf, &mut self.to_host);
                    self.relay.handle_downstream(NOW, Input::sent(len));
                    self.buf.clear();
                }
                (_, Output::Write { len, .. }) => {
                    core::mem::swap(&mut self.buf, &mut self.to_server);
                    self.relay
                        .handle_upstream(NOW, self.epoch, Input::sent(len));
                    self.buf.clear();
                }
                (_, _) => {}
            }
        }
    }
}
