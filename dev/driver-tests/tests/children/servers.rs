//! Tests our own servers as children whose handlers misuse the standard streams.

use everlink::ExitStatus;
use serde_json::json;

use crate::harness::{LinkExt, for_each_adapter, long_timeouts};

/// The tool prints and runs programs that read and print, on non-blocking streams. The client sees none of it.
#[test]
fn f_017_handler_use_of_standard_streams_does_not_reach_the_client() {
    for_each_adapter(|harness| {
        let mut server = harness
            .processes
            .command(env!("CARGO_BIN_EXE_noisy-server"));
        server.arg(harness.adapter);
        let link = harness.link_to(server, long_timeouts());
        let echo = |text: &str| link.tool("echo", json!({ "text": text }));
        let texts: Vec<String> = (0..20).map(|i| "x".repeat(i * 20_000)).collect();
        let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
        for (echo, text) in echoes {
            let reply = echo.wait().expect("it serves");
            assert!(!reply.is_error(), "the program of the handler succeeds");
            assert_eq!(&reply.text(), text);
        }
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!(stats.noise, 0);
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        for part in ["this is not for the client", "stolen"] {
            assert!(ended.stderr.contains(part), "{part} is not in: {ended}");
        }
    });
}

/// A client that closes both pipes without a request ends the server.
#[test]
fn f_013_our_server_exits_when_its_pipes_close() {
    for_each_adapter(|harness| {
        let mut server = harness
            .processes
            .command(env!("CARGO_BIN_EXE_noisy-server"));
        server.arg(harness.adapter);
        let mut child = server
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a server can be started");
        drop(child.stdout.take());
        drop(child.stdin.take());
        assert!(child.wait().expect("the child can be waited for").success());
    });
}
