//! `cargo xtask firmware`: runs `examples/firmware` in QEMU behind the guard, and resets the board in the middle of calls.

use core::time::Duration;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use object::Endianness;
use object::elf::{FileHeader32, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use serde_json::{Value, json};

use crate::install::{need_program, need_target};
use crate::step::{cargo, cargo_in, shell, skip, target};

/// The instruction set of the board, and the limit for the bytes in flash, so that growth is noticed. The linker allows 512 KiB.
const TARGET: (&str, u64) = ("thumbv7em-none-eabi", 450_000);
/// That of a Cortex-M0, without atomic compare-and-swap. Its code is longer. The processor of the board runs it, too.
const SMALL_TARGET: (&str, u64) = ("thumbv6m-none-eabi", 480_000);
const QEMU: &str = "qemu-system-arm";
/// How often the board is reset in the middle of a call.
const RESETS: u32 = 20;
/// The limit for the farthest byte of the heap in use under the worst load below. The heap has 48 KiB.
const MAX_HEAP: u64 = 44 * 1024;
/// The limit for the bytes of the stack in use under the same load. The stack has 15 KiB.
const MAX_STACK: u64 = 12 * 1024;
/// How long a reply may take. A slow machine needs a second to start QEMU.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds the firmware, measures it, and runs it under load and under resets.
pub(crate) fn check() -> Result<()> {
    if !cfg!(unix) {
        return Err(skip("the guard runs on Unix"));
    }
    need_target(TARGET.0)?;
    need_target(SMALL_TARGET.0)?;
    need_program(QEMU, QEMU)?;
    in_firmware("fmt --check")?;
    in_firmware("clippy --locked --release -- --deny warnings")?;
    let monitor = target().join("firmware.monitor");
    load(&board(&built(SMALL_TARGET)?, &monitor))?;
    let board = board(&built(TARGET)?, &monitor);
    load(&board)?;
    cargo("build --package everlink-cli")?;
    resets(&board, &monitor)
}

/// Builds the firmware for this target, and checks its size. Returns the file.
fn built((name, max_flash): (&str, u64)) -> Result<PathBuf> {
    in_firmware(&format!("build --locked --release --target {name}"))?;
    let firmware = target().join(name).join("release/firmware");
    let (flash, ram) = sizes(&fs::read(&firmware)?)?;
    eprintln!(
        "firmware for {name}: {flash} bytes of flash; {ram} bytes of RAM for the heap and static variables"
    );
    ensure!(
        flash <= max_flash,
        "{flash} bytes of flash, of at most {max_flash}"
    );
    Ok(firmware)
}

/// Runs cargo in the directory of the firmware, whose configuration names the target.
fn in_firmware(arguments: &str) -> Result<()> {
    let shell = shell()?;
    shell.change_dir("examples/firmware");
    let cargo = cargo_in(&shell, arguments);
    Ok(cargo.env("CARGO_TARGET_DIR", target()).run()?)
}

/// The command for the board: the one in the README, and a socket for QEMU's monitor.
fn board(firmware: &Path, monitor: &Path) -> Vec<String> {
    let log = "file,id=log,path=/dev/stderr,append=on";
    let words = format!(
        "{QEMU} -machine mps2-an386 -display none -no-reboot -serial stdio -chardev {log} -serial chardev:log -kernel"
    );
    let mut board: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let socket = format!("unix:{},server=on,wait=off", monitor.display());
    board.extend([firmware.display().to_string(), "-monitor".into(), socket]);
    board
}

// ---- the worst load ----

/// Talks to the board without a guard. Makes it hold as much as its limits allow, and checks that it stays within its memory.
fn load(board: &[String]) -> Result<()> {
    // QEMU does not exit when its input ends.
    let mut host = Host::start(board, Duration::ZERO)?;
    let idle = memory(&mut host)?;
    // Ids are the largest thing that a server must keep for each open request.
    let names: Vec<String> = (0..40)
        .map(|n| format!("{n}{}", "x".repeat(1_000)))
        .collect();
    for name in &names {
        host.send(&tool_call(json!(name), "blink", json!({"times": 3}), None))?;
    }
    let mut answered = 0;
    for name in &names {
        let reply = host.reply(&json!(name))?;
        answered += u32::from(reply.get("result").is_some());
    }
    ensure!(
        answered >= 8,
        "the board answered {answered} calls at a time, not 8"
    );
    // The longest message that fits is read. It is no good call, but it gets an answer that says so.
    let long = json!({"text": "x".repeat(8_000)});
    host.send(&tool_call(json!("long"), "led", long, None))?;
    let refused = host.reply(&json!("long"))?;
    ensure!(
        refused["error"]["code"] == json!(-32602),
        "a call with wrong arguments was answered with {refused}"
    );
    // A message that is larger than the heap is refused, and the next one is served.
    let large = json!({"text": "x".repeat(100_000)});
    host.send(&tool_call(json!("large"), "led", large, None))?;
    let refused = host.reply(&json!("large"))?;
    ensure!(
        refused["error"]["message"].to_string().contains("bytes"),
        "a message of 100 kB was answered with {refused}"
    );
    // Neither does a deep one exhaust the stack, nor one that is no JSON.
    let deep = format!("{}1{}", "[".repeat(1_200), "]".repeat(1_200));
    let call =
        r#"{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{"name":"led","arguments":"#;
    host.send_text(&format!("{call}{deep}}}}}"))?;
    host.reply(&json!("deep"))?;
    host.send_text("\u{1}no JSON")?;
    let busy = memory(&mut host)?;
    eprintln!("firmware: after the handshake {idle}");
    eprintln!("firmware: after the load {busy}");
    for (name, most) in [("heapReach", MAX_HEAP), ("stackPeak", MAX_STACK)] {
        let bytes = &busy[name];
        ensure!(
            bytes.as_u64().is_some_and(|bytes| bytes <= most),
            "{name} is {bytes}, of at most {most}"
        );
    }
    ensure!(
        busy["uptimeMs"].as_u64() >= idle["uptimeMs"].as_u64(),
        "the board was reset under load"
    );
    Ok(())
}

fn memory(host: &mut Host) -> Result<Value> {
    let result = host.call("memory", json!({}))?;
    Ok(result["structuredContent"].clone())
}

// ---- resets ----

/// Resets the board in the middle of calls. The host's connection must survive every reset.
fn resets(board: &[String], monitor: &Path) -> Result<()> {
    let guard = target().join("debug/everlink");
    let words = ["guard", "--remember", "off", "--log", "off", "--"];
    let mut command = vec![guard.display().to_string()];
    command.extend(words.map(str::to_owned));
    command.extend_from_slice(board);
    let mut host = Host::start(&command, Duration::from_secs(5))?;
    let listed = host.request("tools/list", json!({}))?;
    let tools = listed["result"]["tools"].as_array().map_or(0, Vec::len);
    ensure!(tools == 4, "the board has four tools, not {listed}");
    let lit = host.call("led", json!({"led": 0, "on": true}))?;
    ensure!(
        lit["structuredContent"]["on"] == json!(true),
        "LED 0 did not go on: {lit}"
    );
    let (mut slowest, mut first_text) = (Duration::ZERO, String::new());
    for number in 0..RESETS {
        let (text, time) =
            reset_during_call(&mut host, monitor).with_context(|| format!("reset {number}"))?;
        slowest = slowest.max(time);
        first_text = if number == 0 { text } else { first_text };
    }
    eprintln!(
        "firmware: {RESETS} resets in the middle of a call; the slowest took {} ms from the reset to the next result",
        slowest.as_millis()
    );
    eprintln!("firmware: the host read: {first_text}");
    Ok(())
}

/// Resets the board when a call has begun. Returns the text that the call failed with, and the time from the reset to the result of the
/// next call.
fn reset_during_call(host: &mut Host, monitor: &Path) -> Result<(String, Duration)> {
    let id = json!(host.next_id());
    host.send(&tool_call(
        id.clone(),
        "blink",
        json!({"times": 20}),
        Some(&id),
    ))?;
    host.wait_for("progress", |message| {
        message["method"] == "notifications/progress" && message["params"]["progressToken"] == id
    })?;
    let start = Instant::now();
    reset(monitor)?;
    let reply = host.reply(&id)?;
    let text = reply["result"]["content"][0]["text"].as_str().unwrap_or("");
    let is_clear =
        text.contains("the server ended before it replied") && text.contains("may have run");
    ensure!(
        is_clear && reply["result"]["isError"] == json!(true),
        "the call in flight was answered with {reply}"
    );
    let next = host.call("temperature", json!({}))?;
    let time = start.elapsed();
    ensure!(
        next["structuredContent"]["celsius"].is_number(),
        "the next call was answered with {next}"
    );
    let uptime = memory(host)?["uptimeMs"].as_u64().unwrap_or(u64::MAX);
    ensure!(
        u128::from(uptime) <= start.elapsed().as_millis(),
        "the board runs for {uptime} ms, so there was no reset"
    );
    Ok((text.to_owned(), time))
}

/// Presses the reset button.
#[cfg(unix)]
fn reset(monitor: &Path) -> Result<()> {
    let mut socket = std::os::unix::net::UnixStream::connect(monitor)?;
    socket.write_all(b"system_reset\n")?;
    // QEMU drops a command whose sender is gone before QEMU has read it. With the reset, QEMU exits and closes the socket.
    socket.set_read_timeout(Some(PATIENCE))?;
    let _ = std::io::copy(&mut socket, &mut std::io::sink());
    Ok(())
}

#[cfg(not(unix))]
fn reset(_: &Path) -> Result<()> {
    Err(skip("this needs a Unix socket"))
}

// ---- a host ----

fn tool_call(id: Value, name: &str, arguments: Value, progress: Option<&Value>) -> Value {
    let mut params = json!({"name": name, "arguments": arguments});
    if let Some(token) = progress {
        params["_meta"] = json!({"progressToken": token});
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// A host, with a server on its standard streams.
struct Host {
    server: Child,
    stdin: Option<ChildStdin>,
    /// Messages of the server, or a line that is none.
    messages: Receiver<Result<Value>>,
    /// Messages that arrived and that nobody has waited for yet.
    early: Vec<Value>,
    last_id: u32,
    /// How long the server may take to exit after the end of its input.
    grace: Duration,
}

impl Host {
    /// Starts the server, and does the handshake.
    fn start(command: &[String], grace: Duration) -> Result<Host> {
        let (program, arguments) = command.split_first().context("no command")?;
        let mut server = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = server.stdin.take();
        let stdout = server.stdout.take().context("the output is not piped")?;
        let (sender, messages) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line);
                let message = message.with_context(|| format!("in the line {line:?}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut host = Host {
            server,
            stdin,
            messages,
            early: Vec::new(),
            last_id: 0,
            grace,
        };
        let about = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "xtask", "version": "1.0"},
        });
        let met = host.request("initialize", about)?;
        ensure!(
            met["result"]["serverInfo"]["name"] == json!("everlink-firmware"),
            "`initialize` was answered with {met}"
        );
        host.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(host)
    }

    fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        self.send_text(&message.to_string())
    }

    fn send_text(&mut self, line: &str) -> Result<()> {
        let mut stdin = self.stdin.as_ref().context("the input is not piped")?;
        let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        sent.context("the connection to the server is lost")
    }

    /// Waits for a message.
    fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.early.iter().position(&is_it) {
            return Ok(self.early.swap_remove(at));
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let message = message.with_context(|| format!("no {what} within {PATIENCE:?}"))??;
            if is_it(&message) {
                return Ok(message);
            }
            self.early.push(message);
        }
    }

    fn reply(&mut self, id: &Value) -> Result<Value> {
        self.wait_for("reply", |message| {
            message["id"] == *id && message.get("method").is_none()
        })
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = json!(self.next_id());
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        self.reply(&id)
    }

    /// Calls a tool that must succeed, and returns its result.
    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let id = json!(self.next_id());
        self.send(&tool_call(id.clone(), tool, arguments, None))?;
        let reply = self.reply(&id)?;
        let is_good = reply.get("result").is_some() && reply["result"]["isError"] != json!(true);
        ensure!(is_good, "`{tool}` failed: {reply}");
        Ok(reply["result"].clone())
    }
}

/// Closes the server's input, and kills the server if it does not exit within the time that it has.
impl Drop for Host {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let end = Instant::now() + self.grace;
        while Instant::now() < end && matches!(self.server.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

// ---- sizes ----

/// The bytes that an ELF file takes in flash, and those of RAM that it reserves.
fn sizes(file: &[u8]) -> Result<(u64, u64)> {
    let header = FileHeader32::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, file)?.iter();
    let (mut flash, mut ram) = (0, 0);
    for segment in segments.filter(|segment| segment.p_type(endian) == PT_LOAD) {
        flash += u64::from(segment.p_filesz(endian));
        if segment.p_vaddr(endian) >= 0x2000_0000 {
            ram += u64::from(segment.p_memsz(endian));
        }
    }
    Ok((flash, ram))
}
