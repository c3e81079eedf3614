//! Copies the server's standard error to that of this program or to a file. Does not depend on events.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use serde_json::json;
use tokio::sync::oneshot;

use crate::Failure;
use crate::args::Target;
use crate::output::{EventPrinter, single_line, warn, write_to_stderr};
use crate::stderr_copy::{Backlog, Chunk, ServerStderr, block_on};
use crate::system::{open_at_once, private};

/// The maximum number of bytes that are held until their line ends. 64 KiB is longer than any line that a person reads.
const LINE_LIMIT: usize = 64 << 10;

/// How the server's lines appear on the guard's standard error.
pub(super) enum Style {
    /// A JSON object for each line.
    Json,
    /// Unchanged.
    Raw,
    /// With this name before each line.
    Prefixed(String),
}

/// Writes the server's standard error to the guard's own.
pub(super) struct StderrPrinter {
    style: Style,
    /// The beginning of a line that has not ended yet. Always empty for [`Style::Raw`].
    partial: Vec<u8>,
    /// Whether the last write did not end its line.
    is_mid_line: bool,
}

impl StderrPrinter {
    pub(super) const fn new(style: Style) -> StderrPrinter {
        StderrPrinter {
            style,
            partial: Vec::new(),
            is_mid_line: false,
        }
    }

    /// Sets the name of the server, after the server has reported it.
    pub(super) fn rename(&mut self, name: &str) {
        if let Style::Prefixed(prefix) = &mut self.style {
            *prefix = single_line(name);
        }
    }

    pub(super) fn show(&mut self, at: everlink::Instant, printer: &EventPrinter, chunk: Chunk) {
        match self.style {
            Style::Raw => {
                write_to_stderr(&chunk.bytes);
                if let Some(last) = chunk.bytes.last() {
                    self.is_mid_line = *last != b'\n';
                }
            }
            Style::Json | Style::Prefixed(_) => self.add(at, printer, &chunk.bytes),
        }
        if chunk.dropped > 0 {
            self.end_line(at, printer);
            let dropped = chunk.dropped;
            if let Style::Json = self.style {
                printer.print_json(at, json!({"side": "upstream", "stderrDropped": dropped}));
            } else {
                warn(&format_args!(
                    "{dropped} bytes of the server's stderr are not shown, because this stream was not read fast enough"
                ));
            }
        }
    }

    /// Whether the server has begun a line and not ended it.
    pub(super) fn is_mid_line(&self) -> bool {
        self.is_mid_line || !self.partial.is_empty()
    }

    /// Shows the held part of a line and starts a new line. Called before other output, and when the server has ended.
    pub(super) fn end_line(&mut self, at: everlink::Instant, printer: &EventPrinter) {
        if !self.partial.is_empty() {
            self.add(at, printer, b"\n");
        }
        self.start_new_line();
    }

    /// Starts a new line for the guard's own output if the server is in the middle of a line.
    pub(super) fn start_new_line(&mut self) {
        if std::mem::take(&mut self.is_mid_line) {
            write_to_stderr(b"\n");
        }
    }

    /// Shows all lines that are complete now.
    fn add(&mut self, at: everlink::Instant, printer: &EventPrinter, bytes: &[u8]) {
        let mut output = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if !piece.ends_with(b"\n") && self.partial.len() < LINE_LIMIT {
                continue;
            }
            let line = self.partial.strip_suffix(b"\n").unwrap_or(&self.partial);
            match &self.style {
                Style::Prefixed(name) => {
                    output.extend_from_slice(format!("[{name}] ").as_bytes());
                    output.extend_from_slice(line);
                    output.push(b'\n');
                }
                Style::Json | Style::Raw => {
                    let line = String::from_utf8_lossy(line);
                    let line = line.trim_end_matches('\r');
                    printer.print_json(at, json!({"side": "upstream", "stderr": line}));
                }
            }
            self.partial.clear();
        }
        write_to_stderr(&output);
    }
}

/// Copies the standard error of a target's server as `--server-stderr` says, for a command without a log of its own. Returns the backlog for the transport
/// and a receiver that resolves when everything is written. `None` if nothing is copied, which is the default.
pub(crate) fn start_copy(target: &Target) -> Result<Option<StartedCopy>, Failure> {
    let style = match &target.server_stderr {
        None | Some(ServerStderr::Off) => return Ok(None),
        Some(ServerStderr::File(path)) => {
            let backlog = Arc::new(Backlog::default());
            let written = append_to_file(path, Arc::clone(&backlog))?;
            return Ok(Some((backlog, written)));
        }
        Some(ServerStderr::Inherit) => Style::Raw,
        Some(ServerStderr::Prefix) => Style::Prefixed(program_name(target)),
    };
    let backlog = Arc::new(Backlog::default());
    let (copied, (done, written)) = (Arc::clone(&backlog), oneshot::channel());
    let write = move || {
        let (mut shown, printer) = (StderrPrinter::new(style), EventPrinter::on_stderr());
        // Neither style shows a time.
        let at = everlink::Instant::ZERO;
        while let Some(chunk) = block_on(copied.next()) {
            shown.show(at, &printer, chunk);
        }
        shown.end_line(at, &printer);
        let _ = done.send(());
    };
    thread::Builder::new()
        .name("server-stderr".into())
        .spawn(write)?;
    Ok(Some((backlog, written)))
}

pub(crate) type StartedCopy = (Arc<Backlog>, oneshot::Receiver<()>);

/// The name for the server until it reports its own: the file name of its program.
pub(super) fn program_name(target: &Target) -> String {
    let program = target.command_line.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    single_line(&name.unwrap_or_default().to_string_lossy())
}

/// Appends to this file on a thread of its own, because the file may be a pipe that nobody reads, or not yet. The receiver resolves when everything is
/// written.
pub(super) fn append_to_file(
    path: &Path,
    backlog: Arc<Backlog>,
) -> Result<oneshot::Receiver<()>, Failure> {
    let name = path.display().to_string();
    // Readable only by the user, because a server may write secrets.
    let mut options = OpenOptions::new();
    private(options.append(true).create(true));
    let failed = |error| format!("--server-stderr {name}: cannot be opened: {error}");
    let opened = open_at_once(&options, path).map_err(failed)?;
    let (path, (done, written)) = (path.to_owned(), oneshot::channel());
    let write = move || {
        let opened = opened.map_or_else(
            || {
                warn(&format_args!(
                    "--server-stderr {name}: waiting for a program that reads this pipe"
                ));
                options.open(path)
            },
            Ok,
        );
        let mut file = match opened {
            Ok(file) => file,
            Err(error) => {
                return warn(&format_args!(
                    "--server-stderr {name}: cannot be opened: {error}; the guard continues without it"
                ));
            }
        };
        while let Some(chunk) = block_on(backlog.next()) {
            let mut written = file.write_all(&chunk.bytes);
            if chunk.dropped > 0 {
                let dropped = chunk.dropped;
                written = written.and_then(|()| {
                    writeln!(file, "\neverlink: {dropped} bytes are missing here, because this file could not be written fast enough")
                });
            }
            if let Err(error) = written {
                // The backlog drops and counts the rest, in bounded memory.
                warn(&format_args!(
                    "--server-stderr {name}: cannot be written: {error}; the guard continues without it"
                ));
                break;
            }
        }
        let _ = done.send(());
    };
    thread::Builder::new()
        .name("server-stderr".into())
        .spawn(write)?;
    Ok(written)
}
