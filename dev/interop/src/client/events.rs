//! Waits for events of a link, and answers the questions of the server.

use everlink::client::{Ask, Event};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Events, Link};
use serde_json::json;

use super::Failure;

/// Waits for an event from which `find` returns a value.
pub(super) async fn wait_for<T>(
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

/// Answers every question of the server until the link is closed. `home` is the directory of the user.
pub(super) fn answer_questions(link: &Link, home: &str) {
    let (link, mut events, home) = (link.clone(), link.events(), home.to_owned());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Event::Ask(ask) = &*event {
                // The server may have withdrawn the question.
                drop(link.answer(ask.ask, answer(ask, &home)).await);
            }
        }
    });
}

/// The answer of a user named Ada.
fn answer(ask: &Ask, home: &str) -> Result<Payload, ErrorObject> {
    let answer = match &*ask.method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "roots/list" => json!({"roots": [{"uri": format!("file://{home}"), "name": "Ada"}]}),
        _ => {
            let content = json!({"type": "text", "text": "Ada"});
            json!({"role": "assistant", "model": "a friend", "content": content})
        }
    };
    Payload::of(&answer).map_err(|error| ErrorObject::new(-32_603, error.to_string()))
}
