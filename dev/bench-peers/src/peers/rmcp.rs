//! rmcp, the official SDK for Rust, in its fastest sensible set-up.
//!
//! The handler uses no macros and no routers, calls go through a clone of the peer that copies no parameters, and unused features are off.

use std::future::Future;
use std::process::Command;
use std::time::Duration;

use axum::serve::ListenerExt;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest,
    ContentBlock, ErrorData, JsonObject, ProtocolVersion, ServerCapabilities, ServerConfig,
    ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::transport::{
    IntoTransport, StreamableHttpClientTransport, TokioChildProcess, stdio, stdio_pipes,
};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, RoleServer, ServiceExt};

use super::{Caller, OnTokio, runtime};
use crate::echo::NAME;
use crate::report::Era;

pub(crate) type Running = RunningService<RoleClient, ()>;

/// The handler of the server.
#[derive(Clone)]
pub(crate) struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        assert_eq!(request.name, NAME, "the server has one tool");
        let mut arguments = request.arguments.expect("a call has arguments");
        let text = match arguments.remove("text") {
            Some(serde_json::Value::String(text)) => text,
            _ => panic!("wrong arguments"),
        };
        let result = CallToolResult::success(vec![ContentBlock::text(text)]);
        Ok(CallToolResponse::Complete(result))
    }
}

/// Connects a client in this era.
pub(crate) async fn connect<T, E, A>(transport: T, era: Era) -> Running
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let mode = match era {
        Era::Legacy | Era::Both => ClientLifecycleMode::Initialize,
        Era::Modern => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    };
    let running = ().serve_with_lifecycle(transport, mode).await;
    running.expect("the server is there")
}

/// Parameters built as users of rmcp build them.
pub(crate) fn params(text: &str) -> CallToolRequestParams {
    let mut arguments = JsonObject::new();
    arguments.insert("text".into(), text.into());
    CallToolRequestParams::new(NAME).with_arguments(arguments)
}

impl Caller for Peer<RoleClient> {
    async fn call(&self, text: &str) -> usize {
        let response = self.call_tool_once(params(text)).await;
        let CallToolResponse::Complete(result) = response.expect("it is answered") else {
            panic!("wrong result");
        };
        result.content[0]
            .as_text()
            .map_or(0, |text| text.text.len())
    }
}

/// Calls a tool without arguments, with a timeout.
pub(crate) async fn call_within(
    peer: &Peer<RoleClient>,
    tool: &'static str,
    deadline: Option<Duration>,
) -> Result<ServerResult, ServiceError> {
    let params = CallToolRequestParams::new(tool).with_arguments(JsonObject::new());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let mut options = PeerRequestOptions::no_options();
    options.timeout = deadline;
    let handle = peer.send_cancellable_request(request, options).await?;
    handle.await_response().await
}

/// Connects a client with its own runtime.
pub(crate) fn client(connect: impl Future<Output = Running>) -> OnTokio<Peer<RoleClient>> {
    let runtime = runtime();
    let running = runtime.block_on(connect);
    let peer = running.peer().clone();
    OnTokio::new(runtime, peer, running)
}

/// Connects to a server in the same process, through a pipe of tokio.
pub(crate) async fn in_memory(era: Era) -> Running {
    let (client_end, server_end) = tokio::io::duplex(64 << 10);
    tokio::spawn(async {
        let running = Echo.serve(server_end).await.expect("the client is there");
        let _ = running.waiting().await;
    });
    connect(client_end, era).await
}

/// Connects to a child process.
pub(crate) async fn over_child(command: Command, era: Era) -> Running {
    let command = tokio::process::Command::from(command);
    let transport = TokioChildProcess::new(command).expect("the child starts");
    connect(transport, era).await
}

/// The set-up of HTTP.
#[derive(Clone, Copy)]
pub(crate) enum HttpMode {
    /// The defaults: sessions, event streams, a connection for each request.
    Default,
    /// Pooled connections, no limit of 16 requests at a time, and a server that answers with plain JSON and without sessions.
    Pooled,
}

/// Connects to a server over HTTP.
pub(crate) async fn over_http(url: &str, era: Era, mode: HttpMode) -> Running {
    let transport = match mode {
        HttpMode::Default => StreamableHttpClientTransport::from_uri(url),
        HttpMode::Pooled => StreamableHttpClientTransport::with_client(
            reqwest::Client::new(),
            StreamableHttpClientTransportConfig::with_uri(url).max_concurrent_requests(64),
        ),
    };
    connect(transport, era).await
}

/// A server on the standard streams of this process, with the blocking pool.
pub(crate) fn serve_stdio() {
    runtime().block_on(async {
        let running = Echo.serve(stdio()).await.expect("the client is there");
        let _ = running.waiting().await;
    });
}

/// A server on the standard streams of this process, which must be pipes.
pub(crate) fn serve_stdio_pipes() {
    runtime().block_on(async {
        let running = Echo.serve(stdio_pipes()).await;
        let _ = running.expect("the client is there").waiting().await;
    });
}

/// A server over HTTP, which prints its address and serves until it is killed. Its sockets have `TCP_NODELAY`: otherwise an answer in
/// several pieces takes 40 ms.
pub(crate) fn serve_http(mode: HttpMode) {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("there is a port");
        println!("{}", listener.local_addr().expect("it has an address"));
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        let router = axum::Router::new();
        let router = match mode {
            HttpMode::Default => {
                let sessions = std::sync::Arc::new(LocalSessionManager::default());
                let config = StreamableHttpServerConfig::default();
                let service = StreamableHttpService::new(|| Ok(Echo), sessions, config);
                router.nest_service("/mcp", service)
            }
            HttpMode::Pooled => {
                let sessions = std::sync::Arc::new(NeverSessionManager::default());
                let config = StreamableHttpServerConfig::default()
                    .with_legacy_session_mode(false)
                    .with_json_response(true);
                let service = StreamableHttpService::new(|| Ok(Echo), sessions, config);
                router.nest_service("/mcp", service)
            }
        };
        let _ = axum::serve(listener, router).await;
    });
}
