//! The server of `adapters/tools/examples/typed_server.rs` with rmcp, to compare the two. On standard streams, or over HTTP for clients with a token:
//!
//! ```sh
//! cargo run --example typed_server
//! TOKEN=open-sesame cargo run --example typed_server -- 127.0.0.1:8080
//! ```

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, Implementation,
    ListResourcesResult, PaginatedRequestParams, PromptMessage, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, Role, ServerCapabilities,
    ServerConfig,
};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{
    Json, Peer, RoleServer, ServerHandler, ServiceExt, elicit_safe, prompt, prompt_handler,
    prompt_router, tool, tool_handler, tool_router,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// The text to look for
    query: String,
    /// The most results
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    titles: Vec<&'static str>,
}

/// A form for the user.
#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    /// Whether to delete all notes
    sure: bool,
}

elicit_safe!(Confirmation);

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// The code to review
    code: String,
    /// Its language
    language: Option<String>,
}

const NOTES: [&str; 3] = ["Buy milk", "Call Ada", "Buy bread"];

fn ten() -> usize {
    10
}

#[derive(Clone)]
struct Notes;

#[tool_router]
impl Notes {
    #[tool(description = "Adds two numbers")]
    async fn add(&self, Parameters(args): Parameters<Add>) -> Json<Sum> {
        Json(Sum {
            sum: args.a + args.b,
        })
    }

    #[tool(
        description = "Searches the notes",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn search(&self, Parameters(args): Parameters<Search>) -> Json<Found> {
        let titles = NOTES.into_iter().filter(|note| note.contains(&args.query));
        Json(Found {
            titles: titles.take(args.limit).collect(),
        })
    }

    #[tool(description = "Deletes all notes, if the user agrees")]
    async fn clear(&self, peer: Peer<RoleServer>) -> Result<String, ErrorData> {
        let answer = peer.elicit::<Confirmation>("Delete all notes?").await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(match answer {
            Some(Confirmation { sure: true }) => "All notes are deleted.".to_owned(),
            _ => "The notes are still there.".to_owned(),
        })
    }
}

#[prompt_router]
impl Notes {
    #[prompt(name = "review", description = "Reviews code")]
    async fn review(&self, Parameters(args): Parameters<Review>) -> Vec<PromptMessage> {
        let language = args.language.as_deref().unwrap_or("some language");
        let text = format!("Review this code in {language}:\n{}", args.code);
        vec![PromptMessage::new_text(Role::User, text)]
    }
}

#[tool_handler]
#[prompt_handler]
impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("notes", "1.0"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let notes = Resource::new("notes://all", "notes").with_mime_type("text/plain");
        Ok(ListResourcesResult::with_all_items(vec![notes]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != "notes://all" {
            return Err(ErrorData::resource_not_found("Resource not found", None));
        }
        let contents = ResourceContents::text(NOTES.join("\n"), request.uri);
        Ok(ReadResourceResult::new(vec![contents.with_mime_type("text/plain")]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let is_language = request.argument.name == "language";
        let words = ["go", "python", "rust"].into_iter().filter(|_| is_language);
        let words = words.filter(|word| word.starts_with(&request.argument.value));
        let values = CompletionInfo::new(words.map(str::to_owned).collect());
        let values = values.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(values))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        None => drop(Notes.serve(stdio()).await?.waiting().await?),
        Some(address) => serve_http(&address).await?,
    }
    Ok(())
}

async fn serve_http(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let expected = format!("Bearer {}", env::var("TOKEN")?);
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Notes), sessions, config);
    let check = move |request: Request, next: Next| {
        let expected = expected.clone();
        async move { authorize(&expected, request, next).await }
    };
    let router = axum::Router::new()
        .nest_service("/mcp", service)
        .layer(from_fn(check));
    Ok(axum::serve(listener, router).await?)
}

async fn authorize(expected: &str, request: Request, next: Next) -> Response {
    match request.headers().get(AUTHORIZATION) {
        Some(given) if given == expected => next.run(request).await,
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}
