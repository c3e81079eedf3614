//! Implements `everlink replay`: feeds a recording to a new machine, and prints the events or writes a timeline.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::args::{LogFormat, Replay};
use crate::guard::log::EventLog;
use crate::output::{EventPrinter, as_json, print, severity, warn};
use crate::recording::{ReplayResult, ReplayedEvent, Replayer, Setup};
use crate::system::{make_private, private};
use crate::timeline::{self, Builder, Timeline};
use crate::{Failure, usage_error};

pub(crate) fn run(args: &Replay) -> Result<ExitCode, Failure> {
    if let Some(out) = &args.html {
        check_is_other_file(&args.file, out)?;
    }
    let (setup, replayer) = Replayer::open(&args.file)?;
    if let Some(version) = setup.other_version() {
        warn(&format_args!(
            "recorded by everlink {version}; this is everlink {}, which may behave differently",
            env!("CARGO_PKG_VERSION")
        ));
    }
    if let Some(out) = &args.html {
        return write_timeline(args, out, &setup, replayer);
    }
    if let Some(number) = args.call {
        let (timeline, result) = build_timeline(&setup, replayer);
        let text = match args.mermaid {
            true => timeline::as_mermaid(&timeline, number),
            false => timeline::as_json(&timeline, number),
        };
        let calls = timeline.calls.len();
        let text = text.ok_or_else(|| {
            format!("there is no call {number}; the recording has {calls} calls, counted from 1")
        })?;
        print(&text.trim_end())?;
        return report(&result?);
    }
    let printer = EventPrinter::on_stdout();
    let format = if args.json {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    let mut event_log = EventLog::new(
        format,
        EventPrinter::on_stdout(),
        setup.is_process(),
        setup.retries(),
    );
    let result = replayer.run(|at, replayed| match replayed {
        ReplayedEvent::Link(event) if args.json => printer.print_json(at, as_json(event)),
        ReplayedEvent::Link(event) => printer.print_line(at, severity(event), event),
        ReplayedEvent::Relay(event) => event_log.log(at, event),
    })?;
    report(&result)
}

/// Fails if both paths lead to one file: the timeline would replace the recording.
fn check_is_other_file(recording: &Path, out: &Path) -> Result<(), Failure> {
    match (recording.canonicalize(), out.canonicalize()) {
        (Ok(recording), Ok(same)) if recording == same => Err(usage_error(format!(
            "--html {}: this is the recording itself; name another file",
            out.display()
        ))),
        _ => Ok(()),
    }
}

/// Says whether the replay is the same as the recording, and whether the recording is complete.
fn report(result: &ReplayResult) -> Result<ExitCode, Failure> {
    if let Some(cut) = cut(result) {
        warn(&cut);
    }
    match &result.difference {
        None => {
            warn(&format_args!(
                "{} events, the same as in the recording",
                result.events
            ));
            Ok(ExitCode::SUCCESS)
        }
        Some(difference) => {
            warn(&format_args!(
                "the replay differs from the recording. {difference}"
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Says where the recording was cut, if it was.
fn cut(result: &ReplayResult) -> Option<String> {
    let end = result.end.unwrap_or(everlink::Instant::ZERO);
    let seconds = end.as_nanos() as f64 / 1e9;
    let lines = result.lines;
    result.is_truncated.then(|| {
        format!("the recording is incomplete: it ends after line {lines}, {seconds:.3} s after its start; the process that wrote it still runs, was killed, or found the disk full")
    })
}

/// Builds a timeline. It has everything up to a line that cannot be read.
fn build_timeline(setup: &Setup, replayer: Replayer) -> (Timeline, Result<ReplayResult, Failure>) {
    let mut builder = Builder::new(setup.is_guard(), setup.redacted);
    let result = replayer.run_observed(&mut builder);
    (builder.finish(), result)
}

fn write_timeline(
    args: &Replay,
    out: &Path,
    setup: &Setup,
    replayer: Replayer,
) -> Result<ExitCode, Failure> {
    let (timeline, result) = build_timeline(setup, replayer);
    let notes: Vec<String> = match &result {
        Ok(result) => {
            let difference = result.difference.as_ref();
            let difference =
                difference.map(|what| format!("the replay differs from the recording: {what}"));
            cut(result).into_iter().chain(difference).collect()
        }
        Err(error) => vec![error.to_string()],
    };
    let file_name = args.file.file_name().unwrap_or_default();
    let about = json!({
        "file": file_name.to_string_lossy(),
        "everlink": setup.version(),
        "process": setup.is_process(),
        "notes": notes,
    });
    let failed = |error| format!("--html {}: cannot be written: {error}", out.display());
    // The page holds the messages of the recording, so only the user can read it.
    let mut options = OpenOptions::new();
    let file = private(options.write(true).create(true).truncate(true))
        .open(out)
        .map_err(failed)?;
    make_private(&file)?;
    let mut file = BufWriter::new(file);
    timeline::write_page(&mut file, &timeline, &about)
        .and_then(|()| file.flush())
        .map_err(failed)?;
    warn(&format_args!(
        "{} steps and {} calls in {}",
        timeline.rows.len(),
        timeline.calls.len(),
        out.display()
    ));
    report(&result?)
}
