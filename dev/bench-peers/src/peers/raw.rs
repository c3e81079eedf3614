//! The lower bound for the other peers: the same messages without an MCP library, with the fewest system calls and the least parsing.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use memchr::{memchr, memchr_iter, memmem};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Client, nanos, runtime};
use crate::echo::{Answer, Json, Params, Text};

/// The size of a read buffer.
const CHUNK: usize = 64 << 10;

#[derive(Serialize)]
struct Request<P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    params: P,
}

#[derive(Serialize)]
struct Response<R> {
    jsonrpc: &'static str,
    id: u64,
    result: R,
}

/// The minimum that must be parsed to understand a message.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    pub(crate) id: u64,
    #[serde(borrow, alias = "result")]
    pub(crate) params: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Parses the first line of the bytes.
    pub(crate) fn read(bytes: &'a [u8]) -> Envelope<'a> {
        let end = memchr(b'\n', bytes).expect("the line is whole");
        serde_json::from_slice(&bytes[..end]).expect("this is JSON")
    }
}

/// The minimum of every implementation: a request is written, parsed and answered, and the answer is parsed, between two buffers.
#[derive(Default)]
pub(crate) struct InMemory {
    id: u64,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl InMemory {
    /// A call from one application to the other and back. Returns the length of the answered text.
    pub(crate) fn call(&mut self, text: &str) -> usize {
        let params: Params<'_, Text<'_>> = Params::of(text);
        let result = self.round_trip::<Text<'_>>(&params);
        let result: Answer<'_, Text<'_>> = serde_json::from_str(result.get()).expect("it answers");
        result.into_text().0.len()
    }

    /// The same for applications that only forward JSON.
    pub(crate) fn call_with_json(&mut self, params: &RawValue) -> &RawValue {
        self.round_trip::<Json<'_>>(params)
    }

    fn round_trip<'a, T: Deserialize<'a> + Serialize>(
        &'a mut self,
        params: impl Serialize,
    ) -> &'a RawValue {
        self.id += 1;
        write_line(&mut self.to_server, &request(self.id, params));
        let request = Envelope::read(&self.to_server);
        let params: Params<'_, T> = serde_json::from_str(request.params.get()).expect("a call");
        write_line(
            &mut self.to_client,
            &Response {
                jsonrpc: "2.0",
                id: request.id,
                result: params.answer(),
            },
        );
        let reply = Envelope::read(&self.to_client);
        assert_eq!(reply.id, self.id);
        reply.params
    }
}

fn request<P>(id: u64, params: P) -> Request<P> {
    Request {
        jsonrpc: "2.0",
        id,
        method: "tools/call",
        params,
    }
}

fn write_line(buf: &mut Vec<u8>, message: &impl Serialize) {
    buf.clear();
    serde_json::to_writer(&mut *buf, message).expect("this is JSON");
    buf.push(b'\n');
}

/// The request line of the minimal client.
pub(crate) fn line(text: &str) -> Vec<u8> {
    let (mut line, params) = (Vec::new(), Params::<Text<'_>>::of(text));
    write_line(&mut line, &request(1, params));
    line
}

/// A child that echoes its input, at the other end of two pipes.
pub(crate) struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Pipe {
    pub(crate) fn new(mut command: Command) -> Pipe {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the child starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Pipe {
            child,
            stdin,
            stdout: stdout.expect("it is piped"),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(bytes).expect("it reads");
    }

    /// Reads once, and returns the number of line ends.
    fn read(&mut self, chunk: &mut [u8]) -> usize {
        let len = self.stdout.read(chunk).expect("it answers");
        assert_ne!(len, 0, "it lives");
        memchr_iter(b'\n', &chunk[..len]).count()
    }
}

impl Client for Pipe {
    fn sequential(&mut self, calls: usize, text: &str) -> Vec<u64> {
        let (line, mut chunk) = (line(text), vec![0; CHUNK]);
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = Instant::now();
            self.write(&line);
            while self.read(&mut chunk) == 0 {}
            times.push(nanos(start));
        }
        times
    }

    /// Each line is one write, at both ends; a read returns all that is available.
    fn concurrent(&mut self, calls: usize, in_flight: usize, text: &str) {
        let (line, mut chunk) = (line(text), vec![0; CHUNK]);
        let (mut started, mut done) = (0, 0);
        while done < calls {
            while started < calls.min(done + in_flight) {
                self.write(&line);
                started += 1;
            }
            done += self.read(&mut chunk);
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// Copies standard input to standard output, line by line.
pub(crate) fn serve_pipe() {
    let (mut input, mut output) = (unbuffered(std::io::stdin()), unbuffered(std::io::stdout()));
    let (mut chunk, mut filled) = (vec![0; CHUNK], 0);
    while let Ok(len @ 1..) = input.read(&mut chunk[filled..]) {
        filled += len;
        let mut written = 0;
        while let Some(end) = memchr(b'\n', &chunk[written..filled]) {
            let line = &chunk[written..=written + end];
            if output.write_all(line).is_err() {
                return;
            }
            written += line.len();
        }
        chunk.copy_within(written..filled, 0);
        filled -= written;
    }
}

/// Copies bytes between the standard streams and a child, in both directions.
pub(crate) fn relay(command: &mut Command) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the child starts");
    let (to, from) = (child.stdin.take(), child.stdout.take());
    let to = File::from(std::os::fd::OwnedFd::from(to.expect("it is piped")));
    thread::spawn(move || copy(unbuffered(std::io::stdin()), to));
    let from = File::from(std::os::fd::OwnedFd::from(from.expect("it is piped")));
    copy(from, unbuffered(std::io::stdout()));
    let _ = child.wait();
}

fn copy(mut from: File, mut to: File) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..len]).is_err() {
            return;
        }
    }
}

