//! Changes of a set while it is served.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use everlink::client::Event;
use everlink::protocol::{Era, Version};
use everlink::{Change, List, Watch};
use everlink_tokio::{Events, Link};
use everlink_tools::{JsonSchema, Tools};
use serde::Deserialize;
use serde_json::json;

use crate::support::{Served, call, call_tool, run, text};

/// Waits for the next change that the server reports.
async fn next_change(events: &mut Events<Event>) -> Change {
    loop {
        let event = events.recv().await.expect("the link lives");
        if let Event::Changed(change) = &*event {
            return change.clone();
        }
    }
}

/// Waits until the link hears of changes: after its first request, and once its watch is set up. A legacy client needs no watch for lists.
async fn watching(link: &Link, events: &mut Events<Event>) {
    let session = link.ready().await.expect("it is ready");
    if session.version.era() == Era::Legacy {
        call(link, "tools/list", json!({})).await;
        return;
    }
    while !matches!(
        &*events.recv().await.expect("the link lives"),
        Event::Watching { .. }
    ) {}
}

#[test]
fn clients_of_both_eras_learn_that_a_tool_was_added_or_removed() {
    run(async {
        for version in [Version::V2025_11_25, Version::V2026_07_28] {
            let tools = Tools::new("tests", "1.0").tool("one", "", async |(): (), _| Ok("1"));
            let served = Served::attached(&tools).await;
            let link = served.link_with(version, |config| config.watch = Watch::lists());
            let mut events = link.events();
            watching(&link, &mut events).await;
            tools.clone().tool("two", "", async |(): (), _| Ok("2"));
            assert_eq!(next_change(&mut events).await, Change::List(List::Tools));
            assert_eq!(text(&call_tool(&link, "two", json!({})).await), "2");
            assert!(tools.remove_tool("one"));
            assert_eq!(next_change(&mut events).await, Change::List(List::Tools));
            assert!(!tools.remove_tool("one"), "it is gone");
            let listed = link.list_tools().await.expect("a list");
            assert_eq!(listed.items.len(), 1, "{version}");
        }
    });
}

#[test]
fn removal_of_the_last_tool_is_announced() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("one", "", async |(): (), _| Ok("1"));
        let served = Served::new(&tools).await;
        let link = served.link_with(Version::V2026_07_28, |config| config.watch = Watch::lists());
        let mut events = link.events();
        watching(&link, &mut events).await;
        // The first request tells the set which server it has.
        assert_eq!(text(&call_tool(&link, "one", json!({})).await), "1");
        assert!(tools.remove_tool("one"));
        assert_eq!(next_change(&mut events).await, Change::List(List::Tools));
        assert!(link.list_tools().await.expect("a list").items.is_empty());
    });
}

#[test]
fn prompt_that_is_added_to_a_served_set_is_offered_to_new_clients() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("one", "", async |(): (), _| Ok("1"));
        let served = Served::attached(&tools).await;
        tools
            .clone()
            .prompt("greet", "Greets", async |(): (), _| Ok("Hello!"));
        let link = served.link(Version::V2025_11_25);
        let prompt = link
            .get_prompt("greet", json!({}))
            .await
            .expect("it is offered");
        assert!(prompt.as_str().contains("Hello!"));
    });
}

#[test]
fn subscribers_learn_that_a_resource_changed() {
    run(async {
        let tools =
            Tools::new("tests", "1.0")
                .with_resource_updates()
                .resource("a:b", "b", async |_| Ok("text"));
        let served = Served::attached(&tools).await;
        let link = served.link_with(Version::V2026_07_28, |config| {
            config.watch.uris.insert("a:b".into());
        });
        let mut events = link.events();
        watching(&link, &mut events).await;
        tools.resource_updated("a:b");
        assert_eq!(
            next_change(&mut events).await,
            Change::Resource { uri: "a:b".into() }
        );
    });
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

/// Calls the tool `where` of a server with `eu` as argument and this value in the field. Returns the status line.
async fn call_with_field(served: &Served, region: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    });
    let params = json!({"name": "where", "arguments": {"region": "eu"}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let (address, body) = (served.address(), body.to_string());
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: where\r\nMcp-Param-Region: {region}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).expect("a server");
    let response = tokio::task::spawn_blocking(move || {
        socket.write_all(request.as_bytes()).expect("it is sent");
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("a response");
        response
    });
    let response = response.await.expect("no panic");
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn header_fields_are_compared_for_a_tool_that_was_added_while_the_set_is_served() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("one", "", async |(): (), _| Ok("1"));
        let served = Served::attached(&tools).await;
        tools
            .clone()
            .tool("where", "", async |place: Place, _| Ok(place.region));
        // The server runs what it was told before in order.
        served.service.stats().await.expect("it runs");
        let refused = call_with_field(&served, "us").await;
        assert!(refused.contains(" 400 "), "{refused}");
        let accepted = call_with_field(&served, "eu").await;
        assert!(accepted.contains(" 200 "), "{accepted}");
    });
}
