//! The server: it offers what stands in `offer.json`.
#![allow(deprecated, reason = "what the older era has is deprecated")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorCode,
    ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig, ServerNotification,
    ServerRequest, SetLevelRequestParams, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Context = RequestContext<RoleServer>;

static OFFER: LazyLock<Value> = LazyLock::new(|| crate::json_file("offer.json"));

#[derive(Clone)]
struct Offer;

pub(crate) async fn on_stdio() {
    let running = Offer.serve(stdio()).await.expect("the client is there");
    let _ = running.waiting().await;
}

pub(crate) async fn over_http(port: &str) {
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await;
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Offer), sessions, config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let _ = axum::serve(listener.expect("the port is free"), router).await;
}

/// The library's own type of what stands in JSON.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| {
        ErrorData::internal_error(format!("this library cannot say it: {error}"), None)
    })
}

fn error(code: i32, message: impl Into<String>, data: Option<Value>) -> ErrorData {
    ErrorData::new(ErrorCode(code), message.into(), data)
}

impl ServerHandler for Offer {
    fn get_info(&self) -> ServerConfig {
        let info = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {}, "resources": {"subscribe": true}, "prompts": {"listChanged": true}, "logging": {}, "completions": {},
                "experimental": OFFER["experimental"], "extensions": OFFER["extensions"],
            },
            "serverInfo": OFFER["info"],
            "instructions": OFFER["instructions"],
        });
        typed(info).expect("the library knows all of it")
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = OFFER["tools"].as_array().expect("tools are a list");
        let page = OFFER["page"].as_u64().expect("a page has a size");
        let (first, second) = tools.split_at(usize::try_from(page).expect("it is small"));
        match params.and_then(|params| params.cursor) {
            None => typed(json!({"tools": first, "nextCursor": "page-2"})),
            Some(cursor) if cursor == "page-2" => typed(json!({"tools": second})),
            Some(cursor) => Err(error(-32602, format!("Unknown cursor: {cursor}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        typed(json!({"resources": OFFER["resources"]}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        typed(json!({"resourceTemplates": OFFER["templates"]}))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri;
        let content = match uri.strip_prefix("test://user/") {
            Some(name) => {
                json!({"uri": uri, "mimeType": "application/json", "text": json!({"name": name}).to_string()})
            }
            None => OFFER["contents"][&uri].clone(),
        };
        if content.is_null() {
            return Err(error(
                -32002,
                "Resource not found",
                Some(json!({"uri": uri})),
            ));
        }
        typed(json!({"contents": [content]})).map(ReadResourceResponse::Complete)
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        typed(json!({"prompts": OFFER["prompts"]}))
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        if params.name != "greet" {
            let text = format!("Unknown prompt: {}", params.name);
            return Err(error(-32602, text, None));
        }
        let who = params
            .arguments
            .map_or(Value::Null, |given| given["who"].clone());
        let text = format!("Greet {}", who.as_str().unwrap_or_default());
        let message = json!({"role": "user", "content": {"type": "text", "text": text}});
        typed(json!({"description": "A greeting", "messages": [message], "_meta": {"com.example/got": 1}}))
            .map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let context = serde_json::to_string(&params.context).unwrap_or_default();
        let values = [format!("{}da", params.argument.value), context];
        typed(json!({"completion": {"values": values, "total": 2, "hasMore": false}}))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = Value::Object(params.arguments.unwrap_or_default());
        let result = match &*params.name {
            "mark" => text("marked"),
            "echo" => {
                json!({"content": [], "structuredContent": given, "_meta": {"com.example/seen": seen(&context)}})
            }
            "big" => text(&"x".repeat(given["size"].as_u64().unwrap_or_default() as usize)),
            "length" => text(&given["text"].as_str().unwrap_or_default().len().to_string()),
            name if !OFFER["acts"][name].is_null() => act(&OFFER["acts"][name], &context).await?,
            name => return Err(error(-32602, format!("Unknown tool: {name}"), None)),
        };
        typed(result).map(CallToolResponse::Complete)
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// What a host said in `_meta` for its own purposes.
fn seen(context: &Context) -> Value {
    let mut meta = serde_json::to_value(&context.meta).unwrap_or_default();
    if let Some(members) = meta.as_object_mut() {
        members.retain(|name, _| name.starts_with("com.example"));
    }
    meta
}

async fn act(what: &Value, context: &Context) -> Result<Value, ErrorData> {
    let mut answers = Vec::new();
    for step in what["steps"].as_array().into_iter().flatten() {
        if step["notify"].is_string() {
            notify(context, message(&step["notify"], &step["params"])).await?;
        } else if step["ask"].is_string() {
            answers.push(ask(context, message(&step["ask"], &step["params"])).await?);
        } else if let Some(seconds) = step["sleep"].as_u64() {
            tokio::select! {
                () = context.ct.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            }
        } else if let (Some(token), true) = (
            context.meta.get_progress_token(),
            step["progress"].is_object(),
        ) {
            let mut params = step["progress"].clone();
            params["progressToken"] = serde_json::to_value(token).unwrap_or_default();
            notify(context, message(&json!("notifications/progress"), &params)).await?;
        }
    }
    if what["error"].is_object() {
        return Err(typed(what["error"].clone())?);
    }
    if what["result"].is_object() {
        return Ok(what["result"].clone());
    }
    Ok(text(&Value::Array(answers).to_string()))
}

fn message(method: &Value, params: &Value) -> Value {
    let mut message = json!({"method": method});
    if !params.is_null() {
        message["params"] = params.clone();
    }
    message
}

async fn notify(context: &Context, notification: Value) -> Result<(), ErrorData> {
    let notification: ServerNotification = typed(notification)?;
    let sent = context.peer.send_notification(notification).await;
    sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn ask(context: &Context, question: Value) -> Result<Value, ErrorData> {
    let question: ServerRequest = typed(question)?;
    Ok(match context.peer.send_request(question).await {
        Ok(answer) => serde_json::to_value(answer).unwrap_or_default(),
        Err(error) => json!(error.to_string()),
    })
}
