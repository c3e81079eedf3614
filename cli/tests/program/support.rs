//! Shared helpers for the tests of several commands. Does not depend on commands.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

pub(crate) const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// A limit for every wait. No step takes this long, not even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The command of a server with simple tools.
pub(crate) const SERVER: [&str; 2] = [EVERLINK, "demo-server"];

/// Returns a command for the program, with a cache directory of its own.
pub(crate) fn program() -> Command {
    let mut program = Command::new(EVERLINK);
    program.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    program
}

/// Runs the program with these arguments. Returns its output and exit status.
pub(crate) fn run_everlink(arguments: &[&str], server: &[&str]) -> Output {
    let mut command = program();
    command.args(arguments);
    if !server.is_empty() {
        command.arg("--").args(server);
    }
    command.output().expect("the program can be started")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until the condition holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not in time");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A legacy server with a tool, a text resource, a binary resource and a prompt. The tool, the prompt and the completion of a template return the
/// arguments of the call.
pub(crate) const LIBRARY: [&str; 3] = ["sh", "-c", LIBRARY_SCRIPT];

const LIBRARY_SCRIPT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
  given() { printf '%s' "$line" | sed 's/.*"arguments":\({[^}]*}\).*/\1/; s/"/\\"/g'; }
  case "$line" in
    *'"method":"initialize"'*)
      say '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"serverInfo":{"name":"library","version":"1"}}' ;;
    *'"method":"server/discover"'*) say '"error":{"code":-32601,"message":"unknown"}' ;;
    *'"method":"tools/list"'*)
      say '"result":{"tools":[{"name":"order","description":"Orders a book","inputSchema":{"type":"object","properties":{"count":{"type":"integer","default":1},"isbn":{"type":"string","description":"Which book"},"size":{"enum":["small","large"]}},"required":["isbn"]}}]}' ;;
    *'"method":"tools/call"'*) say '"result":{"content":[{"type":"text","text":"'"$(given)"'"}]}' ;;
    *'"method":"completion/complete"'*'"ref/prompt"'*) say '"result":{"completion":{"values":["978-0","978-1"]}}' ;;
    *'"method":"completion/complete"'*) say '"result":{"completion":{"values":["'"$(given)"'"]}}' ;;
    *'"method":"prompts/list"'*)
      say '"result":{"prompts":[{"name":"review","description":"Reviews a book","arguments":[{"name":"isbn","description":"Which book","required":true}]}]}' ;;
    *'"method":"prompts/get"'*)
      say '"result":{"messages":[{"role":"user","content":{"type":"text","text":"'"$(given)"'"}}]}' ;;
    *'"method":"resources/list"'*) say '"result":{"resources":[{"uri":"book:text","name":"text"}]}' ;;
    *'"method":"resources/templates/list"'*) say '"error":{"code":-32603,"message":"the catalogue is out of order"}' ;;
    *'"method":"resources/read"'*'"book:text"'*)
      say '"result":{"contents":[{"uri":"book:text","text":"Call me Ishmael."}]}' ;;
    *'"method":"resources/read"'*'"book:cover"'*)
      say '"result":{"contents":[{"uri":"book:cover","mimeType":"image/png","blob":"AP8B"}]}' ;;
    *'"method":"resources/read"'*) say '"error":{"code":-32002,"message":"there is no such book"}' ;;
  esac
done
"#;

