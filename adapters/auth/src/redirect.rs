//! Listens on this computer for the browser that comes back from a sign-in, and shows a page that says what happened.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The longest head of a request that is read.
const MAX_REQUEST: u64 = 16 << 10;
/// How long a browser may send or take nothing.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks for a browser.
const PAUSE: Duration = Duration::from_millis(25);
/// How many connections are served at the same time. Browsers open some that they do not use, and any program on this computer can open more.
const MAX_CONNECTIONS: usize = 16;

/// Where a browser is sent after a sign-in.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The host in the redirect URI. Default: `127.0.0.1`. Some authorization servers know only `localhost`.
    pub host: String,
    /// The port. `None`: the one that is registered, or any. Default: `None`.
    pub port: Option<u16>,
    /// The path. Default: `/callback`.
    pub path: String,
    /// A URL to which the browser is sent when the sign-in succeeded, in place of the page. Default: `None`.
    pub success_url: Option<String>,
}

impl Default for Redirect {
    fn default() -> Redirect {
        Redirect {
            host: "127.0.0.1".into(),
            port: None,
            path: "/callback".into(),
            success_url: None,
        }
    }
}

/// What the page says.
pub(crate) enum Page {
    SignedIn,
    Failed(String),
    /// The request does not belong to the sign-in that is waiting.
    Unknown,
}

