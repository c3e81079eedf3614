//! What is heard of a link while it is used: what a step waits for, and questions of the server, which are answered at once.

use everlink::client::{Ask, Event};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Events, Link};
use serde_json::json;

use super::Failure;

/// Waits for an event in which this finds something.
pub(super) async fn hear<T>(
    events: &mut Events<Event>,
    mut find: impl FnMut(&Event) -> Option<T>,
) -> Result<T, Failure> {
    loop {
        let event = events.recv().await.ok_or("the link is closed")?;
        if let Some(found) = find(&event) {
            return Ok(found);
        }
    }
}

/// Answers whatever the server asks, until the link is closed. `home` is the directory of whoever is asked.
pub(super) fn answer_questions(link: &Link, home: &str) {
    let (link, mut events, home) = (link.clone(), link.events(), home.to_owned());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Event::Ask(ask) = &*event {
                // The question may have been withdrawn by now.
                drop(link.answer(ask.ask, answer(ask, &home)).await);
            }
        }
    });
}

/// Whoever is asked is called Ada.
fn answer(ask: &Ask, home: &str) -> Result<Payload, ErrorObject> {
    let answer = match &*ask.method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "roots/list" => json!({"roots": [{"uri": format!("file://{home}"), "name": "Ada"}]}),
        _ => {
            let words = json!({"type": "text", "text": "Ada"});
            json!({"role": "assistant", "model": "a friend", "content": words})
        }
    };
    Payload::of(&answer).map_err(|why| ErrorObject::new(-32_603, why.to_string()))
}
