//! Changes of a set while it is served.

use everlink::client::Event;
use everlink::protocol::{Era, Version};
use everlink::{Change, List, Watch};
use everlink_tokio::{Events, Link};
use everlink_tools::Tools;
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
            let served = Served::new(&tools).await;
            tools.attach(&served.service);
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
        let served = Served::new(&tools).await;
        tools.attach(&served.service);
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
        let served = Served::new(&tools).await;
        tools.attach(&served.service);
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