/// A listener. Its port is free when this has been dropped. Pages that wait for an outcome are still shown.
pub(crate) struct Listener {
    uri: String,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the threads of a listener share. One thread accepts connections, and each connection has a thread of its own.
struct Connections<A> {
    path: String,
    success_url: Option<String>,
    answer: A,
}

impl Listener {
    /// Listens for a browser. `answer` gets the query of each request to the path, and returns the page to show.
    pub(crate) fn start(
        redirect: &Redirect,
        registered_uri: Option<&str>,
        answer: impl Fn(String) -> Page + Send + Sync + 'static,
    ) -> io::Result<Listener> {
        let socket = bind(redirect, registered_uri)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let (host, path) = (&redirect.host, redirect.path.clone());
        let uri = format!("http://{host}:{port}{path}");
        let is_closed = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&is_closed);
        let connections = Arc::new(Connections {
            path,
            success_url: redirect.success_url.clone(),
            answer,
        });
        let thread = thread::Builder::new().name("everlink-auth".into());
        let thread = thread.spawn(move || {
            while !is_ended.load(Ordering::Relaxed) {
                match socket.accept() {
                    Ok((browser, _)) => serve_apart(browser, &connections),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
        Ok(Listener {
            uri,
            is_closed,
            thread: Some(thread),
        })
    }

    /// The redirect URI.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // The thread closes the socket within `PAUSE`, because it waits for no connection. The next listener may need the same port.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Binds to the port that is set, or to the one that is registered, or to any.
fn bind(redirect: &Redirect, registered_uri: Option<&str>) -> io::Result<TcpListener> {
    // Only this computer can connect, whatever the host in the URI is.
    let address = if redirect.host.contains("::1") {
        "::1"
    } else {
        "127.0.0.1"
    };
    if let Some(port) = redirect.port {
        return TcpListener::bind((address, port)).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("port {port} cannot be used for the redirect: {error}"),
            )
        });
    }
    let start = format!("http://{}:", redirect.host);
    let registered = registered_uri.and_then(|uri| {
        let (port, _) = uri.strip_prefix(&start)?.split_once('/')?;
        port.parse::<u16>().ok()
    });
    match registered.map(|port| TcpListener::bind((address, port))) {
        Some(Ok(socket)) => Ok(socket),
        _ => TcpListener::bind((address, 0)),
    }
}

/// Answers one request on a thread of its own, because a page may wait for its outcome, and a browser may send nothing. Closes the connection if there
/// are too many, or no thread is left.
fn serve_apart<A>(browser: TcpStream, connections: &Arc<Connections<A>>)
where
    A: Fn(String) -> Page + Send + Sync + 'static,
{
    // The accepting thread holds one reference, and the thread of each connection holds one. So this drops a connection beyond the maximum.
    if Arc::strong_count(connections) > MAX_CONNECTIONS {
        return;
    }
    let connections = Arc::clone(connections);
    let thread = thread::Builder::new().name("everlink-auth".into());
    drop(thread.spawn(move || serve(browser, &connections)));
}

/// Answers one request.
fn serve<A: Fn(String) -> Page>(
    browser: TcpStream,
    connections: &Connections<A>,
) -> io::Result<()> {
    let Connections {
        path,
        success_url,
        answer,
    } = connections;
    browser.set_nonblocking(false)?;
    browser.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    browser.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut reader = BufReader::new(browser.try_clone()?.take(MAX_REQUEST));
    // Reads lines as bytes, because a header field may have bytes that are not UTF-8.
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    // Reads the rest of the head: if unread data is left when the socket closes, some systems reset the connection, and the answer is lost.
    let mut rest = Vec::new();
    while reader.read_until(b'\n', &mut rest)? > 2 {
        rest.clear();
    }
    let line = String::from_utf8_lossy(&line);
    let target = line
        .strip_prefix("GET ")
        .and_then(|rest| rest.split(' ').next());
    let (target_path, query) = target
        .unwrap_or_default()
        .split_once('?')
        .unwrap_or_default();
    let page = if target_path == path {
        answer(query.to_owned())
    } else {
        Page::Unknown
    };
    respond(&browser, &page, success_url.as_deref())
}

fn respond(mut browser: &TcpStream, page: &Page, success_url: Option<&str>) -> io::Result<()> {
    if let (Page::SignedIn, Some(url)) = (page, success_url) {
        return write!(
            browser,
            "HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let (status, title, text) = match page {
        Page::SignedIn => ("200 OK", "Signed in", "You are signed in. Go back to the program that opened this page.".into()),
        Page::Failed(why) => (
            "200 OK",
            "Not signed in",
            format!(
                "You are not signed in: {}. To try again, start the sign-in again in the program that opened this page.",
                escape(why.trim_end_matches('.'))
            ),
        ),
        Page::Unknown => (
            "404 Not Found",
            "Not expected",
            "No sign-in waits for this page: it is over, or the time for it is. If you are not signed in, start it again in the program that opened this page.".into(),
        ),
    };
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <body style=\"font-family:sans-serif;max-width:40em;margin:4em auto\"><h1>{title}</h1>\
         <p>{text}</p><p>You can close this tab.</p></body></html>"
    );
    write!(
        browser,
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(redirect: &Redirect, registered_uri: Option<&str>) -> Listener {
        let answer = |query: String| match &*query {
            "code=1" => Page::SignedIn,
            _ => Page::Failed(format!("<b>\"{query}\"</b> & more")),
        };
        Listener::start(redirect, registered_uri, answer).expect("it listens")
    }

    fn port(listener: &Listener) -> u16 {
        let (_, rest) = listener.uri().rsplit_once(':').expect("a port");
        let (port, _) = rest.split_once('/').expect("a path");
        port.parse().expect("a number")
    }

    /// The answer to this request.
    fn page(listener: &Listener, request: impl AsRef<[u8]>) -> String {
        let mut browser = TcpStream::connect(("127.0.0.1", port(listener))).expect("it listens");
        browser
            .set_read_timeout(Some(REQUEST_TIMEOUT))
            .expect("a timeout");
        browser.write_all(request.as_ref()).expect("it is sent");
        let mut page = String::new();
        browser.read_to_string(&mut page).expect("a page");
        page
    }

    #[test]
    fn only_a_request_to_the_path_with_a_query_is_an_answer() {
        let listener = listen(&Redirect::default(), None);
        assert!(listener.uri().starts_with("http://127.0.0.1:"));
        assert!(listener.uri().ends_with("/callback"));
        let head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n";
        for target in [
            "GET /callback?code=1",
            "GET /other?code=1",
            "GET /callback",
            "POST /callback?code=1",
        ] {
            let page = page(&listener, format!("{target} {head}"));
            let is_answer = target == "GET /callback?code=1";
            assert_eq!(page.starts_with("HTTP/1.1 200 "), is_answer, "{page}");
            assert_eq!(page.starts_with("HTTP/1.1 404 "), !is_answer, "{page}");
            let (head, body) = page.split_once("\r\n\r\n").expect("a body");
            let length = format!("Content-Length: {}", body.len());
            assert!(head.contains(&length), "{head}");
        }
    }

    #[test]
    fn header_fields_may_have_any_bytes() {
        let listener = listen(&Redirect::default(), None);
        let request = b"GET /callback?code=1 HTTP/1.1\r\nCookie: name=\xe9\xff\r\n\r\n";
        let page = page(&listener, request);
        assert!(page.contains("You are signed in"), "{page}");
    }

    #[test]
    fn reason_of_a_failure_is_shown_as_text() {
        let listener = listen(&Redirect::default(), None);
        let page = page(&listener, "GET /callback?<i>' HTTP/1.1\r\n\r\n");
        let shown = "&lt;b&gt;&quot;&lt;i&gt;'&quot;&lt;/b&gt; &amp; more. To try again, start";
        assert!(page.contains(shown), "{page}");
    }

    #[test]
    fn browser_is_sent_to_the_page_for_success_only_after_a_success() {
        let redirect = Redirect {
            success_url: Some("https://app.example/welcome".into()),
            ..Redirect::default()
        };
        let listener = listen(&redirect, None);
        for (query, is_sent) in [("code=1", true), ("error=x", false)] {
            let page = page(&listener, format!("GET /callback?{query} HTTP/1.1\r\n\r\n"));
            let location = "\r\nLocation: https://app.example/welcome\r\n";
            assert_eq!(page.contains(location), is_sent, "{page}");
        }
    }

    #[test]
    fn registered_port_is_used_again_if_it_is_free_and_of_the_same_host() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = free.local_addr().expect("an address").port();
        let uri = format!("http://127.0.0.1:{number}/callback");
        let taken = listen(&Redirect::default(), Some(&uri));
        assert_ne!(port(&taken), number, "it is taken");
        drop(free);
        let elsewhere = format!("http://localhost:{number}/callback");
        for other in [&*elsewhere, "http://127.0.0.1/callback", "nonsense"] {
            let listener = listen(&Redirect::default(), Some(other));
            assert_ne!(port(&listener), number, "{other}");
        }
        assert_eq!(listen(&Redirect::default(), Some(&uri)).uri(), uri);
    }

    #[test]
    fn port_of_the_settings_is_used_or_named_in_the_error() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = taken.local_addr().expect("an address").port();
        let redirect = Redirect {
            host: "localhost".into(),
            port: Some(number),
            ..Redirect::default()
        };
        let start = || Listener::start(&redirect, None, |_| Page::SignedIn);
        let error = start().err().expect("it is taken").to_string();
        assert!(error.contains(&number.to_string()), "{error}");
        drop(taken);
        let listener = start().expect("it is free");
        let uri = format!("http://localhost:{number}/callback");
        assert_eq!(listener.uri(), uri);
    }

