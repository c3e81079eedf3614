//! Tests the driver with an authorization server in memory, a browser that is a socket, and real files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process, thread};

use everlink::auth::{Config, DeviceCode, Key, Lock, Request, State};
use everlink::http::{Fields, ResponseHead, Url, Verb};
use everlink::{Fault, FaultKind};
use everlink_auth::{
    Authorization, FileStore, LockGuard, MemoryStore, Options, Person, RedirectSender, Store, Web,
    WebResponse, record_name,
};
use everlink_handle::{Credentials, wait};
use serde_json::{Value, json};

const SERVER: &str = "https://mcp.example/mcp";

/// An authorization server. It rotates refresh tokens, and gives tokens for one hour.
#[derive(Clone, Default)]
struct Provider {
    refreshes: Arc<AtomicU32>,
    grants: Arc<AtomicU32>,
    /// Whether the token endpoint refuses codes.
    is_strict: bool,
    /// Whether tokens are bound to the key of the client.
    is_bound: bool,
}

impl Web for Provider {
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>> {
        let body = String::from_utf8(request.body).expect("text");
        let mut answer = match request.url.as_str() {
            "https://mcp.example/.well-known/oauth-protected-resource/mcp" => {
                json!({"resource": SERVER, "authorization_servers": ["https://as.example"]})
            }
            "https://as.example/.well-known/oauth-authorization-server" => json!({
                "issuer": "https://as.example",
                "authorization_endpoint": "https://as.example/authorize",
                "token_endpoint": "https://as.example/token",
                "registration_endpoint": "https://as.example/register",
                "code_challenge_methods_supported": ["S256"],
            }),
            "https://as.example/register" => json!({"client_id": "client"}),
            "https://as.example/token" if body.contains("refresh_token=") => {
                let number = self.refreshes.fetch_add(1, Ordering::SeqCst) + 1;
                json!({"access_token": format!("renewed-{number}"), "token_type": "Bearer", "expires_in": 3600,
                       "refresh_token": format!("refresh-{number}")})
            }
            "https://as.example/token" if self.is_strict => json!({"error": "invalid_grant"}),
            "https://as.example/token" => {
                self.grants.fetch_add(1, Ordering::SeqCst);
                json!({"access_token": "granted", "token_type": "Bearer", "expires_in": 3600,
                       "refresh_token": "refresh-0"})
            }
            _ => return Err(vec![Fault::new(FaultKind::NameNotFound)]),
        };
        if self.is_bound && answer["token_type"].is_string() {
            answer["token_type"] = "DPoP".into();
        }
        if self.is_bound && answer["issuer"].is_string() {
            answer["dpop_signing_alg_values_supported"] = json!(["ES256"]);
        }
        Ok(WebResponse {
            head: ResponseHead::new(200),
            body: answer.to_string().into_bytes(),
        })
    }
}

/// A person whose browser comes back at once. Keeps the pages that it shows.
#[derive(Clone, Default)]
struct Browser {
    pages: Arc<Mutex<Vec<String>>>,
}

impl Person for Browser {
    fn visit(&self, url: &Url, _: &RedirectSender) {
        let parameter = |name: &str| {
            let (_, rest) = url
                .as_str()
                .split_once(&format!("{name}="))
                .expect("a parameter");
            rest.split('&').next().expect("a value").to_owned()
        };
        let redirect_uri = parameter("redirect_uri")
            .replace("%3A", ":")
            .replace("%2F", "/");
        let state = parameter("state");
        let pages = Arc::clone(&self.pages);
        thread::spawn(move || {
            for query in [
                "code=other&state=wrong".to_owned(),
                format!("code=code&state={state}"),
            ] {
                let page = visit_page(&redirect_uri, &query);
                pages.lock().expect("no panic").push(page);
            }
        });
    }

    fn show_code(&self, _: &DeviceCode) {}
}

