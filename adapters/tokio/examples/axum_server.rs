//! A server inside an axum application, protected with OAuth. Its clients learn where they get tokens:
//!
//! ```sh
//! cargo run --features axum --example axum_server
//! curl -i http://127.0.0.1:8080/api/mcp
//! curl http://127.0.0.1:8080/.well-known/oauth-protected-resource/api/mcp
//! TOKEN=open-sesame cargo run --example http_client -- http://127.0.0.1:8080/api/mcp whoami
//! ```
//!
//! The authorization server of this example does not exist. A real `verify` asks one, or checks the signature of the token.

use std::error::Error;

use axum::Router;
use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{self, Config, Offer};
use everlink::{ErrorObject, Payload};
use everlink_tokio::http::{Access, Protection, protected_router};
use everlink_tokio::{Context, secret};
use serde_json::json;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = "http://127.0.0.1:8080/api/mcp";
    let protection = Protection::new(url, ["https://login.example.com"], verify)?;
    let protection = protection.with_scopes(["read"]);
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("vault", "1.0").with_capabilities(tools);
    let config = Config::new(offer, secret());
    let (mcp, metadata, service) = protected_router(config, protection, answer);
    let application = Router::new().nest("/api/mcp", mcp).merge(metadata);

    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let end = async move {
        let _ = tokio::signal::ctrl_c().await;
        let _ = service.shutdown().await;
    };
    let serving = axum::serve(listener, application);
    Ok(serving.with_graceful_shutdown(end).await?)
}

/// What a token allows.
async fn verify(token: String) -> Option<Access> {
    (token == "open-sesame").then(|| Access::new("Ali Baba", ["read"]))
}

async fn answer(request: server::Request, _: Context) -> Result<Payload, ErrorObject> {
    let result = match &*request.method {
        "tools/list" => json!({"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": request.user}]})
        }
        other => return Err(ErrorObject::new(code::METHOD_NOT_FOUND, other)),
    };
    Ok(Payload::of(&result).expect("JSON"))
}