    /// A sign-in that goes on with another client listens at the same port again, while a page of the first attempt waits and a browser sends nothing.
    #[test]
    fn port_is_free_as_soon_as_the_listener_is_dropped() {
        let (asked, is_asked) = std::sync::mpsc::channel();
        let answer = move |_| {
            asked.send(()).expect("the test waits");
            thread::sleep(Duration::from_millis(500));
            Page::SignedIn
        };
        let mut redirect = Redirect::default();
        let listener = Listener::start(&redirect, None, answer).expect("it listens");
        redirect.port = Some(port(&listener));
        let address = ("127.0.0.1", port(&listener));
        let silent = TcpStream::connect(address).expect("it listens");
        let mut waiting = TcpStream::connect(address).expect("it listens");
        write!(waiting, "GET /callback?code=1 HTTP/1.1\r\n\r\n").expect("it is sent");
        is_asked.recv().expect("the request is read");
        drop(listener);
        let next = Listener::start(&redirect, None, |_| Page::Unknown).expect("the port is free");
        let shown = page(&next, "GET /callback?code=2 HTTP/1.1\r\n\r\n");
        assert!(shown.starts_with("HTTP/1.1 404 "), "{shown}");
        // The first page is still shown.
        let mut shown = String::new();
        waiting.read_to_string(&mut shown).expect("a page");
        assert!(shown.contains("You are signed in"), "{shown}");
        drop(silent);
    }