fn visit_page(redirect_uri: &str, query: &str) -> String {
    let rest = redirect_uri.strip_prefix("http://").expect("http");
    let (address, path) = rest.split_once('/').expect("a path");
    let mut socket = TcpStream::connect(address).expect("somebody listens");
    write!(
        socket,
        "GET /{path}?{query} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .expect("it is sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("a page");
    page
}

/// A directory that is deleted at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = env::temp_dir().join(format!("everlink-auth-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(provider: &Provider, browser: &Browser, directory: &Directory) -> Authorization {
    let config = Config::new(Url::parse(SERVER).expect("a URL"), "test");
    let store = FileStore::new(directory.path());
    let options = Options::new(provider.clone(), store, browser.clone());
    Authorization::start(config, options).expect("a thread")
}

/// The value of `Authorization` for a request to the server.
fn token(authorization: &Authorization) -> Option<String> {
    let credentials = wait(authorization.for_request(Verb::Post, SERVER));
    credentials
        .fields
        .into_iter()
        .next()
        .map(|(_, value)| value)
}

#[test]
fn browser_comes_back_to_a_page_that_says_what_happened_and_the_token_is_used() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("browser");
    let authorization = start(&provider, &browser, &directory);
    assert_eq!(token(&authorization), None);
    authorization.on_response(0, &ResponseHead::new(401));
    authorization.settled().wait().expect("it is signed in");
    assert_eq!(token(&authorization).as_deref(), Some("Bearer granted"));
    while browser.pages.lock().expect("no panic").len() < 2 {
        thread::yield_now();
    }
    let pages = browser.pages.lock().expect("no panic").clone();
    assert!(
        pages[0].contains("No sign-in waits for this page"),
        "{}",
        pages[0]
    );
    assert!(pages[1].contains("You are signed in"), "{}", pages[1]);
    assert!(pages[1].contains("close this tab"), "{}", pages[1]);
}

/// A-DPOP-03: a server may want a new nonce each few minutes, and send it with nothing but a challenge.
#[test]
fn request_that_succeeds_after_a_nonce_challenge_counts_as_success() {
    let provider = Provider {
        is_bound: true,
        ..Provider::default()
    };
    let directory = Directory::new("nonces");
    let mut config = Config::new(Url::parse(SERVER).expect("a URL"), "test");
    config.dpop = true;
    let store = FileStore::new(directory.path());
    let options = Options::new(provider.clone(), store, Browser::default());
    let authorization = Authorization::start(config, options).expect("a thread");
    authorization.sign_in().wait().expect("it is signed in");
    for number in 0..8 {
        let credentials = wait(authorization.for_request(Verb::Post, SERVER));
        let mut head = ResponseHead::new(401);
        head.fields = Fields::new()
            .and("WWW-Authenticate", r#"DPoP error="use_dpop_nonce""#)
            .and("DPoP-Nonce", format!("nonce-{number}"));
        authorization.on_response(credentials.ticket, &head);
        authorization.settled().wait().expect("it goes on");
        assert_eq!(token(&authorization).as_deref(), Some("DPoP granted"));
        authorization.on_response(credentials.ticket, &ResponseHead::new(200));
    }
    assert_eq!(provider.refreshes.load(Ordering::SeqCst), 0);
}

#[test]
fn page_says_why_a_sign_in_failed() {
    let provider = Provider {
        is_strict: true,
        ..Provider::default()
    };
    let browser = Browser::default();
    let directory = Directory::new("failure");
    let authorization = start(&provider, &browser, &directory);
    let refusal = authorization.sign_in().wait();
    let why = refusal.expect_err("it is refused").to_string();
    assert!(why.contains("invalid_grant"), "{why}");
    while browser.pages.lock().expect("no panic").len() < 2 {
        thread::yield_now();
    }
    let pages = browser.pages.lock().expect("no panic").clone();
    assert!(
        pages[1].contains("You are not signed in: https://as.example gave no token"),
        "{}",
        pages[1]
    );
}

#[test]
fn eight_processes_renew_an_expired_token_once() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("eight");
    let first = start(&provider, &browser, &directory);
    first.sign_in().wait().expect("it is signed in");
    drop(first);
    expire(&directory);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let authorization = start(&provider, &browser, &directory);
            thread::spawn(move || token(&authorization))
        })
        .collect();
    for thread in waiting {
        assert_eq!(
            thread.join().expect("no panic").as_deref(),
            Some("Bearer renewed-1")
        );
    }
    assert_eq!(provider.refreshes.load(Ordering::SeqCst), 1);
    assert_eq!(provider.grants.load(Ordering::SeqCst), 1);
}

