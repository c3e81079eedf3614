//! Asks whoever is at this computer to sign in: opens a browser, shows URLs and codes, and reads what is pasted.

use std::io::{IsTerminal as _, stderr, stdin};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io, thread};

use everlink::auth::{DeviceCode, Event, Need, Secret};
use everlink::http::Url;
use everlink_auth::{PrivateKey, RedirectSender};
use everlink_tokio::http::HttpWeb;
use serde_json::{Value, json};

use super::AuthOptions;
use super::pasted::Pasted;
use crate::Failure;
use crate::args::LogFormat;
use crate::output::{warn, warning, write_to_stderr};

/// Who can be asked to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The user of the host that started this program, with a log of this format. Standard input is not theirs.
    Host(LogFormat),
    /// A person who signs in at the terminal with `everlink login`.
    Login,
    /// A person at the terminal, if there is one.
    Terminal,
}

/// Asks a person.
pub(super) struct Person {
    /// The command that signs in at the server.
    login: String,
    messages: Messages,
    opens_browser: bool,
    pastes: bool,
    paste_reader: PasteReader,
    /// Reads the sign-in page in place of a person.
    follows: Option<Arc<HttpWeb>>,
    private_key: Option<PrivateKey>,
    /// The file with the token of the platform, or of the user.
    token_file: Option<PathBuf>,
    /// Whether the person was told that the store fails.
    is_store_bad: AtomicBool,
}

impl Person {
    pub(super) fn new(
        server: &str,
        options: &AuthOptions,
        audience: Audience,
        web: &Arc<HttpWeb>,
    ) -> Result<Person, Failure> {
        let token_file = options
            .workload_token
            .as_ref()
            .or(options.id_token.as_ref());
        Ok(Person {
            login: options.login_command(server),
            messages: Messages::start(audience)?,
            opens_browser: !options.no_browser && !options.paste,
            pastes: options.paste,
            paste_reader: PasteReader::default(),
            follows: options.follow_sign_in.then(|| Arc::clone(web)),
            private_key: options.private_key()?,
            token_file: token_file.cloned(),
            is_store_bad: AtomicBool::new(false),
        })
    }
}

/// The number of lines that wait for the reader of a guard's log. Further lines are dropped until the reader has taken one.
const MAX_WAITING_LINES: usize = 64;

/// Shows messages. A clone shows them at the same place.
#[derive(Clone)]
struct Messages {
    audience: Audience,
    /// The lines for the log of a guard. A thread writes them, because the driver must not wait for a host that does not read the log.
    lines: Option<SyncSender<String>>,
}

impl Messages {
    fn start(audience: Audience) -> io::Result<Messages> {
        let lines = match audience {
            Audience::Host(_) => {
                let (sender, lines) = sync_channel::<String>(MAX_WAITING_LINES);
                let write = move || {
                    for line in lines {
                        write_to_stderr(line.as_bytes());
                    }
                };
                thread::Builder::new()
                    .name("sign-in-log".into())
                    .spawn(write)?;
                Some(sender)
            }
            Audience::Login | Audience::Terminal => None,
        };
        Ok(Messages { audience, lines })
    }

    /// Says that the person must open the page themselves.
    fn show_no_browser(&self, error: &io::Error) {
        let text = format!("no browser can be started ({error}): open the page yourself");
        let details = json!({"no_browser": error.to_string()});
        self.show(&text, "no_browser", details);
    }

    /// Shows a text. A log of JSON also has its kind, as the events of a link have, and these details.
    fn show(&self, text: &str, kind: &str, details: Value) {
        let line = match self.audience {
            Audience::Host(LogFormat::Off) => return,
            Audience::Host(LogFormat::Json) => {
                let mut entry = details;
                entry["event"] = json!(text);
                entry["kind"] = json!(kind);
                format!("{entry}\n")
            }
            Audience::Host(LogFormat::Text) | Audience::Login | Audience::Terminal => {
                warning(&text)
            }
        };
        match &self.lines {
            Some(lines) => drop(lines.try_send(line)),
            None => write_to_stderr(line.as_bytes()),
        }
    }
}

/// Starts a thread. Fails if the system has none left. `thread::spawn` would panic, and so end the thread that drives the authorization.
fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}

/// Reads the URLs that the person pastes. One thread reads for all sign-ins, and ends with the line that the sign-in waits for: the form for a question of
/// the server reads standard input next.
#[derive(Clone, Default)]
struct PasteReader(Arc<Mutex<Option<WaitingSignIn>>>);

/// A sign-in that waits for a pasted URL.
struct WaitingSignIn {
    redirect: RedirectSender,
    /// The URL of its page, by which its answer is recognised.
    page: String,
}

impl PasteReader {
    /// Gives the next lines to the sign-in at this page, until one answers it. An earlier sign-in gets no more lines. Says what is wrong with other lines.
    /// Fails if the system has no thread left. Then no sign-in waits.
    fn expect(&self, page: &str, redirect: &RedirectSender, messages: &Messages) -> io::Result<()> {
        let waiting = WaitingSignIn {
            redirect: redirect.clone(),
            page: page.to_owned(),
        };
        let is_reading = self.lock().replace(waiting).is_some();
        if is_reading {
            return Ok(());
        }
        let (reader, messages) = (self.clone(), messages.clone());
        let read = move || {
            loop {
                let mut line = String::new();
                match stdin().read_line(&mut line) {
                    Ok(1..) if reader.give(&line, &messages) => return,
                    Ok(1..) => {}
                    _ => return drop(reader.lock().take()),
                }
            }
        };
        let started = start_thread("paste", read);
        if started.is_err() {
            // The next sign-in must start a reader, because none is there.
            self.lock().take();
        }
        started
    }

