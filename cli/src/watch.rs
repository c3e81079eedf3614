//! Implements `everlink watch`: prints the events of a link and the changes of its server, as they happen.

use std::pin::pin;
use std::process::ExitCode;

use everlink::client::Event;

use crate::args::Watch;
use crate::output::{EventPrinter, as_json, severity};
use crate::recording::Role;
use crate::system::stdout_closed;
use crate::{Failure, ShutdownSignals};

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    let (link, sign_in, mut server_stderr) = args.target.start_link(Role::Watch)?;
    let printer = EventPrinter::on_stdout();
    let mut events = link.events();
    // Makes the link connect. The result arrives as an event.
    drop(link.ready());
    let (mut stdout_closed, mut is_shutting_down) = (pin!(stdout_closed()), false);
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = signals.next() => {
                // A second signal ends the program at once.
                if is_shutting_down {
                    return Ok(ExitCode::from(4));
                }
                is_shutting_down = true;
                drop(link.shutdown());
                continue;
            }
            () = &mut stdout_closed, if !is_shutting_down => {
                is_shutting_down = true;
                drop(link.shutdown());
                continue;
            }
        };
        let Some(event) = event else {
            if let Some(server_stderr) = server_stderr.take() {
                server_stderr.end().await;
            }
            return Ok(ExitCode::SUCCESS);
        };
        if args.json {
            printer.print_json(events.at(), as_json(&event));
        } else {
            printer.print_line(events.at(), severity(&event), &event);
        }
        if let Event::AuthRequired(_) = &*event {
            tokio::spawn(sign_in.clone().answer_link(link.clone()));
        }
    }
}
