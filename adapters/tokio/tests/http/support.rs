//! The parts that all tests share: a runtime that checks for leaks, a server with a few tools, and links to it.

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{self, Offer, Progress, Request};
use everlink::{Config, Dialect, ErrorObject, Payload, Watch};
use everlink_tokio::{Context, Handler, Link, Service, http, secret};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};

/// Long enough for the slowest computer: no test depends on how long something takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The name of the runtimes' threads.
const THREAD_NAME: &str = "test-runtime";

/// Tests run one at a time, because each counts the tasks, descriptors and threads that it leaves.
static SERIAL: Mutex<()> = Mutex::new(());

/// Runs a test on a runtime of its own, and again on one with a single thread. Checks that no task, no descriptor and no thread is left.
pub(crate) fn run_isolated(test: impl AsyncFn()) {
    run(runtime, test());
    let single_threaded = || Builder::new_current_thread().enable_all().build();
    run(|| single_threaded().expect("a runtime"), test());
}

fn run(runtime: impl Fn() -> Runtime, test: impl Future<Output = ()>) {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    // The first runtime of a process opens descriptors that all of them share.
    drop(runtime());
    let before = descriptors();
    let runtime = runtime();
    let with_runtime = descriptors();
    let outcome = runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await });
    outcome.expect("the test ends");
    eventually("tasks", 0, || {
        // On a single-threaded runtime, tasks need this thread to end.
        runtime.block_on(tokio::task::yield_now());
        runtime.metrics().num_alive_tasks()
    });
    eventually("descriptors of the test", with_runtime, descriptors);
    drop(runtime);
    eventually("descriptors", before, descriptors);
    eventually("threads", 0, threads);
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .thread_name(THREAD_NAME)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

fn descriptors() -> usize {
    let listed = fs::read_dir("/proc/self/fd");
    listed.map_or(0, Iterator::count)
}

/// Returns the number of threads of runtimes in this process, without those that run tests.
fn threads() -> usize {
    let listed = fs::read_dir("/proc/self/task").into_iter().flatten();
    let names =
        listed.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == THREAD_NAME).count()
}

fn eventually(what: &str, wanted: usize, count: impl Fn() -> usize) {
    let start = Instant::now();
    while count() != wanted {
        let left = count();
        assert!(start.elapsed() < TIMEOUT, "{what}: {left} for {wanted}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Both eras.
pub(crate) const ERAS: [Dialect; 2] = [Dialect::Legacy, Dialect::Modern];

/// Creates a link to the server at this address.
pub(crate) fn link(address: SocketAddr, dialect: Dialect) -> Link {
    http::connect(config(address, dialect)).expect("a runtime")
}

pub(crate) fn config(address: SocketAddr, dialect: Dialect) -> Config {
    let url = format!("http://{address}/mcp");
    let mut config = Config::http("tests", "1.0", &url).expect("a URL");
    config.dialect = dialect;
    config.watch = Watch::none();
    // Reconnect at once.
    let retry = &mut config.policy.retry;
    retry.first = Duration::from_millis(1);
    retry.floor = Duration::from_millis(1);
    config
}

/// A local server, and the messages of its tools.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    pub(crate) tools: Tools,
}

/// The view of tests on the tools of a server.
pub(crate) struct Tools {
    /// The name of each tool that starts, `held` when a held tool is released, and `unwanted` when a tool is dropped before it is done.
    pub(crate) reports: mpsc::UnboundedReceiver<String>,
    /// Releases a held tool.
    pub(crate) release: Arc<Notify>,
}

impl Tools {
    pub(crate) async fn next_report(&mut self) -> String {
        self.reports.recv().await.expect("the server lives")
    }
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        TestServer::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> TestServer {
        TestServer::start_with(address, server_config()).await
    }

    pub(crate) async fn start_with(address: SocketAddr, config: server::Config) -> TestServer {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tools, handler) = tools();
        TestServer {
            address,
            service: http::serve(listener, config, handler),
            tools,
        }
    }

    pub(crate) async fn stop(self) {
        self.service.shutdown().await.expect("it ends");
    }
}

pub(crate) fn server_config() -> server::Config {
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_resources(true, true);
    let offer = Offer::new("shop", "1.0").with_capabilities(capabilities);
    server::Config::new(offer, secret())
}

/// The tools: `ask` asks who is there, `count` reports progress up to three, and `echo` returns its text. `fall` panics, and `hang` never answers.
/// `hold` reports progress and waits until it is released. `who` returns the user.
pub(crate) fn tools() -> (Tools, impl Handler) {
    let (report_sender, reports) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let tools = Tools {
        reports,
        release: Arc::clone(&release),
    };
    let handler = move |request, context| {
        answer_request(
            request,
            context,
            report_sender.clone(),
            Arc::clone(&release),
        )
    };
    (tools, handler)
}

async fn answer_request(
    request: Request,
    context: Context,
    report_sender: mpsc::UnboundedSender<String>,
    release: Arc<Notify>,
) -> Result<Payload, ErrorObject> {
    if request.method == "tools/list" {
        let tools = ["ask", "count", "echo", "fall", "hang", "hold", "who"];
        let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        return Ok(payload(&json!({"tools": tools})));
    }
    if request.method != "tools/call" {
        return Err(ErrorObject::new(code::METHOD_NOT_FOUND, "no such method"));
    }
    let params = request.params.expect("a call has parameters");
    let params: Value = params.parse().expect("JSON");
    let name = params["name"].as_str().expect("a name").to_owned();
    let _ = report_sender.send(name.clone());
    let text = match &*name {
        "ask" => {
            let form = json!({"message": "Who is there?", "requestedSchema": {"type": "object", "properties": {}}});
            let answer = context.ask("elicitation/create", Some(payload(&form)));
            let answer = answer.await.expect("an answer");
            answer.as_str().to_owned()
        }
        "count" => {
            for number in 1..=3 {
                context.progress(Progress::new(f64::from(number)).of(3.0));
                // Without a pause, the reports would be sent as one piece.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            "three".to_owned()
        }
        "echo" => params["arguments"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        "fall" => panic!("intentional panic"),
        "hang" => {
            let _unwanted = ReportsDrop(Some(report_sender));
            std::future::pending().await
        }
        "hold" => {
            let mut unwanted = ReportsDrop(Some(report_sender.clone()));
            context.progress(Progress::new(1.0));
            release.notified().await;
            unwanted.0 = None;
            let _ = report_sender.send("held".to_owned());
            let times = params["arguments"]["times"].as_u64().unwrap_or(1);
            "held".repeat(usize::try_from(times).expect("a number"))
        }
        "who" => request.user.unwrap_or_default().into(),
        _ => return Err(ErrorObject::new(code::INVALID_PARAMS, "no such tool")),
    };
    Ok(payload(
        &json!({"content": [{"type": "text", "text": text}]}),
    ))
}

struct ReportsDrop(Option<mpsc::UnboundedSender<String>>);

impl Drop for ReportsDrop {
    fn drop(&mut self) {
        if let Some(report_sender) = &self.0 {
            let _ = report_sender.send("unwanted".to_owned());
        }
    }
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("JSON")
}

/// Calls the tool `echo` and returns its text.
pub(crate) async fn echo(link: &Link, text: &str) -> String {
    let call = link.call_tool("echo", json!({"text": text})).start();
    call.await.expect("an echo").text()
}
