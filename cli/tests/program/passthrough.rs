//! Tests what passes a guard at the standard streams: the identity of the host, and the maximum length of messages.

use std::process::Stdio;

use serde_json::json;

use crate::guard::Host;
use crate::support::SERVER;

/// A server whose instructions say which client it sees.
const CLIENT_REPORTING_SERVER: &str = r#"
while read -r line; do
  case "$line" in
    *'"clientInfo":{"name":"host"'*'"everlink/via":{"name":"everlink"'*) client='the host, via everlink' ;;
    *'"everlink/via":{"name":"everlink"'*'"clientInfo":{"name":"host"'*) client='the host, via everlink' ;;
    *'"clientInfo":{"name":"everlink"'*) client='everlink' ;;
    *) client='somebody else' ;;
  esac
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sees","version":"1"},"instructions":"%s"}}\n' "$id" "$client" ;;
  esac
done"#;

#[test]
fn server_sees_the_host_via_everlink_or_with_hide_host_only_everlink() {
    for (options, client) in [
        (&[][..], "the host, via everlink"),
        (&["--hide-host"], "everlink"),
    ] {
        let mut host = Host::start(
            Stdio::null(),
            options,
            &["sh", "-c", CLIENT_REPORTING_SERVER],
        );
        let reply = host.initialize();
        assert_eq!(reply["result"]["instructions"], client, "{reply}");
        assert_eq!(host.disconnect().code(), Some(0));
    }
}

/// Sends a message of 2 MiB to the server, which returns it.
#[test]
fn message_longer_than_max_message_is_refused_and_the_connection_stays_open() {
    let message = "x".repeat(2 << 20);
    let mut host = Host::start(Stdio::null(), &[], &SERVER);
    host.handshake_and_echo();
    host.send_call(7, "echo", &json!({"message": message}));
    assert_eq!(host.receive(7)["result"]["content"][0]["text"], message);
    assert_eq!(host.disconnect().code(), Some(0));

    let mut host = Host::start(Stdio::null(), &["--max-message", "1MiB"], &SERVER);
    host.handshake_and_echo();
    host.send_call(7, "echo", &json!({"message": message}));
    let refused = host.receive(7);
    let why = refused["error"]["message"].as_str().expect("an error");
    assert!(why.contains("1048576 is the most"), "{why}");
    host.send_call(8, "echo", &json!({"message": "still here"}));
    let reply = host.receive(8);
    assert_eq!(reply["result"]["content"][0]["text"], "still here");
    assert_eq!(host.disconnect().code(), Some(0));
}