    /// Gives a line to the sign-in that waits, if it is the answer. Returns whether none waits any more.
    fn give(&self, line: &str, messages: &Messages) -> bool {
        let mut waiting = self.lock();
        let Some(sign_in) = &*waiting else {
            return true;
        };
        let pasted = Pasted::new(line, &sign_in.page);
        if pasted == Pasted::Answer {
            sign_in.redirect.send(line.trim());
            *waiting = None;
            return true;
        }
        drop(waiting);
        if let Some(advice) = pasted.advice() {
            messages.show(advice, "paste", json!({}));
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Option<WaitingSignIn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl everlink_auth::Person for Person {
    fn is_there(&self) -> Result<(), String> {
        let is_at_terminal = stdin().is_terminal() || stderr().is_terminal();
        let is_there = match self.messages.audience {
            Audience::Host(_) => true,
            Audience::Login | Audience::Terminal => is_at_terminal || self.follows.is_some(),
        };
        match is_there {
            true => Ok(()),
            false if self.messages.audience == Audience::Login => Err(
                "there is no terminal at which to ask somebody; run this command at a terminal, or sign in as a program with --client-credentials or --workload-token".to_owned(),
            ),
            false => Err(format!(
                "there is no terminal at which to ask somebody; run `{}` first, or give a token with --bearer-env VARIABLE",
                self.login
            )),
        }
    }

    fn visit(&self, url: &Url, redirect: &RedirectSender) {
        if let Some(web) = &self.follows {
            let (web, page, redirect) = (Arc::clone(web), url.clone(), redirect.clone());
            let follow = move || {
                if let Err(why) = redirect.follow(&*web, page) {
                    warn(&why);
                }
            };
            if let Err(error) = start_thread("sign-in-page", follow) {
                warn(&format!("the sign-in page cannot be read: {error}"));
            }
            return;
        }
        let page = url.as_str();
        let text = format!("sign in at {page}");
        self.messages
            .show(&text, "sign_in", json!({"sign_in": page}));
        if self.opens_browser {
            // It may be the browser itself that runs until it is closed.
            let (page, messages) = (page.to_owned(), self.messages.clone());
            let open = move || {
                if let Err(error) = webbrowser::open(&page) {
                    messages.show_no_browser(&error);
                }
            };
            if let Err(error) = start_thread("browser", open) {
                self.messages.show_no_browser(&error);
            }
        }
        if self.pastes {
            let text = "after the sign-in, the browser shows a page that it cannot open: paste its URL here";
            self.messages.show(text, "paste", json!({}));
            let reading = self.paste_reader.expect(page, redirect, &self.messages);
            if let Err(error) = reading {
                let text = format!(
                    "a pasted URL cannot be read ({error}): end the program, and start it again"
                );
                let details = json!({"no_paste": error.to_string()});
                self.messages.show(&text, "no_paste", details);
            }
        }
    }

    fn show_code(&self, code: &DeviceCode) {
        let (page, typed) = (code.url.as_str(), &*code.code);
        let mut text = format!("sign in at {page} with the code {typed}");
        if let Some(url) = &code.url_with_code {
            text.push_str(&format!(", or at {}", url.as_str()));
        }
        self.messages
            .show(&text, "sign_in", json!({"sign_in": page, "code": typed}));
    }

    fn waits(&self) {
        self.messages.show(
            "another process is waiting for somebody to sign in there; complete that sign-in, or end the process",
            "waits_for_sign_in",
            json!({"waits_for": "sign-in of another process"}),
        );
    }

    fn event(&self, event: &Event) {
        match event {
            Event::RenewalRefused { issuer, answer } => {
                let text = format!("{issuer} no longer accepts the earlier sign-in ({answer})");
                let why = answer.to_string();
                let refused = json!({"issuer": issuer, "why": why});
                let details = json!({"renewal_refused": refused});
                self.messages.show(&text, "renewal_refused", details);
            }
            // A store that fails does so at every step.
            Event::StoreFailed { why } if !self.is_store_bad.swap(true, Ordering::Relaxed) => {
                let text = format!(
                    "the store of tokens cannot be used: {why}; name another directory with --auth-directory, or tokens are lost when this program ends"
                );
                self.messages
                    .show(&text, "store_failed", json!({"store_failed": why}));
            }
            _ => {}
        }
    }

    fn give(&self, need: &Need) -> Result<Secret, String> {
        if let Need::ClientAssertion {
            client_id,
            audience,
            algorithms,
        } = need
        {
            let key = self.private_key.as_ref();
            let key = key.ok_or("the client needs a private key: name it with --private-key")?;
            return key.client_assertion(client_id, audience, algorithms);
        }
        let file = self
            .token_file
            .as_ref()
            .ok_or("no file with a token was named")?;
        let token = fs::read_to_string(file);
        let token = token.map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Secret::new(token.trim()))
    }
}