/// Changes the stored record: its token expired long ago.
fn expire(directory: &Directory) {
    for entry in fs::read_dir(directory.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if name.starts_with("tokens-") && name.ends_with(".json") {
            let record = fs::read(&path).expect("a record");
            let mut record: Value = serde_json::from_slice(&record).expect("JSON");
            record["tokens"]["expires"] = json!(1);
            fs::write(&path, record.to_string()).expect("it is written");
        }
    }
}

#[test]
fn eight_processes_without_a_token_ask_once() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("ask-once");
    let processes: Vec<_> = (0..8)
        .map(|_| start(&provider, &browser, &directory))
        .collect();
    let outcomes: Vec<_> = processes.iter().map(Authorization::sign_in).collect();
    for outcome in outcomes {
        outcome.wait().expect("it is signed in");
    }
    assert_eq!(provider.grants.load(Ordering::SeqCst), 1);
    while browser.pages.lock().expect("no panic").len() < 2 {
        thread::yield_now();
    }
    assert_eq!(browser.pages.lock().expect("no panic").len(), 2);
}

#[test]
fn sign_out_deletes_the_files() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("sign-out");
    let authorization = start(&provider, &browser, &directory);
    authorization.sign_in().wait().expect("it is signed in");
    assert!(!authorization.sign_out().wait().expect("it ends"));
    assert_eq!(token(&authorization), None);
    let names = fs::read_dir(directory.path()).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = names
        .filter(|name| name.to_string_lossy().ends_with(".json"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn key(server: &str) -> Key {
    Key::Server {
        server: server.into(),
        account: "".into(),
    }
}

#[test]
fn records_come_back_and_only_their_owner_can_read_them() {
    let directory = Directory::new("records");
    let store = FileStore::new(directory.path());
    assert_eq!(store.load(&key("a")).expect("no error"), None);
    store.save(&key("a"), b"one").expect("it is saved");
    store.save(&key("b"), b"two").expect("it is saved");
    store.save(&key("a"), b"three").expect("it is saved");
    assert_eq!(
        store.load(&key("a")).expect("no error").as_deref(),
        Some(&b"three"[..])
    );
    assert_eq!(
        store.load(&key("b")).expect("no error").as_deref(),
        Some(&b"two"[..])
    );
    store.delete(&key("a")).expect("it is deleted");
    store.delete(&key("a")).expect("nothing is there");
    assert_eq!(store.load(&key("a")).expect("no error"), None);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode =
            |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(directory.path()), 0o700);
        for entry in fs::read_dir(directory.path()).expect("a directory") {
            assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
        }
    }
}

#[test]
fn records_of_different_keys_do_not_meet() {
    let server = |server: &str, account: &str| Key::Server {
        server: server.into(),
        account: account.into(),
    };
    let tokens = |issuer: &str, resource: &str, account: &str| Key::Tokens {
        issuer: issuer.into(),
        resource: resource.into(),
        account: account.into(),
    };
    let keys = [
        server("a", ""),
        server("", "a"),
        server("ab", "c"),
        server("a", "bc"),
        tokens("a", "b", ""),
        tokens("ab", "", ""),
        tokens("a", "", "b"),
    ];
    let names: BTreeSet<String> = keys.iter().map(record_name).collect();
    assert_eq!(names.len(), keys.len(), "{names:?}");
    for name in names {
        let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(name.chars().all(is_safe) && name.len() < 64, "{name}");
    }
}