/// A file that does not exist at first. Dropping this removes the file.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(name: &str) -> TempFile {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_file(&path);
        TempFile(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("valid UTF-8")
    }

    pub(crate) fn read(&self) -> String {
        let bytes = fs::read(&self.0).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the file ends with a newline, and returns the process id in its last line.
    pub(crate) fn pid(&self) -> Pid {
        wait_until("there is a process", || self.read().ends_with('\n'));
        let last = self.read();
        let last = last.lines().last().expect("a line");
        Pid::from_raw(last.parse().expect("a number")).expect("a process")
    }

    /// The command of a server that appends its process id to this file.
    pub(crate) fn server(&self) -> [String; 3] {
        let path = self.path();
        let script = format!("echo $$ >> '{path}'; exec '{EVERLINK}' demo-server");
        ["sh".into(), "-c".into(), script]
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn process_exists(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Whether a process still runs. A zombie does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A running program, whose output is read line by line. Dropping this kills it.
pub(crate) struct RunningCommand {
    pub(crate) process: Child,
    lines: Receiver<String>,
}

impl RunningCommand {
    /// Starts the program and reads its standard output.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(
        arguments: &[&str],
        server: &[S],
    ) -> RunningCommand {
        let mut process = program()
            .args(arguments)
            .arg("--")
            .args(server)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let stdout = process.stdout.take().expect("a pipe");
        let lines = lines_of(stdout);
        RunningCommand { process, lines }
    }

    /// Starts a command. Also returns the lines of its standard error. Its standard input is empty.
    pub(crate) fn start_with_stderr(command: &mut Command) -> (RunningCommand, Receiver<String>) {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = lines_of(process.stderr.take().expect("a pipe"));
        let lines = lines_of(process.stdout.take().expect("a pipe"));
        (RunningCommand { process, lines }, stderr)
    }

    /// Waits for the next line that contains these words. Skips the lines before it.
    pub(crate) fn wait_for_line(&self, words: &str) -> String {
        let mut skipped = Vec::new();
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no line contains `{words}`: {skipped:#?}"));
            if line.contains(words) {
                return line;
            }
            skipped.push(line);
        }
    }

    /// Returns all remaining lines.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the process exists");
    }

    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("a child process") {
                return status;
            }
            assert!(start.elapsed() < TIMEOUT, "the program does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads lines as they arrive. Bytes that are no UTF-8 are replaced.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// The program at a pseudoterminal, and the controlling end of the terminal.
pub(crate) struct Terminal {
    controller: File,
    process: Child,
}

impl Terminal {
    /// Starts the program. Its standard input and error are the terminal; its standard output is a pipe.
    pub(crate) fn start(command: &mut Command) -> Terminal {
        Terminal::start_with(command, |_| Stdio::piped())
    }

    /// Starts the program with all three standard streams at the terminal.
    pub(crate) fn start_with_output(command: &mut Command) -> Terminal {
        Terminal::start_with(command, |program| {
            Stdio::from(program.try_clone().expect("a descriptor"))
        })
    }

    fn start_with(command: &mut Command, stdout: impl Fn(&OwnedFd) -> Stdio) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("a terminal");
        unlockpt(&controller).expect("a terminal");
        let name = ptsname(&controller, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let program = open(name.as_c_str(), flags, Mode::empty()).expect("a terminal");
        let stdin = program.try_clone().expect("a descriptor");
        let process = command
            .stdout(stdout(&program))
            .stdin(Stdio::from(stdin))
            .stderr(Stdio::from(program))
            .spawn();
        // The command still holds the program's end of the terminal. It must be closed, or the end of the output is not seen.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Terminal {
            controller: controller.into(),
            process: process.expect("the program starts"),
        }
    }

    /// Reads until these words are on the screen.
    pub(crate) fn read_until(&mut self, words: &str) -> String {
        let mut screen = Vec::new();
        let mut byte = [0];
        while !text(&screen).contains(words) {
            let read = self.controller.read(&mut byte);
            let is_over = !matches!(read, Ok(1..));
            assert!(!is_over, "`{words}` is not in {}", text(&screen));
            screen.push(byte[0]);
        }
        text(&screen)
    }

    pub(crate) fn type_text(&mut self, line: &str) {
        self.controller
            .write_all(line.as_bytes())
            .expect("the program reads");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the process exists");
    }

    /// Waits for the end. Returns the rest of the screen, and the output and exit status.
    pub(crate) fn end(self) -> (String, Output) {
        let (process, mut controller) = (self.process, self.controller);
        let screen = thread::spawn(move || {
            let mut screen = Vec::new();
            // Reading fails when the program's end is closed.
            let _ = controller.read_to_end(&mut screen);
            text(&screen)
        });
        let output = process.wait_with_output().expect("the program ends");
        (screen.join().expect("the thread ends"), output)
    }
}

/// An HTTP server that answers every request with 401, and keeps the heads of the requests.
pub(crate) struct UnauthorizedServer {
    pub(crate) url: String,
    heads: Receiver<String>,
}

impl UnauthorizedServer {
    pub(crate) fn start() -> UnauthorizedServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, heads) = channel();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if sender.send(answer_401(socket)).is_err() {
                    return;
                }
            }
        });
        let url = format!("http://{address}/mcp");
        UnauthorizedServer { url, heads }
    }

    /// Returns the head of the first request.
    pub(crate) fn head(&self) -> String {
        self.heads.recv_timeout(TIMEOUT).expect("a request")
    }
}

fn answer_401(socket: TcpStream) -> String {
    let mut reader = BufReader::new(socket);
    let (mut head, mut len) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_ok_and(|len| len > 2) {
            if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    len = value.trim().parse().unwrap_or(0);
                }
            }
            head += &line;
            continue;
        }
        break;
    }
    let mut body = vec![0; len];
    let _ = reader.read_exact(&mut body);
    let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let _ = reader.into_inner().write_all(answer.as_bytes());
    head
}
