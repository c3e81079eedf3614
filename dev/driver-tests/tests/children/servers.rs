//! Our own servers as children: what their programs do with the standard streams is not the client's to suffer from.

use everlink::ExitStatus;
use serde_json::json;

use crate::stage::{Use, ordeal, patient};

/// The tool prints, starts programs that read and print, and the streams do not block: the client sees nothing of it.
#[test]
fn f_017_what_handlers_do_with_the_standard_streams_reaches_no_client() {
    ordeal(|stage| {
        let mut server = stage.family.command(env!("CARGO_BIN_EXE_careless"));
        server.arg(stage.adapter);
        let link = stage.link_to(server, patient());
        let echo = |text: &str| link.tool("echo", json!({ "text": text }));
        let texts: Vec<String> = (0..20).map(|i| "x".repeat(i * 20_000)).collect();
        let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
        for (echo, text) in echoes {
            let said = echo.wait().expect("it serves");
            assert!(!said.is_error(), "the program that it started is well");
            assert_eq!(&said.text(), text);
        }
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!(stats.noise, 0);
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        for word in ["this is not for the client", "stolen"] {
            assert!(ended.stderr.contains(word), "{word} is not in: {ended}");
        }
    });
}

/// Many answers that nobody has read yet, and a client that is not there any more to read them.
#[test]
fn f_013_a_server_of_ours_ends_with_its_client() {
    ordeal(|stage| {
        let mut server = stage.family.command(env!("CARGO_BIN_EXE_careless"));
        server.arg(stage.adapter);
        let mut child = server
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a server can be started");
        drop(child.stdout.take());
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success());
    });
}