/// A process that was killed during a save leaves a file with tokens behind.
#[test]
fn leftovers_of_killed_processes_are_removed_when_no_process_can_be_writing_them() {
    let directory = Directory::new("leftovers");
    let store = FileStore::new(directory.path());
    store.save(&key("a"), b"one").expect("it is saved");
    let file = |key: &Key, extension: &str| {
        let name = format!("{}.{extension}", record_name(key));
        directory.path().join(name)
    };
    let (old, new, other) = (
        file(&key("a"), "111.new"),
        file(&key("a"), "222.new"),
        file(&key("b"), "111.new"),
    );
    for path in [&old, &new, &other] {
        fs::write(path, b"tokens").expect("it is written");
    }
    let minutes_ago = |minutes: u64| SystemTime::now() - Duration::from_secs(60 * minutes);
    for path in [&old, &other] {
        let file = File::options().write(true).open(path).expect("a file");
        file.set_modified(minutes_ago(2)).expect("a time");
    }
    store.save(&key("a"), b"two").expect("it is saved");
    assert!(!old.exists(), "it is a leftover");
    assert!(new.exists(), "another process may be writing it");
    assert!(other.exists(), "it is of another record");
    assert!(file(&key("a"), "json").exists());

    // After a sign-out no token is left, whoever writes it.
    store.delete(&key("a")).expect("it is deleted");
    assert!(!new.exists() && other.exists());
    assert_eq!(store.load(&key("a")).expect("no error"), None);
}

#[test]
fn store_that_fails_names_its_directory() {
    let directory = Directory::new("failing");
    let store = FileStore::new(directory.path());
    // A directory where the files should be.
    for extension in ["json", "lock"] {
        let name = format!("{}.{extension}", record_name(&key("a")));
        fs::create_dir_all(directory.path().join(name)).expect("a directory");
    }
    let errors = [
        store.load(&key("a")).map(drop),
        store.save(&key("a"), b"one"),
        store.delete(&key("a")),
        store.try_lock(&key("a"), Lock::Record).map(drop),
    ];
    for (at, error) in errors.into_iter().enumerate() {
        let text = error.err().map(|error| error.to_string());
        let text = text.unwrap_or_else(|| panic!("access {at} has no error"));
        assert!(
            text.contains(&*directory.path().to_string_lossy()),
            "{text}"
        );
    }
    assert_eq!(store.directory(), directory.path());
}

#[test]
fn store_of_the_user_is_in_the_directory_for_states() {
    let store = FileStore::of_user().expect("the environment names a home");
    let end: PathBuf = ["everlink", "auth"].iter().collect();
    assert!(store.directory().ends_with(end), "{store:?}");
    assert!(store.directory().is_absolute(), "{store:?}");
}

#[test]
fn store_in_memory_gives_back_what_it_was_given() {
    let store = Arc::new(MemoryStore::default());
    assert_eq!(store.load(&key("a")).expect("no error"), None);
    store.save(&key("a"), b"one").expect("it is saved");
    store.save(&key("b"), b"two").expect("it is saved");
    let load = |name| store.load(&key(name)).expect("no error");
    assert_eq!(load("a").as_deref(), Some(&b"one"[..]));
    store.delete(&key("a")).expect("it is deleted");
    assert_eq!(load("a"), None);
    assert_eq!(load("b").as_deref(), Some(&b"two"[..]));
    for _ in 0..2 {
        let lock = store.try_lock(&key("a"), Lock::Record).expect("no error");
        assert!(lock.is_some(), "its locks are always free");
    }
}

#[test]
fn lock_is_held_by_one_and_released_when_it_is_dropped() {
    let directory = Directory::new("locks");
    let (one, other) = (
        FileStore::new(directory.path()),
        FileStore::new(directory.path()),
    );
    let held = one.try_lock(&key("a"), Lock::Record).expect("no error");
    assert!(held.is_some());
    assert!(
        other
            .try_lock(&key("a"), Lock::Record)
            .expect("no error")
            .is_none()
    );
    assert!(
        other
            .try_lock(&key("a"), Lock::SignIn)
            .expect("no error")
            .is_some()
    );
    assert!(
        other
            .try_lock(&key("b"), Lock::Record)
            .expect("no error")
            .is_some()
    );
    drop(held);
    assert!(
        other
            .try_lock(&key("a"), Lock::Record)
            .expect("no error")
            .is_some()
    );
}