/// A standard stream without the buffer of `std`.
pub(super) fn unbuffered(stream: impl AsFd) -> File {
    let fd = stream.as_fd().try_clone_to_owned();
    File::from(fd.expect("there are standard streams"))
}

/// HTTP with handwritten heads and keep-alive. Sequential calls use one blocking connection. Concurrent calls use async tasks with one
/// connection each.
pub(crate) struct Http {
    stream: TcpStream,
    async_address: String,
}

impl Http {
    /// Connects to the blocking server, and keeps the address of the async server for concurrent calls.
    pub(crate) fn new(blocking: &str, async_address: &str) -> Http {
        let stream = TcpStream::connect(blocking).expect("it listens");
        stream.set_nodelay(true).expect("a socket can do that");
        Http {
            stream,
            async_address: async_address.to_owned(),
        }
    }
}

impl Client for Http {
    fn sequential(&mut self, calls: usize, text: &str) -> Vec<u64> {
        let (request, mut chunk) = (post(text), vec![0; CHUNK]);
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = Instant::now();
            self.stream.write_all(&request).expect("it reads");
            let mut filled = 0;
            while body(&chunk[..filled]).is_none() {
                filled += self.stream.read(&mut chunk[filled..]).expect("it answers");
            }
            times.push(nanos(start));
        }
        times
    }

    fn concurrent(&mut self, calls: usize, in_flight: usize, text: &str) {
        runtime().block_on(async {
            let workers: Vec<_> = (0..in_flight)
                .map(|_| {
                    let (address, request) = (self.async_address.clone(), post(text));
                    tokio::spawn(async move {
                        let stream = tokio::net::TcpStream::connect(address).await;
                        let mut stream = stream.expect("it listens");
                        stream.set_nodelay(true).expect("a socket can do that");
                        let mut chunk = vec![0; CHUNK];
                        for _ in 0..calls / in_flight {
                            stream.write_all(&request).await.expect("it reads");
                            let mut filled = 0;
                            while body(&chunk[..filled]).is_none() {
                                let read = stream.read(&mut chunk[filled..]).await;
                                filled += read.expect("it answers");
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.await.expect("every call is answered");
            }
        });
    }
}

fn post(text: &str) -> Vec<u8> {
    let body = line(text);
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend(body);
    request
}

/// The body of a message, if it is complete.
fn body(message: &[u8]) -> Option<&[u8]> {
    let end = memmem::find(message, b"\r\n\r\n")? + 4;
    let field = b"content-length: ";
    let at = memmem::find(&message[..end], field)? + field.len();
    let digits = message[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let len = digits.fold(0, |len, digit| 10 * len + usize::from(digit - b'0'));
    message.get(end..end + len)
}

fn answer(out: &mut Vec<u8>, body: &[u8]) {
    out.clear();
    let len = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n"
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body);
}

/// A minimal server, with a thread for each connection. It prints its address.
pub(crate) fn serve_http() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    println!("{}", listener.local_addr().expect("it has an address"));
    for stream in listener.incoming() {
        let mut stream = stream.expect("somebody connects");
        stream.set_nodelay(true).expect("a socket can do that");
        thread::spawn(move || {
            let (mut chunk, mut out, mut filled) = (vec![0; CHUNK], Vec::new(), 0);
            while let Ok(len @ 1..) = stream.read(&mut chunk[filled..]) {
                filled += len;
                if let Some(body) = body(&chunk[..filled]) {
                    answer(&mut out, body);
                    filled = 0;
                    if stream.write_all(&out).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// The same with tasks.
pub(crate) fn serve_http_tasks() {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("there is a port");
        println!("{}", listener.local_addr().expect("it has an address"));
        loop {
            let (mut stream, _) = listener.accept().await.expect("somebody connects");
            stream.set_nodelay(true).expect("a socket can do that");
            tokio::spawn(async move {
                let (mut chunk, mut out, mut filled) = (vec![0; CHUNK], Vec::new(), 0);
                while let Ok(len @ 1..) = stream.read(&mut chunk[filled..]).await {
                    filled += len;
                    if let Some(body) = body(&chunk[..filled]) {
                        answer(&mut out, body);
                        filled = 0;
                        if stream.write_all(&out).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
}
