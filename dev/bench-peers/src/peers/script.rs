//! A scripted server, the same for all clients, for measurements of the client alone.
//!
//! It accepts every handshake, echoes, and does not answer a call of `hang`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw::unbuffered;
use crate::echo::{Json, NAME, Params};

/// The tool that never answers.
pub(crate) const HANG: &str = "hang";

const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}"#;
const DISCOVER: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"script","version":"1.0"}}}"#;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    name: &'a str,
}

/// The reply of the script to this message, if there is one.
pub(crate) fn reply(line: &str) -> Option<String> {
    let message: Message<'_> = serde_json::from_str(line).expect("clients send requests");
    let id = message.id?;
    let result = match message.method {
        "initialize" => INITIALIZE.to_owned(),
        "server/discover" => DISCOVER.to_owned(),
        "tools/call" => {
            let params = message.params.expect("a call has parameters").get();
            let named: Named<'_> = serde_json::from_str(params).expect("a call has a name");
            if named.name != NAME {
                return None;
            }
            let params: Params<'_, Json<'_>> = serde_json::from_str(params).expect("an echo");
            let content = serde_json::to_string(&params.answer()).expect("this is JSON");
            format!(r#"{{"resultType":"complete",{}"#, &content[1..])
        }
        _ => r#"{"resultType":"complete"}"#.to_owned(),
    };
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

/// Runs the script on the standard streams of this process.
pub(crate) fn serve() {
    let (input, mut output) = (unbuffered(std::io::stdin()), unbuffered(std::io::stdout()));
    for line in BufReader::new(input).lines().map_while(Result::ok) {
        if let Some(mut reply) = reply(&line) {
            reply.push('\n');
            if output.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Runs the script over HTTP, on threads of this process.
pub(crate) struct HttpScript {
    address: SocketAddr,
    /// Connections with an unanswered call.
    hanging: Arc<Mutex<Vec<TcpStream>>>,
}

impl HttpScript {
    pub(crate) fn start() -> HttpScript {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has an address");
        let hanging = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&hanging);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve_connection(stream, &shared));
            }
        });
        HttpScript { address, hanging }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The number of unanswered calls.
    pub(crate) fn hanging(&self) -> usize {
        self.hanging.lock().expect("the lock is not poisoned").len()
    }

    /// Resets every connection with an unanswered call.
    pub(crate) fn reset(&self) {
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        for stream in self
            .hanging
            .lock()
            .expect("the lock is not poisoned")
            .drain(..)
        {
            setsockopt(&stream, sockopt::Linger, &at_once).expect("a socket can do that");
        }
    }
}

fn serve_connection(stream: TcpStream, hanging: &Mutex<Vec<TcpStream>>) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some((method, body)) = request(&mut reader) {
        let (status, answer) = match (&*method, &*body) {
            ("POST", body) if !body.contains(r#""id""#) => ("202 Accepted", String::new()),
            ("POST", body) => match reply(body) {
                Some(answer) => ("200 OK", answer),
                // Only `reset` closes this connection.
                None => {
                    return hanging
                        .lock()
                        .expect("the lock is not poisoned")
                        .push(reader.into_inner());
                }
            },
            _ => ("405 Method Not Allowed", String::new()),
        };
        let len = answer.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n"
        );
        if reader
            .get_mut()
            .write_all((head + &answer).as_bytes())
            .is_err()
        {
            return;
        }
    }
}

/// The method and the body of the next request.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (mut head, mut len) = (String::new(), 0);
    reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            len = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let method = head.split(' ').next()?.to_owned();
    Some((method, String::from_utf8(body).ok()?))
}