    #[test]
    fn connections_over_the_limit_are_closed_and_those_below_are_served() {
        let listener = listen(&Redirect::default(), None);
        let address = ("127.0.0.1", port(&listener));
        let connect = || TcpStream::connect(address).expect("it listens");
        let mut silent: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect()).collect();
        let mut last = connect();
        last.set_read_timeout(Some(REQUEST_TIMEOUT))
            .expect("a timeout");
        let read = last.read(&mut [0]);
        assert!(!matches!(read, Ok(1)), "it is closed: {read:?}");
        let mut newest = silent.pop().expect("one of them");
        write!(newest, "GET /callback?code=1 HTTP/1.1\r\n\r\n").expect("it is open");
        let mut shown = String::new();
        newest.read_to_string(&mut shown).expect("a page");
        assert!(shown.contains("You are signed in"), "{shown}");
        drop(silent);
        // The threads of the others end soon.
        let is_served = (0..400).any(|_| {
            thread::sleep(PAUSE);
            let mut browser = connect();
            let mut shown = String::new();
            write!(browser, "GET /callback?code=1 HTTP/1.1\r\n\r\n").is_ok()
                && browser.read_to_string(&mut shown).is_ok()
                && shown.contains("You are signed in")
        });
        assert!(is_served);
    }

    #[test]
    fn nobody_listens_after_the_end() {
        let listener = listen(&Redirect::default(), None);
        let address = ("127.0.0.1", port(&listener));
        drop(listener);
        let is_over = (0..400).any(|_| {
            thread::sleep(PAUSE);
            TcpStream::connect(address).is_err()
        });
        assert!(is_over);
    }

    /// Sockets that are accepted from one that does not block inherit that on some systems.
    #[test]
    fn connection_blocks_until_the_request_comes_but_not_for_ever() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("it listens");
        let (browser, _) = socket.accept().expect("a connection");
        browser.set_nonblocking(true).expect("it is set");
        let same = browser.try_clone().expect("the same socket");
        let connections = Connections {
            path: "/callback".into(),
            success_url: None,
            answer: |_| Page::SignedIn,
        };
        let served = thread::spawn(move || serve(browser, &connections));
        thread::sleep(PAUSE);
        write!(client, "GET /callback?code=1 HTTP/1.1\r\n\r\n").expect("it is sent");
        served.join().expect("no panic").expect("a request");
        for timeout in [same.read_timeout(), same.write_timeout()] {
            assert_eq!(timeout.expect("a socket"), Some(REQUEST_TIMEOUT));
        }
        drop(same);
        let mut shown = String::new();
        client.read_to_string(&mut shown).expect("a page");
        assert!(shown.contains("You are signed in"), "{shown}");
    }

    /// Unread data at the end of a connection would reset it.
    #[test]
    fn long_head_is_read_to_its_end() {
        let listener = listen(&Redirect::default(), None);
        let cookie = "a".repeat(12 << 10);
        let request = format!("GET /callback?code=1 HTTP/1.1\r\nCookie: {cookie}\r\n\r\n");
        let page = page(&listener, request);
        assert!(page.contains("You are signed in"), "{page}");
    }
}
