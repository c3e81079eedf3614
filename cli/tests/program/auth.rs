//! Tests sign-ins of several processes, processes that end or are killed during a renewal, and the texts of a sign-in that fails.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::auth_server::AuthServer;
use crate::guard::{GuardProcess, Host, get};
use crate::listen::http_request;
use crate::support::{
    EVERLINK, RunningCommand, SERVER, Terminal, lines_of, program, run_everlink, text, wait_until,
};

/// How many processes start at the same time.
const PROCESSES: usize = 8;

/// A user of the server, with a store. Dropping this removes the store.
struct User {
    server: AuthServer,
    store: PathBuf,
}

impl User {
    fn new(name: &str) -> User {
        let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("auth-{name}"));
        let _ = fs::remove_dir_all(&store);
        // An earlier server may have had the same port, and a guard would remember its offer.
        let _ = fs::remove_dir_all(store.with_extension("cache"));
        let server = AuthServer::start();
        User { server, store }
    }

    /// A user who has signed in.
    fn signed_in(name: &str) -> User {
        let user = User::new(name);
        let output = user.run("login", &["--follow-sign-in"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        user
    }

    /// A path for a recording.
    fn record_path(&self) -> String {
        let path = self.store.with_extension("recording");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// A command for the server, which can ask nobody.
    fn command(&self, word: &str, more: &[&str]) -> Command {
        let mut command = program();
        command.arg(word);
        if !matches!(word, "login" | "logout" | "status") {
            command.arg("--url");
        }
        command
            .arg(&self.server.url)
            .args(more)
            .env("EVERLINK_AUTH_DIRECTORY", &self.store)
            .env("XDG_CACHE_HOME", self.store.with_extension("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, word: &str, more: &[&str]) -> Output {
        let output = self.command(word, more).output();
        output.expect("the program can be started")
    }

    fn start(&self, word: &str, more: &[&str]) -> Child {
        let child = self.command(word, more).spawn();
        child.expect("the program can be started")
    }

    fn call(&self) -> Output {
        self.run("call", &["greet"])
    }

    /// The file with the tokens.
    fn record_file(&self) -> PathBuf {
        let mut files = fs::read_dir(&self.store).expect("a store").flatten();
        let is_record = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("tokens-") && name.ends_with(".json")
        };
        let file = files.find_map(|entry| Some(entry.path()).filter(is_record));
        file.expect("a record")
    }

    fn stored_tokens(&self) -> Value {
        let record = fs::read(self.record_file()).expect("a record");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        record["tokens"].clone()
    }

    /// Moves the life of the access token into the past, so that it ends in this many seconds.
    fn age_token(&self, seconds_left: i64) {
        let file = self.record_file();
        let mut record: Value =
            serde_json::from_slice(&fs::read(&file).expect("a record")).expect("JSON");
        let expires = record["tokens"]["expires"].as_i64().expect("a time");
        let obtained = record["tokens"]["obtained"].as_i64().expect("a time");
        let moved = 3600 - seconds_left;
        record["tokens"]["expires"] = (expires - moved).into();
        record["tokens"]["obtained"] = (obtained - moved).into();
        fs::write(&file, record.to_string()).expect("a file");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.store);
    }
}

fn assert_answered(output: &Output) {
    let stdout = text(&output.stdout);
    assert!(stdout.contains("hello"), "{stdout}{}", text(&output.stderr));
}

#[test]
fn eight_calls_with_an_expired_token_renew_it_once() {
    let user = User::signed_in("together");
    user.server.state().delay = Duration::from_millis(50);
    for round in 1..=3 {
        user.age_token(-1);
        let calls: Vec<Child> = (0..PROCESSES)
            .map(|_| user.start("call", &["greet"]))
            .collect();
        for call in calls {
            assert_answered(&call.wait_with_output().expect("the program ends"));
        }
        let state = user.server.state();
        assert_eq!((state.refreshes, state.refused), (round, 0));
        assert_eq!(state.authorizations, 1);
    }
}

#[test]
fn eight_calls_without_a_token_open_one_sign_in_page() {
    let user = User::new("first");
    user.server.state().delay = Duration::from_millis(200);
    let calls: Vec<Child> = (0..PROCESSES)
        .map(|_| user.start("call", &["greet", "--follow-sign-in"]))
        .collect();
    for call in calls {
        assert_answered(&call.wait_with_output().expect("the program ends"));
    }
    let state = user.server.state();
    assert_eq!((state.authorizations, state.registrations), (1, 1));
}

/// Only an answer of the token endpoint that was lost with the process makes a sign-in necessary: nobody has the new refresh token.
#[test]
fn after_a_kill_during_a_renewal_the_next_call_works_unless_the_answer_was_lost() {
    let user = User::signed_in("killed");
    user.server.state().delay = Duration::from_millis(10);
    for step in 0..24 {
        user.age_token(-1);
        let mut call = user.start("call", &["greet"]);
        thread::sleep(Duration::from_millis(step * 3));
        call.kill().expect("the process exists or has ended");
        call.wait().expect("a child process");
        // The server may still be making the tokens.
        thread::sleep(Duration::from_millis(20));
        let is_lost = user.stored_tokens()["refresh"] != *user.server.state().newest();
        let output = user.call();
        if !is_lost {
            assert_answered(&output);
            continue;
        }
        let stderr = text(&output.stderr);
        for words in [
            "no longer accepts the earlier sign-in",
            "run `everlink login",
        ] {
            assert!(stderr.contains(words), "{stderr}");
        }
        let output = user.run("login", &["--follow-sign-in"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// The token is valid for a few more seconds, so the call uses it, and a renewal begins behind the call.
#[test]
fn a_call_that_ends_during_a_renewal_loses_no_refresh_token() {
    let user = User::signed_in("end");
    user.server.state().delay = Duration::from_millis(300);
    user.age_token(30);
    assert_answered(&user.call());
    let newest = user.server.state().newest();
    assert_eq!(user.server.state().refreshes, 1);
    assert_eq!(user.stored_tokens()["refresh"], *newest);
}

#[test]
fn status_renews_nothing_and_says_what_follows() {
    let user = User::signed_in("status");
    user.age_token(-1);
    let output = user.run("status", &[]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("renewed at its next use"), "{stdout}");
    assert_eq!(user.server.state().refreshes, 0);
    let file = user.record_file();
    let mut record: Value =
        serde_json::from_slice(&fs::read(&file).expect("a record")).expect("JSON");
    record["tokens"]["refresh"].take();
    fs::write(&file, record.to_string()).expect("a file");
    let output = user.run("status", &[]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("has expired, and cannot be renewed"),
        "{stdout}"
    );
    assert_eq!(output.status.code(), Some(1));
}

/// Only the commands that fetch a token need the secret.
#[test]
fn status_and_logout_of_client_credentials_need_no_secret() {
    let user = User::new("no-secret");
    let options = ["--client-credentials", "--client-id", "x"];
    for (word, status, words) in [
        ("status", 1, "not signed in"),
        ("logout", 0, "you were not signed in"),
        ("login", 2, "--client-secret-env VARIABLE"),
        ("inspect", 2, "--client-secret-env VARIABLE"),
    ] {
        let output = user.run(word, &options);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{word}: {stderr}");
        assert!(
            format!("{stdout}{stderr}").contains(words),
            "{word}: {stdout}{stderr}"
        );
    }
}

#[test]
fn logout_deletes_and_revokes_the_tokens_and_what_killed_processes_left() {
    let user = User::signed_in("logout");
    let left = user.record_file().with_extension("4711.new");
    fs::write(&left, "tokens").expect("a file");
    let output = user.run("logout", &[]);
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("the tokens are revoked"),
        "{stdout}{}",
        text(&output.stderr)
    );
    assert_eq!(user.server.state().revocations, 1);
    let files = fs::read_dir(&user.store).expect("a store").flatten();
    let names: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    assert!(
        names
            .iter()
            .all(|name| name.extension().is_some_and(|end| end == "lock")),
        "{names:?}"
    );
}

/// A file in a directory that nobody may write to cannot be deleted. The system administrator can, so the program then runs as another user.
#[test]
fn logout_fails_and_names_the_store_if_the_tokens_cannot_be_deleted() {
    let user = User::signed_in("undeletable");
    let file = user.record_file();
    let is_root = fs::metadata(&file).expect("a record").uid() == 0;
    let nobody = is_root.then_some(65534);
    for entry in fs::read_dir(&user.store).expect("a store").flatten() {
        chown(entry.path(), nobody, nobody).expect("the file exists");
    }
    chown(&user.store, nobody, nobody).expect("the directory exists");
    let allow = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&user.store, permissions).expect("a directory");
    };
    allow(0o500);
    let mut logout = user.command("logout", &[]);
    if let Some(nobody) = nobody {
        logout.uid(nobody);
    }
    let output = logout.output();
    allow(0o700);
    if output.is_err() && is_root {
        // The program is in a directory of the administrator.
        return;
    }
    let output = output.expect("the program can be started");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{stdout}{stderr}");
    assert!(!stdout.contains("signed out"), "{stdout}");
    for words in [
        "could not delete the tokens",
        user.store.to_str().expect("UTF-8"),
        "they are revoked",
    ] {
        assert!(stderr.contains(words), "{stderr}");
    }
    assert!(file.exists());
    assert_eq!(user.server.state().revocations, 1);
}

/// Standard input belongs to the host.
#[test]
fn guard_on_the_standard_streams_refuses_to_wait_for_a_paste() {
    let user = User::new("paste");
    let output = user.run("guard", &["--paste"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("everlink login"), "{stderr}");
}

#[test]
fn a_call_that_can_ask_nobody_names_the_login_command_of_its_account() {
    let user = User::new("account");
    let recording = user.record_path();
    let options = ["greet", "--account", "work", "--callback-port", "33419"];
    let options = [&options[..], &["--record", &recording]].concat();
    let output = user.run("call", &options);
    let stderr = text(&output.stderr);
    let store = user.store.display();
    let login = format!(
        "run `everlink login {} --account work --auth-directory {store} --callback-port 33419`",
        user.server.url
    );
    assert!(stderr.contains(&login), "{stderr}");
    assert_eq!(output.status.code(), Some(4));
    assert_no_path_is_recorded(&user, &recording);
}

/// The advice to run `everlink login` does not help a person who runs it.
#[test]
fn login_without_a_terminal_does_not_advise_itself() {
    let output = User::new("login-alone").run("login", &[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.contains("run this command at a terminal"),
        "{stderr}"
    );
    assert!(!stderr.contains("everlink login"), "{stderr}");
}

/// The path of a server may be a secret, and the page of a sign-in has its `state`.
fn assert_no_path_is_recorded(user: &User, recording: &str) {
    let recorded = fs::read_to_string(recording).expect("a recording");
    assert!(recorded.contains("\"denied\""), "{recorded}");
    for word in ["state=", "code_challenge", &user.server.url] {
        assert!(!recorded.contains(word), "{word}: {recorded}");
    }
    let replayed = run_everlink(&["replay", recording], &[]);
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    fs::remove_file(recording).expect("a recording");
}

#[test]
fn login_fails_once_with_the_directory_if_the_tokens_cannot_be_stored() {
    let user = User::new("unwritable");
    fs::create_dir_all(&user.store).expect("a directory");
    let file = user.store.join("file");
    fs::write(&file, "").expect("a file");
    let login = |word, more: &[&str]| {
        let mut command = user.command(word, more);
        command.env("EVERLINK_AUTH_DIRECTORY", file.join("auth"));
        command.output().expect("the program can be started")
    };
    let output = login("login", &["--follow-sign-in"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert_eq!(stderr.matches("cannot be used").count(), 1, "{stderr}");
    assert!(stderr.contains(file.to_str().expect("UTF-8")), "{stderr}");
    assert!(stderr.contains("--auth-directory"), "{stderr}");
    // A call works, because the tokens are needed only now.
    assert_answered(&login("call", &["greet", "--follow-sign-in"]));
}

/// The first attempt to store the tokens fails, and the second one succeeds.
#[test]
fn login_succeeds_if_the_tokens_are_stored_after_a_failure() {
    let user = User::new("stored-later");
    let mut login = Command::new("sh");
    // No file may grow. The signal for that is ignored, so that the write fails.
    login
        .args(["-c", "trap '' XFSZ; ulimit -S -f 0; exec \"$@\"", "sh"])
        .args([EVERLINK, "login", &user.server.url, "--follow-sign-in"])
        .env("EVERLINK_AUTH_DIRECTORY", &user.store);
    let (mut login, stderr) = RunningCommand::start_with_stderr(&mut login);
    let failed = stderr.iter().find(|line| line.contains("cannot be used"));
    failed.expect("the store fails");
    let mut limit = getrlimit(Resource::Fsize);
    limit.current = None;
    prlimit(
        Some(Pid::from_child(&login.process)),
        Resource::Fsize,
        limit,
    )
    .expect("the process exists");
    let status = login.wait_for_exit();
    let told: Vec<String> = stderr.iter().collect();
    assert_eq!(status.code(), Some(0), "{told:?}");
    assert!(user.record_file().exists());
}

#[test]
fn a_browser_that_cannot_be_started_is_reported() {
    let user = User::new("browser");
    let mut login = user.command("login", &["--auth-timeout", "2"]);
    login.env_clear();
    login.env("EVERLINK_AUTH_DIRECTORY", &user.store);
    let terminal = Terminal::start(&mut login);
    let (screen, output) = terminal.end();
    assert!(screen.contains("no browser can be started"), "{screen}");
    assert!(screen.contains("within 2 s"), "{screen}");
    assert_eq!(output.status.code(), Some(4));
}

/// A shell script that notes its arguments and its environment.
fn browser(user: &User) -> (String, PathBuf) {
    fs::create_dir_all(&user.store).expect("a directory");
    fs::set_permissions(&user.store, fs::Permissions::from_mode(0o700))
        .expect("the directory exists");
    let directory = user.store.with_extension("browser");
    fs::create_dir_all(&directory).expect("a directory");
    let (script, noted) = (directory.join("browser"), directory.join("noted"));
    let _ = fs::remove_file(&noted);
    let noted_at = noted.display();
    let lines = format!(
        "#!/bin/sh\n{{ echo \"$#\"; echo \"$1\"; env; }} > '{noted_at}.new'\nmv '{noted_at}.new' '{noted_at}'\n"
    );
    fs::write(&script, lines).expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).expect("the file exists");
    (script.display().to_string(), noted)
}

#[test]
fn login_prints_json_if_the_server_wants_no_sign_in() {
    let user = User::new("no-sign-in");
    let address = ["--listen", "http://127.0.0.1:0/mcp"];
    let server = GuardProcess::start(&address, &SERVER.map(PathBuf::from));
    let url = server.log_value("listening");
    let mut login = program();
    login.args(["login", &url, "--json", "--follow-sign-in"]);
    login.env("EVERLINK_AUTH_DIRECTORY", &user.store);
    let output = login.output().expect("the program can be started");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "null\n");
}

/// The identity of a client.
const CLIENT: &[&str] = &["--client-id", "x"];

/// The identity provider of an enterprise.
const IDP: &[&str] = &[
    "--idp-token-endpoint",
    "https://a.example/token",
    "--idp-client-id",
    "x",
    "--id-token",
    "x",
];

/// Each way to reach a server at which nobody signs in.
#[test]
fn sign_in_options_are_refused_where_nobody_will_sign_in() {
    let url = ["--url", "https://a.example/mcp"];
    let bearer = ["--bearer-env", "XDG_CACHE_HOME"];
    let header = ["--header", "Authorization: Basic x"];
    for (reached, server, why) in [
        (&[][..], &SERVER[..], "a command starts"),
        (&[url, bearer].concat(), &[], "--bearer-env"),
        (&[url, header].concat(), &[], "Authorization"),
        (&[url, ["--oauth", "off"]].concat(), &[], "--oauth off"),
    ] {
        for command in ["inspect", "watch", "guard"] {
            for option in [
                &["--client-id", "x"][..],
                &["--account", "work"],
                &["--allow-http"],
                &["--callback-path", "/x"],
            ] {
                let output = run_everlink(&[&[command], reached, option].concat(), server);
                let stderr = text(&output.stderr);
                let case = format!("{command} {reached:?} {option:?}: {stderr}");
                assert_eq!(output.status.code(), Some(2), "{case}");
                assert!(stderr.contains(option[0]), "{case}");
                assert!(stderr.contains(why), "{case}");
            }
        }
    }
    let output = run_everlink(&[&["inspect"], &url[..], &bearer, &header].concat(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("leave one of them out"));
    let output = run_everlink(&["call", "echo", "--paste"], &SERVER);
    assert_eq!(output.status.code(), Some(2));
    let output = run_everlink(&["adopt", "--", "--client-id", "x"], &[]);
    assert_eq!(output.status.code(), Some(2));
    let output = run_everlink(&["guard", "--store-key-env", "X"], &SERVER);
    assert_eq!(output.status.code(), Some(2));
    // An order that holds is no mistake.
    let output = run_everlink(&["call", "echo", "message=x", "--oauth", "off"], &SERVER);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// Otherwise one of the options would have no effect.
#[test]
fn options_of_two_kinds_of_sign_in_are_refused_together() {
    for (options, hint) in [
        (&["--device", "--workload-token", "x"][..], "cannot be used"),
        (&["--idp-client-id", "x"], "--idp-token-endpoint"),
        (&["--idp-client-secret-env", "X"], "--idp-token-endpoint"),
        (&["--id-token", "x"], "--idp-token-endpoint"),
        (&[IDP, &["--device"]].concat(), "cannot be used"),
        (
            &[IDP, &["--workload-token", "x"]].concat(),
            "cannot be used",
        ),
        (
            &[CLIENT, &["--client-credentials"], IDP].concat(),
            "cannot be used",
        ),
        (
            &[
                CLIENT,
                &["--private-key", "x", "--client-secret-env", "PATH"],
            ]
            .concat(),
            "cannot be used",
        ),
        (
            &[CLIENT, &["--client-metadata", "{}"]].concat(),
            "cannot be used",
        ),
        (
            &[CLIENT, &["--client-metadata-url", "https://a.example/"]].concat(),
            "cannot be used",
        ),
        (
            &[CLIENT, &["--client-credentials", "--no-browser"]].concat(),
            "cannot be used",
        ),
        (
            &["--workload-token", "x", "--callback-port", "1"],
            "cannot be used",
        ),
        (
            &["--device", "--auth-success-url", "https://a.example/"],
            "cannot be used",
        ),
        (
            &["--paste", "--auth-success-url", "https://a.example/"],
            "cannot be used",
        ),
        (&["--oauth", "off"], "--oauth off forbids"),
    ] {
        let login = ["login", "https://a.example/mcp"];
        let output = run_everlink(&[&login, options].concat(), &[]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {stderr}");
        assert!(stderr.contains(hint), "{options:?}: {stderr}");
    }
}

/// Signs in at this page, as a browser would.
fn sign_in_at(page: &str) {
    let shown = get(&redirect_of(page));
    assert!(shown.contains("You are signed in"), "{shown}");
}

#[test]
fn no_secret_is_in_recordings_logs_outputs_or_the_browser() {
    let user = User::new("secrets");
    let (script, noted) = browser(&user);
    let mut outputs = Vec::new();
    for log in ["text", "json"] {
        let recording = noted.with_extension(format!("{log}.recording"));
        let status_port = free_port();
        let status = format!("127.0.0.1:{status_port}");
        let path = recording.to_str().expect("UTF-8");
        let mut guard = user.command(
            "guard",
            &["--log", log, "--record", path, "--status", &status],
        );
        guard.env("BROWSER", &script).env("DISPLAY", ":0");
        let mut host = Host::of(&mut guard);
        let signing_in = noted.clone();
        let is_first = log == "text";
        let person = thread::spawn(move || {
            if is_first {
                wait_until("a browser is started", || signing_in.exists());
                let noted = fs::read_to_string(&signing_in).expect("a file");
                sign_in_at(noted.lines().nth(1).expect("a URL"));
            }
        });
        host.handshake();
        person.join().expect("the person signs in");
        host.send_call(2, "greet", &json!({}));
        outputs.push(host.receive(2).to_string());
        outputs.push(http_request(&status, "GET /", &[], ""));
        outputs.push(http_request(&status, "GET /metrics", &[], ""));
        assert_eq!(host.disconnect().code(), Some(0));
        let mut stderr = host.process.stderr.take().expect("a pipe");
        let mut logged = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut logged).expect("UTF-8");
        outputs.push(logged);
        outputs.push(fs::read_to_string(&recording).expect("a recording"));
        user.age_token(-1);
    }
    let recording = noted.with_extension("call.recording");
    let path = recording.to_str().expect("UTF-8");
    for (word, more) in [
        ("call", &["greet", "--record", path][..]),
        ("inspect", &["--json"]),
        ("status", &["--json"]),
    ] {
        let output = user.run(word, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        outputs.push(text(&output.stdout) + &text(&output.stderr));
    }
    outputs.push(fs::read_to_string(&recording).expect("a recording"));
    assert_private(&user.store);
    let output = user.run("logout", &[]);
    outputs.push(text(&output.stdout) + &text(&output.stderr));
    let noted = fs::read_to_string(&noted).expect("a browser was started");
    assert_eq!(noted.lines().next(), Some("1"), "{noted}");
    let url = noted.lines().nth(1).expect("a URL");
    let (_, state) = url.split_once("state=").expect("a state");
    let state = state.split('&').next().expect("a state").to_owned();
    outputs.push(noted);
    let secrets = user.server.state().secrets.clone();
    assert!(secrets.len() > 10, "{secrets:?}");
    for (index, output) in outputs.iter().enumerate() {
        for secret in &secrets {
            assert!(
                !output.contains(secret.as_str()),
                "{secret} is in {index}: {output}"
            );
        }
        // Only the URL of the sign-in page may contain the state.
        let is_page = |word: &&str| word.contains("code_challenge=");
        let mut words = output.split([' ', '"', '\n']).filter(|word| !is_page(word));
        assert!(
            !words.any(|word| word.contains(&state)),
            "the state is in {index}: {output}"
        );
    }
    let _ = fs::remove_dir_all(user.store.with_extension("browser"));
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Only the owner can read the store.
fn assert_private(store: &Path) {
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(store), 0o700);
    for entry in fs::read_dir(store).expect("a store").flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.path());
    }
}

#[test]
fn login_says_that_it_waits_for_the_sign_in_of_another_process() {
    let user = User::new("queue");
    let mut guard = user.command("guard", &["--no-browser", "--log", "text"]);
    let mut host = Host::of(&mut guard);
    host.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#);
    let log = lines_of(host.process.stderr.take().expect("a pipe"));
    let page = log.iter().find(|line| line.contains("code_challenge="));
    let page = page.expect("the guard shows the page");
    let mut login = Terminal::start(&mut user.command("login", &[]));
    login.read_until("another process is waiting for somebody to sign in");
    sign_in_at(page.split(' ').next_back().expect("a URL"));
    let (_, output) = login.end();
    assert!(output.status.success());
    assert!(host.receive(1)["result"].is_object());
    assert_eq!(user.server.state().authorizations, 1);
}

/// A host that reads the log of a guard can show the page to its user.
#[test]
fn json_log_has_the_sign_in_page_as_an_event_with_a_kind() {
    let user = User::new("json-page");
    let mut guard = user.command("guard", &["--no-browser", "--log", "json"]);
    let mut host = Host::of(&mut guard);
    let stderr = host.process.stderr.take().expect("a pipe");
    let signing_in = thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut entries = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let entry = entries.find(|entry| entry["kind"] == "sign_in");
        let entry = entry.expect("the page is logged");
        let page = entry["sign_in"].as_str().expect("a URL");
        assert_eq!(entry["event"], format!("sign in at {page}"));
        sign_in_at(page);
        // The pipe must be read to the end.
        entries.count()
    });
    host.handshake();
    assert_eq!(host.disconnect().code(), Some(0));
    signing_in.join().expect("the person signs in");
}

/// The guard cannot store the tokens, and cannot write that into its log either.
#[test]
fn guard_whose_stderr_is_closed_still_signs_in() {
    let user = User::new("closed-stderr");
    fs::create_dir_all(&user.store).expect("a directory");
    let file = user.store.join("file");
    fs::write(&file, "").expect("a file");
    let (stderr, reader) = UnixStream::pair().expect("a socket");
    drop(reader);
    let mut guard = user.command("guard", &["--follow-sign-in", "--log", "json"]);
    guard
        .env("EVERLINK_AUTH_DIRECTORY", file.join("auth"))
        .stderr(OwnedFd::from(stderr));
    let mut host = Host::of(&mut guard);
    host.handshake();
    host.send_call(2, "greet", &json!({}));
    let reply = host.receive(2);
    assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    assert_eq!(host.disconnect().code(), Some(0));
}

/// The host does not read the log of the guard, and the pipe is full.
#[test]
fn guard_whose_stderr_is_full_opens_the_browser_and_signs_in() {
    let user = User::new("full-stderr");
    let (script, noted) = browser(&user);
    let (mut stderr, _reader) = UnixStream::pair().expect("a socket");
    stderr.set_nonblocking(true).expect("a socket");
    while stderr.write(&[b'x'; 512]).is_ok() {}
    stderr.set_nonblocking(false).expect("a socket");
    let mut guard = user.command("guard", &[]);
    guard.env("BROWSER", &script).env("DISPLAY", ":0");
    guard.stderr(OwnedFd::from(stderr));
    let mut host = Host::of(&mut guard);
    let person = thread::spawn(move || {
        wait_until("a browser is started", || noted.exists());
        let noted = fs::read_to_string(&noted).expect("a file");
        sign_in_at(noted.lines().nth(1).expect("a URL"));
    });
    host.handshake();
    person.join().expect("the person signs in");
    host.send_call(2, "greet", &json!({}));
    let reply = host.receive(2);
    assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    assert_eq!(host.disconnect().code(), Some(0));
    let _ = fs::remove_dir_all(user.store.with_extension("browser"));
}

/// The page to which the sign-in page redirects.
fn redirect_of(page: &str) -> String {
    let answer = get(page);
    let location = answer
        .lines()
        .find_map(|line| line.strip_prefix("Location: "));
    location.expect("a redirect").to_owned()
}

/// The sign-in page that is on the screen.
fn page_on(screen: &str) -> String {
    let mut words = screen.split_whitespace();
    let page = words.find(|word| word.contains("code_challenge="));
    page.expect("a URL").to_owned()
}

/// The form of the server's question reads the same standard input as the sign-in before it.
#[test]
fn call_with_a_pasted_sign_in_then_asks_the_question_of_the_server() {
    let user = User::new("paste-and-ask");
    let mut call = Terminal::start(&mut user.command("call", &["ask", "--paste"]));
    let page = page_on(&call.read_until("paste its URL here"));
    let last_page = redirect_of(&page);
    // A line that belongs to no sign-in does not end the reading.
    call.type_text("http://127.0.0.1/callback?code=x&state=wrong\n");
    call.read_until("belongs to another sign-in");
    // The page has the right state, but is not the last one.
    call.type_text(&format!("{page}\n"));
    call.read_until("no `code` and no `error`");
    call.type_text(&format!("{last_page}\n"));
    call.read_until("Send this?");
    call.type_text("y\n");
    let (screen, output) = call.end();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert_eq!(text(&output.stdout), "accept\n", "{screen}");
}

/// An empty line accepts a form. It must be typed after the question.
#[test]
fn second_enter_after_a_pasted_url_does_not_answer_the_question_of_the_server() {
    let user = User::new("paste-twice");
    let mut call = Terminal::start(&mut user.command("call", &["ask", "--paste"]));
    let page = page_on(&call.read_until("paste its URL here"));
    call.type_text(&format!("{}\n\n", redirect_of(&page)));
    call.read_until("Send this?");
    call.type_text("n\n");
    let (screen, output) = call.end();
    assert_eq!(text(&output.stdout), "decline\n", "{screen}");
}

/// Hosts give up after 60 s, so the guard answers after 20 s. The sign-in goes on.
#[test]
fn initialize_without_a_sign_in_is_answered_with_the_page_and_works_afterwards() {
    let user = User::new("patience");
    let recording = user.record_path();
    let options = ["--no-browser", "--log", "off", "--record", &recording];
    let mut guard = user.command("guard", &options);
    let mut host = Host::of(&mut guard);
    let error = host.initialize_error();
    assert!(error.contains("call again"), "{error}");
    let page = error
        .split(' ')
        .find(|word| word.contains("code_challenge="));
    sign_in_at(page.expect("a URL"));
    wait_until("the tokens are stored", || {
        fs::read_dir(&user.store).is_ok_and(|files| files.flatten().count() > 3)
    });
    host.handshake();
    host.send_call(2, "greet", &json!({}));
    let reply = host.receive(2);
    assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    assert_eq!(host.disconnect().code(), Some(0));
    assert_no_path_is_recorded(&user, &recording);
}
