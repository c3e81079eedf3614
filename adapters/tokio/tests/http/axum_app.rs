//! A server inside an axum application, which checks credentials.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use everlink::client::Event;
use everlink::server::{Http, SsePaths};
use everlink::{Config, Dialect};
use everlink_tokio::Service;
use everlink_tokio::http::{Connector, Store, StorePort, User, router, router_with_store};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{ERAS, echo, run_isolated, server_config, tools};

#[test]
fn handler_sees_the_user_that_the_application_set() {
    run_isolated(async || {
        for dialect in ERAS {
            let app = AxumApp::start().await;
            let connector = Connector::new().with_credentials(async || Some("sesame".to_owned()));
            let link = connector
                .connect(app.config("/api/mcp", dialect))
                .expect("a runtime");
            let who = link.call_tool("who", json!({})).await;
            assert_eq!(who.expect("an answer").text(), "Ali Baba");
            link.shutdown().await.expect("it ends");
            app.stop().await;
        }
    });
}

#[test]
fn refused_call_succeeds_after_the_client_has_credentials() {
    run_isolated(async || {
        for dialect in ERAS {
            let app = AxumApp::start().await;
            let has_token = Arc::new(AtomicBool::new(false));
            let token_flag = Arc::clone(&has_token);
            let credentials = move || {
                let token = token_flag
                    .load(Ordering::Relaxed)
                    .then(|| "sesame".to_owned());
                async { token }
            };
            let connector = Connector::new().with_credentials(credentials);
            let link = connector
                .connect(app.config("/api/mcp", dialect))
                .expect("a runtime");
            let mut events = link.events();
            let call = link.call_tool("who", json!({})).start();
            loop {
                let event = events.recv().await.expect("the link lives");
                if let Event::AuthRequired(challenge) = &*event {
                    break assert_eq!(challenge.status, 401);
                }
            }
            has_token.store(true, Ordering::Relaxed);
            link.authorized();
            assert_eq!(call.await.expect("an answer").text(), "Ali Baba");
            link.shutdown().await.expect("it ends");
            app.stop().await;
        }
    });
}

/// A store that takes a moment for its last messages.
struct SlowStore(Arc<AtomicBool>);

impl Store for SlowStore {
    async fn run(self, mut port: StorePort) {
        while port.recv().await.is_some() {}
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn shutdown_waits_for_the_last_messages_to_be_stored() {
    run_isolated(async || {
        let is_stored = Arc::new(AtomicBool::new(false));
        let store = SlowStore(Arc::clone(&is_stored));
        let (_router, service) = router_with_store(server_config(), store, tools().1);
        service.shutdown().await.expect("it ends");
        assert!(is_stored.load(Ordering::Relaxed));
    });
}

#[test]
fn nested_router_announces_its_full_path_to_sse_clients() {
    run_isolated(async || {
        let app = AxumApp::start().await;
        let connector = Connector::new().with_credentials(async || Some("sesame".to_owned()));
        let link = connector
            .connect(app.config("/api/mcp/sse", Dialect::Legacy))
            .expect("a runtime");
        assert_eq!(echo(&link, "from afar").await, "from afar");
        link.shutdown().await.expect("it ends");
        app.stop().await;
    });
}

#[test]
fn application_answers_503_after_the_service_is_shut_down() {
    run_isolated(async || {
        let app = AxumApp::start().await;
        app.service.shutdown().await.expect("it ends");
        let mut socket = TcpStream::connect(app.address).await.expect("a server");
        let request = "GET /api/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: sesame\r\nConnection: close\r\n\r\n";
        let sent = socket.write_all(request.as_bytes()).await;
        sent.expect("it listens");
        let mut response = String::new();
        let read = socket.read_to_string(&mut response).await;
        read.expect("a response");
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        app.stop().await;
    });
}

/// An axum application with a server in it.
struct AxumApp {
    address: SocketAddr,
    service: Service,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl AxumApp {
    async fn start() -> AxumApp {
        let paths = SsePaths::new("/api/mcp/sse", "/api/mcp/messages");
        let config = server_config().with_http(Http::new().with_sse(paths));
        let (_, handler) = tools();
        let (mcp, service) = router(config, handler);
        let mcp = mcp.layer(middleware::from_fn(authorize));
        let application = Router::new().nest("/api/mcp", mcp);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (end, ended) = oneshot::channel();
        let serving = axum::serve(listener, application).with_graceful_shutdown(async {
            let _ = ended.await;
        });
        AxumApp {
            address,
            service,
            end,
            serving: tokio::spawn(async { serving.await.expect("it serves") }),
        }
    }

    fn config(&self, path: &str, dialect: Dialect) -> Config {
        let url = format!("http://{}{path}", self.address);
        let mut config = Config::http("tests", "1.0", &url).expect("a URL");
        config.dialect = dialect;
        config
    }

    async fn stop(self) {
        self.service.shutdown().await.expect("it ends");
        self.end.send(()).expect("it serves");
        self.serving.await.expect("it ends");
    }
}

async fn authorize(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(AUTHORIZATION);
    if token.is_none_or(|token| token != "sesame") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    request.extensions_mut().insert(User("Ali Baba".to_owned()));
    next.run(request).await
}
