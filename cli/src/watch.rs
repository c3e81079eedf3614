//! Implements `everlink watch`: prints the events of a link and the changes of its server, as they happen.

use std::pin::pin;
use std::process::ExitCode;

use everlink::client::Event;

use crate::args::Watch;
use crate::attend::NO_CREDENTIALS;
use crate::shown::{Timeline, as_json, mood, unread};
use crate::tape::Role;
use crate::{Endings, Failure};

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    let link = args.target.link(Role::Watch)?;
    let timeline = Timeline::on_stdout();
    let mut events = link.events();
    // Makes the link connect. The result arrives as an event.
    drop(link.ready());
    let (mut unread, mut is_ending) = (pin!(unread()), false);
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = endings.next() => {
                // A second signal ends the program at once.
                if is_ending {
                    return Ok(ExitCode::from(4));
                }
                is_ending = true;
                drop(link.shutdown());
                continue;
            }
            () = &mut unread, if !is_ending => {
                is_ending = true;
                drop(link.shutdown());
                continue;
            }
        };
        let Some(event) = event else {
            return Ok(ExitCode::SUCCESS);
        };
        if args.json {
            timeline.tell_json(events.at(), as_json(&event));
        } else {
            timeline.tell(events.at(), mood(&event), &event);
        }
        if let Event::AuthRequired(_) = &*event {
            link.denied(NO_CREDENTIALS);
        }
    }
}
