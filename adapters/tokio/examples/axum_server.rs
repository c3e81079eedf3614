//! A server inside an axum application, for clients that send the right token:
//!
//! ```sh
//! cargo run --features axum --example axum_server
//! TOKEN=open-sesame cargo run --example http_client -- http://127.0.0.1:8080/api/mcp whoami
//! ```

use std::error::Error;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{self, Config, Offer};
use everlink::{ErrorObject, Payload};
use everlink_tokio::http::{User, router};
use everlink_tokio::{Context, secret};
use serde_json::json;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("vault", "1.0").with_capabilities(tools);
    let (mcp, service) = router(Config::new(offer, secret()), answer);
    let mcp = mcp.layer(middleware::from_fn(authorize));
    let application = Router::new().nest("/api/mcp", mcp);

    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let end = async move {
        let _ = tokio::signal::ctrl_c().await;
        let _ = service.shutdown().await;
    };
    let serving = axum::serve(listener, application);
    Ok(serving.with_graceful_shutdown(end).await?)
}

async fn authorize(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(AUTHORIZATION);
    if token.is_none_or(|token| token != "Bearer open-sesame") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    request.extensions_mut().insert(User("Ali Baba".into()));
    next.run(request).await
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
