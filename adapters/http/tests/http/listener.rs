//! A local listener, with a thread for each connection and a minimal HTTP/1.1 server. Does not depend on MCP.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::serial::TIMEOUT;

/// A listener, until it is dropped.
pub(crate) struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    accepted: AtomicUsize,
    sockets: Mutex<HashMap<usize, TcpStream>>,
}

impl Listener {
    /// Creates a listener that calls this function with each connection.
    pub(crate) fn new(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Listener {
        Listener::at("127.0.0.1:0".parse().expect("an address"), serve)
    }

    /// Creates a listener at this address.
    pub(crate) fn at(
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Listener {
        let listener = TcpListener::bind(address).expect("an address to listen at");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || listen(&listener, &shared, &Arc::new(serve)))
        };
        Listener {
            address,
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Closes all connections.
    pub(crate) fn hang_up(&self) {
        for socket in self.shared.sockets.lock().expect("whole").values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.hang_up();
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn listen<S: Fn(TcpStream) + Send + Sync + 'static>(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    serve: &Arc<S>,
) {
    let mut threads = Vec::new();
    loop {
        let (socket, _) = listener.accept().expect("a connection");
        if shared.is_over.load(Ordering::SeqCst) {
            break;
        }
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        let clone = socket.try_clone().expect("a descriptor");
        shared.sockets.lock().expect("whole").insert(number, clone);
        let (shared, serve) = (Arc::clone(shared), Arc::clone(serve));
        threads.push(thread::spawn(move || {
            serve(socket);
            shared.sockets.lock().expect("whole").remove(&number);
        }));
    }
    for socket in shared.sockets.lock().expect("whole").values() {
        let _ = socket.shutdown(Shutdown::Both);
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// Serves HTTP/1.1 on a connection: calls the script for one request after another, until it returns something else than `Another`.
pub(crate) fn serve_http(
    stream: impl Read + Write,
    script: &impl Fn(&Request, &mut dyn Write) -> io::Result<Next>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = Request::read(&mut stream)? {
        match script(&request, stream.get_mut())? {
            Next::Another => {}
            Next::Close => break,
            Next::Wait(gone) => {
                let end = stream.read(&mut [0]);
                let is_end = end.map_or_else(|error| means_closed(&error), |len| len == 0);
                let _ = gone.send(is_end);
                break;
            }
        }
    }
    Ok(())
}

/// The action of the server after a request.
pub(crate) enum Next {
    Another,
    Close,
    /// Sends nothing until the client closes the connection. Reports whether it did.
    Wait(std::sync::mpsc::Sender<bool>),
}

/// A request of a client.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Reads the next request, if there is one.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
        let first = line(stream)?;
        let mut parts = first.split(' ');
        let (Some(verb), Some(target)) = (parts.next(), parts.next()) else {
            return Ok(None);
        };
        let mut request = Request {
            verb: verb.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let field = line(stream)?;
            let Some((name, value)) = field.split_once(": ") else {
                break;
            };
            let field = (name.to_ascii_lowercase(), value.to_owned());
            request.fields.push(field);
        }
        let len = request.field("content-length");
        let len = len.map_or(0, |len| len.parse().expect("a number"));
        request.body.resize(len, 0);
        stream.read_exact(&mut request.body)?;
        Ok(Some(request))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(of, _)| of == name).map(|(_, value)| &**value)
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Reads and discards bytes until the other side closes the connection. Returns whether it did.
pub(crate) fn read_until_closed(mut socket: TcpStream) -> bool {
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut bytes = [0; 1024];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return means_closed(&error),
        }
    }
}

/// Whether the error means that the other side closed the connection: with unread bytes, or without the closing message of TLS.
fn means_closed(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
    kinds.contains(&error.kind())
}
