//! Implements `everlink replay`: feeds a recording to a new machine and prints the events.

use std::process::ExitCode;

use crate::Failure;
use crate::args::{LogFormat, Replay};
use crate::guard::log::EventLog;
use crate::output::{EventPrinter, as_json, severity};
use crate::recording::{ReplayedEvent, Replayer};

pub(crate) fn run(args: &Replay) -> Result<ExitCode, Failure> {
    let (setup, replayer) = Replayer::open(&args.file)?;
    if let Some(version) = setup.other_version() {
        eprintln!(
            "everlink: recorded by everlink {version}; this is everlink {}, which may behave differently",
            env!("CARGO_PKG_VERSION")
        );
    }
    let printer = EventPrinter::on_stdout();
    let format = if args.json {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    let mut event_log = EventLog::new(format, EventPrinter::on_stdout(), setup.is_process());
    let result = replayer.run(|at, replayed| match replayed {
        ReplayedEvent::Link(event) if args.json => printer.print_json(at, as_json(event)),
        ReplayedEvent::Link(event) => printer.print_line(at, severity(event), event),
        ReplayedEvent::Relay(event) => event_log.log(at, event),
    })?;
    if result.is_truncated {
        eprintln!(
            "everlink: the recording is incomplete; the process that wrote it was killed, or the disk was full"
        );
    }
    match result.difference {
        None => {
            eprintln!(
                "everlink: {} events, the same as in the recording",
                result.events
            );
            Ok(ExitCode::SUCCESS)
        }
        Some(difference) => {
            eprintln!("everlink: the replay differs from the recording. {difference}");
            Ok(ExitCode::FAILURE)
        }
    }
}
