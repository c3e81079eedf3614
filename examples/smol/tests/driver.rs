//! The driver on smol, with a real server.
#![cfg(unix)]

use std::process::Command;

use everlink::Config;
use everlink::client::State;
use serde_json::json;

/// A server in the shell: it answers the handshake and calls, and dies when it is told to.
const SERVER: &str = r#"
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *server/discover*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    *initialize\"*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}\n' "$id" ;;
    *die*) echo "told to die" >&2; kill -9 $$ ;;
    *tools/call*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"from %s"}]}}\n' "$id" "$$" ;;
  esac
done
"#;

#[test]
fn link_comes_back_after_its_server_is_killed() {
    smol::block_on(async {
        let mut command = Command::new("sh");
        command.args(["-c", SERVER]);
        let link = smol_driver::connect(command, Config::child("test", "1.0"));
        let first = link.call_tool("say", json!({})).await.expect("a reply");
        let error = link.call_tool("die", json!({})).await.expect_err("it died");
        let text = error.to_string();
        assert!(
            text.contains("signal 9") && text.contains("told to die"),
            "{text}"
        );
        let second = link.call_tool("say", json!({})).await.expect("a reply");
        assert_ne!(first.text(), second.text(), "another process");
        link.shutdown().await.expect("it ends");
        assert_eq!(link.state(), State::Closed);
    });
}
