//! Listens on this computer for the browser that comes back from a sign-in, and shows a page that says what happened.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The longest request line that is read.
const MAX_REQUEST: u64 = 16 << 10;
/// How long a browser may take for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks for a browser.
const PAUSE: Duration = Duration::from_millis(25);

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

/// A listener. It ends when this is dropped.
pub(crate) struct Listener {
    uri: String,
    is_closed: Arc<AtomicBool>,
}

impl Listener {
    /// Listens for a browser. `answer` gets the query of each request to the path, and returns the page to show.
    pub(crate) fn start(
        redirect: &Redirect,
        registered_uri: Option<&str>,
        answer: impl Fn(String) -> Page + Send + 'static,
    ) -> io::Result<Listener> {
        let socket = bind(redirect, registered_uri)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let (host, path) = (&redirect.host, redirect.path.clone());
        let uri = format!("http://{host}:{port}{path}");
        let is_closed = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&is_closed);
        let success_url = redirect.success_url.clone();
        let thread = thread::Builder::new().name("everlink-auth".into());
        thread.spawn(move || {
            while !is_ended.load(Ordering::Relaxed) {
                match socket.accept() {
                    // A browser that sends nothing is not waited for longer than the timeout.
                    Ok((browser, _)) => {
                        drop(serve(browser, &path, success_url.as_deref(), &answer))
                    }
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
        Ok(Listener { uri, is_closed })
    }

    /// The redirect URI.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
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

/// Answers one request.
fn serve(
    browser: TcpStream,
    path: &str,
    success_url: Option<&str>,
    answer: &impl Fn(String) -> Page,
) -> io::Result<()> {
    browser.set_nonblocking(false)?;
    browser.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    browser.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut reader = BufReader::new(browser.try_clone()?.take(MAX_REQUEST));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    // The rest of the head is read, because some systems drop an answer when unread data is left.
    let mut rest = String::new();
    while reader.read_line(&mut rest)? > 2 {
        rest.clear();
    }
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
    respond(&browser, &page, success_url)
}

fn respond(mut browser: &TcpStream, page: &Page, success_url: Option<&str>) -> io::Result<()> {
    if let (Page::SignedIn, Some(url)) = (page, success_url) {
        return write!(
            browser,
            "HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let (status, title, text) = match page {
        Page::SignedIn => ("200 OK", "Signed in", "You are signed in.".into()),
        Page::Failed(why) => (
            "200 OK",
            "Not signed in",
            format!("You are not signed in: {}.", escape(why)),
        ),
        Page::Unknown => (
            "404 Not Found",
            "Not expected",
            "No sign-in waits for this page. It may be over: start it again in the program.".into(),
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
    fn page(listener: &Listener, request: &str) -> String {
        let mut browser = TcpStream::connect(("127.0.0.1", port(listener))).expect("it listens");
        browser
            .set_read_timeout(Some(REQUEST_TIMEOUT))
            .expect("a timeout");
        browser.write_all(request.as_bytes()).expect("it is sent");
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
            let page = page(&listener, &format!("{target} {head}"));
            let is_answer = target == "GET /callback?code=1";
            assert_eq!(page.starts_with("HTTP/1.1 200 "), is_answer, "{page}");
            assert_eq!(page.starts_with("HTTP/1.1 404 "), !is_answer, "{page}");
            let (head, body) = page.split_once("\r\n\r\n").expect("a body");
            let length = format!("Content-Length: {}", body.len());
            assert!(head.contains(&length), "{head}");
        }
    }

    #[test]
    fn reason_of_a_failure_is_shown_as_text() {
        let listener = listen(&Redirect::default(), None);
        let page = page(&listener, "GET /callback?<i>' HTTP/1.1\r\n\r\n");
        let shown = "&lt;b&gt;&quot;&lt;i&gt;'&quot;&lt;/b&gt; &amp; more";
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
            let page = page(
                &listener,
                &format!("GET /callback?{query} HTTP/1.1\r\n\r\n"),
            );
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
}
