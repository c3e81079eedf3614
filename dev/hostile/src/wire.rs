//! HTTP/1.1 on a raw socket, as far as the attacks and the good host need it. Must not depend on MCP messages.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout for reads and writes. No healthy operation takes as long.
const IO_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to the guard.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

/// The status, session and body of a response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(IO_TIMEOUT))?;
        socket.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(Connection {
            reader: BufReader::new(socket),
        })
    }

    /// Whether the peer has closed the connection. A connection pool would not reuse it.
    pub(crate) fn is_closed(&self) -> bool {
        let socket = self.reader.get_ref();
        let is_closed = socket.set_nonblocking(true).is_err()
            || match socket.peek(&mut [0]) {
                Ok(len) => len == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
        is_closed || socket.set_nonblocking(false).is_err()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Posts a message and reads the response.
    pub(crate) fn post(&mut self, fields: &str, body: &str) -> io::Result<Answer> {
        self.write(&post_request(fields, body))?;
        self.read()
    }

    pub(crate) fn read(&mut self) -> io::Result<Answer> {
        let first = self.read_line()?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let (mut session, mut length, mut is_chunked) = (None, 0, false);
        loop {
            let line = self.read_line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(": ") else {
                continue;
            };
            match name {
                "content-length" => length = value.parse().unwrap_or(0),
                "mcp-session-id" => session = Some(value.to_owned()),
                "transfer-encoding" => is_chunked = value == "chunked",
                _ => {}
            }
        }
        let mut body = Vec::new();
        if is_chunked {
            loop {
                let size = usize::from_str_radix(&self.read_line()?, 16);
                let size = size.map_err(|_| io::ErrorKind::InvalidData)?;
                self.read_exact(size, &mut body)?;
                self.read_line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.read_exact(length, &mut body)?;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Answer {
            status,
            session,
            body,
        })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn read_exact(&mut self, len: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let start = into.len();
        into.resize(start + len, 0);
        self.reader.read_exact(&mut into[start..])
    }
}

/// A POST request with this body and these additional header fields.
pub(crate) fn post_request(fields: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {len}\r\n{fields}\r\n{body}"
    );
    request.into_bytes()
}

/// The header fields and the body of a modern request.
pub(crate) fn modern(method: &str, name: Option<&str>, params: &str) -> (String, String) {
    let name = name.map(|name| format!("mcp-name: {name}\r\n"));
    let fields = format!(
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{}",
        name.unwrap_or_default()
    );
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let comma = if params.is_empty() { "" } else { "," };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}{meta}}}}}"#
    );
    (fields, body)
}

/// The first message of a legacy host.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;

/// The last message of its handshake.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The header field with the session id.
pub(crate) fn in_session(id: &str) -> String {
    format!("mcp-session-id: {id}\r\n")
}
