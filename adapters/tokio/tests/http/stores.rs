//! Tests a server that keeps its sessions in a store of the application: one that several servers share, one that is slow, and one that fails.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everlink::server::{DriverStorage, Http, MemoryStore, Replay};
use everlink::{Input, StoreAnswer, StoreRequest};
use everlink_tokio::Service;
use everlink_tokio::http::{MemoryNode, SharedMemory, Store, StorePort, serve, serve_with_store};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{run_isolated, server_config, tools};

/// What a store does with a look-up.
#[derive(Clone, Copy)]
enum Behaviour {
    Answers,
    AnswersAfter(Duration),
    Fails,
    NeverAnswers,
}

#[derive(Clone)]
struct TestStore {
    memory: SharedMemory,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl TestStore {
    fn new() -> TestStore {
        TestStore {
            memory: SharedMemory::new(MemoryStore::new(8, Replay::default())),
            behaviour: Arc::new(Mutex::new(Behaviour::Answers)),
        }
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("a lock") = behaviour;
    }
}

/// The store, as one server uses it.
struct TestNode {
    store: TestStore,
    node: MemoryNode,
}

impl Store for TestNode {
    async fn run(self, mut port: StorePort) {
        let inputs = port.inputs();
        loop {
            let request = tokio::select! {
                request = port.recv() => request,
                note = self.node.next_note() => {
                    inputs.feed(note);
                    continue;
                }
            };
            let Some(request) = request else {
                return;
            };
            let behaviour = *self.store.behaviour.lock().expect("a lock");
            let lookup = request.lookup();
            let answer = self.node.carry_out(request);
            let (answer, delay) = match (behaviour, lookup) {
                (Behaviour::AnswersAfter(delay), Some(_)) => (answer, delay),
                (Behaviour::Fails, Some(lookup)) => {
                    let answer = StoreAnswer::Failed;
                    let failed = Input::Stored { lookup, answer };
                    (Some(failed), Duration::ZERO)
                }
                (Behaviour::NeverAnswers, Some(_)) => (None, Duration::ZERO),
                (_, _) => (answer, Duration::ZERO),
            };
            if let Some(answer) = answer {
                let inputs = inputs.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    inputs.feed(answer);
                });
            }
        }
    }
}

struct TestServer {
    address: SocketAddr,
    service: Service,
}

impl TestServer {
    async fn start(instance: u32, store: Option<&TestStore>) -> TestServer {
        let node = store.map(|store| TestNode {
            store: store.clone(),
            node: store.memory.for_server(instance),
        });
        TestServer::start_with(instance, node).await
    }

    async fn start_with(instance: u32, store: Option<impl Store>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut storage = DriverStorage::new(instance);
        storage.timeout = Duration::from_millis(300);
        let config = server_config().with_http(Http::new().with_storage(storage));
        let (_, handler) = tools();
        let service = match store {
            Some(store) => serve_with_store(listener, config, store, handler),
            None => serve(listener, config, handler),
        };
        TestServer { address, service }
    }

    /// Sends a message. Returns the status of the response, its head, and its body.
    async fn post(&self, session: Option<&str>, message: Value) -> (u16, String, Value) {
        let mut client = TcpStream::connect(self.address).await.expect("a server");
        let body = message.to_string();
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        if let Some(session) = session {
            head += &format!("Mcp-Session-Id: {session}\r\n");
        }
        let request = format!("{head}\r\n{body}");
        client.write_all(request.as_bytes()).await.expect("written");
        let mut response = String::new();
        client.read_to_string(&mut response).await.expect("read");
        let (head, body) = response.split_once("\r\n\r\n").expect("a response");
        let status = head[9..12].parse().expect("a status");
        let body = serde_json::from_str(body).unwrap_or_default();
        (status, head.to_ascii_lowercase(), body)
    }

    /// Opens a session and returns its id.
    async fn open_session(&self) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let (status, head, _) = self.post(None, message).await;
        assert_eq!(status, 200, "{head}");
        let id = head.split_once("mcp-session-id: ").expect("a session").1;
        let id = id.lines().next().expect("an id").to_owned();
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(Some(&id), done).await.0, 202);
        id
    }

    async fn ping(&self, session: &str) -> (u16, String) {
        let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
        let (status, head, _) = self.post(Some(session), ping).await;
        (status, head)
    }

    async fn stop(self) {
        self.service.shutdown().await.expect("it ends");
    }
}

