//! `cargo xtask observe`: measures what observing costs a guarded call, in instructions and in time: `--status`, `--record`, `--otlp`, and the feature
//! `tracing` of the adapters.

use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;
use std::{env, process, thread};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::install::need_programs;
use crate::step::{cargo, check_none, target};

/// A guard to measure: the words for the reader, its options, the growth that is allowed in percent, and whether it is built with `tracing`. The
/// first is the reference.
const VARIANTS: [(&str, &[&str], f64, bool); 6] = [
    ("no option", &[], 0.0, false),
    ("--status", &["--status", "127.0.0.1:0"], 3.0, false),
    ("--record", &["--record", "RECORDING"], 15.0, false),
    (
        "--record --record-rotate 1M",
        &["--record", "RECORDING", "--record-rotate", "1M"],
        // Parts are compressed by another thread, which is counted, too.
        f64::INFINITY,
        false,
    ),
    ("feature `tracing`", &[], 3.0, true),
    ("--otlp", &["--otlp", "COLLECTOR"], 10.0, false),
];

/// Instructions are counted as the difference between runs of these many calls, so that the start does not count.
const COUNTED_CALLS: [u32; 2] = [200, 4_200];

const TIMED_CALLS: u32 = 3_000;
const ROUNDS: usize = 9;

/// The text of each call.
const TEXT_LEN: usize = 100;

/// Measures, and fails if instructions grow too much. Times depend on the machine, so they are only shown.
pub(crate) fn check() -> Result<()> {
    need_programs(&["valgrind"])?;
    let directory = env::temp_dir().join(format!("everlink-observe-{}", process::id()));
    fs::create_dir_all(&directory)?;
    let measured = Setting::prepare(&directory).and_then(|setting| measure(&setting));
    let _ = fs::remove_dir_all(&directory);
    measured
}

/// What all guards share.
struct Setting {
    /// The program without and with the feature `tracing`.
    programs: [PathBuf; 2],
    recording: String,
    collector: String,
}

impl Setting {
    fn prepare(directory: &Path) -> Result<Setting> {
        let build = |name: &str, features: &str| {
            cargo(&format!("build --release --package everlink-cli{features}"))?;
            let copy = directory.join(name);
            fs::copy(target().join("release/everlink"), &copy)?;
            Ok::<_, anyhow::Error>(copy)
        };
        Ok(Setting {
            programs: [
                build("everlink", "")?,
                build("everlink-tracing", " --features everlink-tokio/tracing")?,
            ],
            recording: directory.join("recording").display().to_string(),
            collector: start_collector()?,
        })
    }

    fn program(&self, is_tracing: bool) -> &Path {
        &self.programs[usize::from(is_tracing)]
    }
}

/// Starts a collector that takes everything, and returns its URL.
fn start_collector() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || collect(&stream));
        }
    });
    Ok(url)
}

/// Answers the requests of one connection, until it ends or has a request without a length.
fn collect(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let head = head.to_ascii_lowercase();
        let len = head.split("content-length: ").nth(1)?.lines().next()?;
        let mut body = vec![0; len.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        let mut writer = stream;
        writer
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .ok()?;
    }
}

fn measure(setting: &Setting) -> Result<()> {
    let mut times = vec![Vec::new(); VARIANTS.len()];
    // The rounds alternate, so that other load on the machine is the same for all.
    for _ in 0..ROUNDS {
        for (index, (_, options, _, is_tracing)) in VARIANTS.iter().enumerate() {
            let program = setting.program(*is_tracing);
            let mut guard = GuardRun::start(Command::new(program), program, options, setting)?;
            times[index].push(guard.median_of_calls(TIMED_CALLS)?);
            guard.end()?;
        }
    }
    let times: Vec<Duration> = times.into_iter().map(median).collect();
    let mut problems = Vec::new();
    let mut reference = None;
    println!(
        "{:<30}{:>14}{:>10}{:>12}{:>10}",
        "guard", "instructions", "", "p50", ""
    );
    for ((name, options, limit, is_tracing), time) in VARIANTS.iter().zip(&times) {
        let program = setting.program(*is_tracing);
        let [few, many] = COUNTED_CALLS.map(|calls| count(program, options, setting, calls));
        let (few, many) = (few?, many?);
        let per_call = (many - few) as f64 / f64::from(COUNTED_CALLS[1] - COUNTED_CALLS[0]);
        let growth = 100.0 * (per_call / *reference.get_or_insert(per_call) - 1.0);
        let slower = 100.0 * (time.as_secs_f64() / times[0].as_secs_f64() - 1.0);
        let micros = time.as_secs_f64() * 1e6;
        println!("{name:<30}{per_call:>14.0}{growth:>+8.1} %{micros:>9.1} µs{slower:>+8.1} %");
        if growth > *limit {
            problems.push(format!("{name}: {growth:+.1} %, of at most {limit} %"));
        }
    }
    check_none(&problems)
}

/// Counts the instructions of a guard that serves this many calls.
fn count(program: &Path, options: &[&str], setting: &Setting, calls: u32) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program);
    let mut guard = GuardRun::start(valgrind, program, options, setting)?;
    for _ in 0..calls {
        guard.call()?;
    }
    let report = guard.end()?;
    let collected = report.rsplit("Collected : ").next().map(str::trim_start);
    let digits = collected.and_then(|text| text.split_whitespace().next());
    let count = digits.and_then(|digits| digits.parse().ok());
    count.with_context(|| format!("callgrind reports no count:\n{report}"))
}

/// A guard at standard streams in front of the demo's server.
struct GuardRun {
    process: Child,
    replies: BufReader<ChildStdout>,
    next: u32,
}

impl GuardRun {
    fn start(
        mut command: Command,
        program: &Path,
        options: &[&str],
        setting: &Setting,
    ) -> Result<GuardRun> {
        let options = options.iter().map(|word| match *word {
            "RECORDING" => &setting.recording,
            "COLLECTOR" => &setting.collector,
            word => word,
        });
        // The first word is already the program, or valgrind with the program.
        let mut process = command
            .args(["guard", "--log", "off", "--remember", "off"])
            .args(options)
            .arg("--")
            .arg(program)
            .arg("demo-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let replies = process.stdout.take().context("no standard output")?;
        let mut guard = GuardRun {
            process,
            replies: BufReader::new(replies),
            next: 1,
        };
        guard.ask(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#)?;
        guard.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(guard)
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().context("no standard input")?;
        let written = stdin.write_all(format!("{line}\n").as_bytes());
        written.context("the guard does not read")
    }

    fn ask(&mut self, line: &str) -> Result<()> {
        self.send(line)?;
        let mut reply = String::new();
        let len = self.replies.read_line(&mut reply)?;
        ensure!(len > 0, "the guard did not reply");
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (id, text) = (self.next, "x".repeat(TEXT_LEN));
        self.next += 1;
        self.ask(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{text}"}}}}}}"#
        ))
    }

    /// Returns the median time of a call, without the first tenth of them.
    fn median_of_calls(&mut self, calls: u32) -> Result<Duration> {
        let mut times = Vec::new();
        for number in 0..calls {
            let start = Instant::now();
            self.call()?;
            if number >= calls / 10 {
                times.push(start.elapsed());
            }
        }
        Ok(median(times))
    }

    /// Disconnects, and returns what the process wrote to standard error.
    fn end(mut self) -> Result<String> {
        drop(self.process.stdin.take());
        let output = self.process.wait_with_output()?;
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status;
        ensure!(status.success(), "the guard ended with {status}:\n{report}");
        Ok(report)
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