#[test]
fn unwritable_store_is_told_and_the_token_lives_in_this_process() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("unwritable");
    // A file where the directory should be.
    fs::write(directory.path(), "").expect("it is written");
    let told = Arc::new(Mutex::new(BTreeMap::new()));
    let person = Listening(browser, Arc::clone(&told));
    let config = Config::new(Url::parse(SERVER).expect("a URL"), "test");
    let options = Options::new(provider, FileStore::new(directory.path()), person);
    let authorization = Authorization::start(config, options).expect("a thread");
    authorization.sign_in().wait().expect("it is signed in");
    assert_eq!(token(&authorization).as_deref(), Some("Bearer granted"));
    assert!(!told.lock().expect("no panic").is_empty());
    assert!(authorization.status().is_unsaved);
    fs::remove_file(directory.path()).expect("it is there");
}

/// A store in memory in which the first attempt to save a record fails.
#[derive(Default)]
struct SlowToSave {
    store: MemoryStore,
    has_failed: AtomicBool,
}

impl Store for SlowToSave {
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        self.store.load(key)
    }

    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>> {
        self.store.try_lock(key, lock)
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        match self.has_failed.swap(true, Ordering::SeqCst) {
            true => self.store.save(key, record),
            false => Err(io::Error::other("not now")),
        }
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        self.store.delete(key)
    }
}

#[test]
fn tokens_that_a_second_attempt_stores_are_not_unsaved() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let config = Config::new(Url::parse(SERVER).expect("a URL"), "test");
    let options = Options::new(provider, SlowToSave::default(), browser);
    let authorization = Authorization::start(config, options).expect("a thread");
    authorization.sign_in().wait().expect("it is signed in");
    let status = authorization.status();
    assert_eq!(status.store_failure.as_deref(), Some("not now"));
    assert!(!status.is_unsaved);
}

/// Another process renews the tokens, and holds the lock for that time.
#[test]
fn stored_tokens_whose_renewal_waits_for_a_lock_are_not_unsaved() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("renewal");
    let first = start(&provider, &browser, &directory);
    first.sign_in().wait().expect("it is signed in");
    drop(first);
    expire(&directory);
    let tokens = Key::Tokens {
        issuer: "https://as.example".into(),
        resource: SERVER.into(),
        account: "".into(),
    };
    let other = FileStore::new(directory.path());
    let held = other.try_lock(&tokens, Lock::Record).expect("no error");
    assert!(held.is_some());
    let authorization = start(&provider, &browser, &directory);
    thread::scope(|scope| {
        let renewed = scope.spawn(|| token(&authorization));
        while authorization.status().state != Some(State::Locking) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!authorization.status().is_unsaved);
        drop(held);
        let renewed = renewed.join().expect("no panic");
        assert_eq!(renewed.as_deref(), Some("Bearer renewed-1"));
    });
    assert!(!authorization.status().is_unsaved);
}

/// A browser whose owner also listens to events.
struct Listening(Browser, Arc<Mutex<BTreeMap<String, u32>>>);

impl Person for Listening {
    fn visit(&self, url: &Url, redirect: &RedirectSender) {
        self.0.visit(url, redirect);
    }

    fn show_code(&self, _: &DeviceCode) {}

    fn event(&self, event: &everlink::auth::Event) {
        if let everlink::auth::Event::StoreFailed { why } = event {
            let mut told = self.1.lock().expect("no panic");
            *told.entry(why.to_string()).or_default() += 1;
        }
    }
}

#[test]
fn secrets_are_absent_from_debug_output() {
    let (provider, browser) = (Provider::default(), Browser::default());
    let directory = Directory::new("debug");
    let authorization = start(&provider, &browser, &directory);
    authorization.sign_in().wait().expect("it is signed in");
    let shown = format!(
        "{authorization:?} {:?} {:?}",
        authorization.status(),
        Fields::new()
    );
    for secret in ["granted", "refresh-0"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