#[test]
fn session_begun_at_one_server_is_continued_at_another() {
    run_isolated(async || {
        let store = TestStore::new();
        let one = TestServer::start(1, Some(&store)).await;
        let other = TestServer::start(2, Some(&store)).await;
        let session = one.open_session().await;
        let params = json!({"name": "echo", "arguments": {"text": "hello"}});
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
        let (status, _, reply) = other.post(Some(&session), call).await;
        assert_eq!(status, 200);
        assert_eq!(reply["result"]["content"][0]["text"], "hello");
        assert_eq!(one.ping(&session).await.0, 200);
        one.stop().await;
        assert_eq!(other.ping(&session).await.0, 200);
        other.stop().await;
    });
}

#[test]
fn store_that_fails_or_never_answers_gives_503_and_the_session_goes_on() {
    run_isolated(async || {
        let store = TestStore::new();
        let one = TestServer::start(1, Some(&store)).await;
        let server = TestServer::start(2, Some(&store)).await;
        let session = one.open_session().await;
        for behaviour in [Behaviour::Fails, Behaviour::NeverAnswers] {
            store.behave(behaviour);
            // The home of the session asks the store nothing.
            assert_eq!(one.ping(&session).await.0, 200);
            let (status, head) = server.ping(&session).await;
            assert_eq!(status, 503);
            assert!(head.contains("retry-after: "), "{head}");
            store.behave(Behaviour::AnswersAfter(Duration::from_millis(50)));
            assert_eq!(server.ping(&session).await.0, 200);
        }
        store.behave(Behaviour::Answers);
        one.stop().await;
        server.stop().await;
    });
}

#[test]
fn server_without_the_store_that_its_config_names_gives_503() {
    run_isolated(async || {
        let server = TestServer::start(1, None).await;
        assert_eq!(server.ping("any").await.0, 503);
        server.stop().await;
    });
}

#[test]
fn servers_share_a_store_in_memory_and_take_over_from_one_that_ended() {
    run_isolated(async || {
        let memory = SharedMemory::new(MemoryStore::new(8, Replay::default()));
        let start = async |instance| {
            let node = memory.for_server(instance);
            TestServer::start_with(instance, Some(node)).await
        };
        let (one, other) = (start(1).await, start(2).await);
        let session = one.open_session().await;
        assert_eq!(other.ping(&session).await.0, 200);
        one.stop().await;
        assert_eq!(other.ping(&session).await.0, 200);
        other.stop().await;
    });
}

/// A store that looks for requests now and then.
struct PolledNode {
    node: MemoryNode,
    end: Arc<tokio::sync::Notify>,
}

impl Store for PolledNode {
    async fn run(self, mut port: StorePort) {
        let inputs = port.inputs();
        let polls = async {
            loop {
                while let Some(request) = port.try_recv() {
                    self.node
                        .carry_out(request)
                        .into_iter()
                        .for_each(|answer| inputs.feed(answer));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = polls => {}
            () = self.end.notified() => {}
        }
    }
}

#[test]
fn store_may_look_for_requests_without_waiting() {
    run_isolated(async || {
        let memory = SharedMemory::new(MemoryStore::new(8, Replay::default()));
        let end = Arc::new(tokio::sync::Notify::new());
        let store = PolledNode {
            node: memory.for_server(1),
            end: Arc::clone(&end),
        };
        let server = TestServer::start_with(1, Some(store)).await;
        let session = server.open_session().await;
        assert_eq!(server.ping(&session).await.0, 200);
        end.notify_one();
        server.stop().await;
    });
}

#[test]
fn note_reaches_its_server_unless_that_ended_before_it_came() {
    run_isolated(async || {
        let memory = SharedMemory::new(MemoryStore::new(8, Replay::default()));
        let teller = memory.for_server(2);
        let tell = || {
            let (lookup, to, note) = (None, Some(1), "hello".into());
            let told = teller.carry_out(StoreRequest::Tell { lookup, to, note });
            assert!(told.is_none(), "it wants no answer");
        };
        for has_ended in [false, true] {
            let mut node = memory.for_server(1);
            assert!(node.carry_out(StoreRequest::Leave).is_none());
            tell();
            if has_ended {
                drop(node);
                node = memory.for_server(1);
            }
            let note = tokio::select! {
                biased;
                note = node.next_note() => Some(note),
                () = std::future::ready(()) => None,
            };
            assert_eq!(note.is_none(), has_ended);
            // A server that waits already is woken.
            assert!(node.carry_out(StoreRequest::Leave).is_none());
            let late = async {
                tokio::task::yield_now().await;
                tell();
            };
            let (note, ()) = tokio::join!(node.next_note(), late);
            assert!(matches!(note, Input::Note { note } if &*note == "hello"));
        }
    });
}
