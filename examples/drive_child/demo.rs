//! The application of the example: lists the tools, calls one, kills the server, and calls again. Does no I/O with the server.

#![allow(clippy::std_instead_of_alloc, reason = "a program with std")]

use std::collections::BTreeMap;

use everlink::client::{CallOptions, Client, Event, Outcome};
use everlink::{Epoch, Instant, List, Payload};

pub(crate) struct Demo {
    request: Option<Payload>,
    killed: Option<Epoch>,
}

pub(crate) fn begin(link: &mut Client, now: Instant) -> Demo {
    link.list(now, List::Tools, CallOptions::new())
        .expect("a new link takes a call");
    Demo {
        request: None,
        killed: None,
    }
}

impl Demo {
    /// Calls a tool when the list has arrived, kills the server after the first reply, and calls until another server has replied.
    pub(crate) fn heard(&mut self, link: &mut Client, now: Instant, event: Event, pid: u32) {
        let Event::Done { outcome, .. } = event else {
            return println!("{now:?} {event:?}");
        };
        match outcome {
            Outcome::Listed(tools) => {
                println!("{now:?} there are {} tools", tools.items.len());
                let requests = tools.items.iter().filter_map(simple_request);
                self.request = requests.min_by_key(|request| request.as_str().len());
            }
            Outcome::Failed(failure) if self.request.is_none() => {
                println!("{now:?} {failure}");
                return link.shutdown(now);
            }
            Outcome::Failed(failure) => println!("{now:?} {failure}"),
            Outcome::Reply(result) => {
                println!("{now:?} the tool says {}", result.as_str());
                match self.killed {
                    None => {
                        println!("{now:?} kill -9 {pid}");
                        super::pipes::signal("-KILL", pid);
                        self.killed = Some(link.epoch());
                    }
                    Some(killed) if killed == link.epoch() => {}
                    Some(_) => return link.shutdown(now),
                }
            }
            other => println!("{now:?} {other:?}"),
        }
        let request = self.request.clone();
        if let Err(misuse) = link.call(now, "tools/call", request, CallOptions::new()) {
            println!("{now:?} {misuse}");
        }
    }
}

/// A call of this tool, with a value for each required argument.
fn simple_request(tool: &Payload) -> Option<Payload> {
    let tool: serde_json::Value = tool.parse().ok()?;
    let required = tool["inputSchema"]["required"].as_array();
    let names = required
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str());
    let arguments: BTreeMap<&str, &str> = names.map(|name| (name, "1")).collect();
    Payload::of(&serde_json::json!({ "name": tool["name"], "arguments": arguments })).ok()
}
