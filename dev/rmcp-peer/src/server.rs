//! The server: offers what `offer.json` lists.
#![allow(deprecated, reason = "the legacy era uses deprecated items")]

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

pub(crate) async fn serve_stdio() {
    let running = Offer.serve(stdio()).await.expect("the client is there");
    let _ = running.waiting().await;
}

pub(crate) async fn serve_http(port: &str) {
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await;
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Offer), sessions, config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let _ = axum::serve(listener.expect("the port is free"), router).await;
}

/// Converts JSON to a type of the library.
fn to_library_type<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
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
        to_library_type(info).expect("the library knows all of it")
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
            None => to_library_type(json!({"tools": first, "nextCursor": "page-2"})),
            Some(cursor) if cursor == "page-2" => to_library_type(json!({"tools": second})),
            Some(cursor) => Err(error(-32602, format!("Unknown cursor: {cursor}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        to_library_type(json!({"resources": OFFER["resources"]}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        to_library_type(json!({"resourceTemplates": OFFER["templates"]}))
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
        to_library_type(json!({"contents": [content]})).map(ReadResourceResponse::Complete)
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
        to_library_type(json!({"prompts": OFFER["prompts"]}))
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
        let name = params
            .arguments
            .map_or(Value::Null, |arguments| arguments["who"].clone());
        let text = format!("Greet {}", name.as_str().unwrap_or_default());
        let message = json!({"role": "user", "content": {"type": "text", "text": text}});
        to_library_type(json!({"description": "A greeting", "messages": [message], "_meta": {"com.example/got": 1}}))
            .map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let context = serde_json::to_string(&params.context).unwrap_or_default();
        let values = [format!("{}da", params.argument.value), context];
        to_library_type(json!({"completion": {"values": values, "total": 2, "hasMore": false}}))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(params.arguments.unwrap_or_default());
        let result = match &*params.name {
            "mark" => text("marked"),
            "echo" => {
                json!({"content": [], "structuredContent": arguments, "_meta": {"com.example/seen": host_meta(&context)}})
            }
            "big" => text(&"x".repeat(arguments["size"].as_u64().unwrap_or_default() as usize)),
            "length" => text(
                &arguments["text"]
                    .as_str()
                    .unwrap_or_default()
                    .len()
                    .to_string(),
            ),
            name if !OFFER["acts"][name].is_null() => {
                run_steps(&OFFER["acts"][name], &context).await?
            }
            name => return Err(error(-32602, format!("Unknown tool: {name}"), None)),
        };
        to_library_type(result).map(CallToolResponse::Complete)
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// The members of `_meta` that the host added.
fn host_meta(context: &Context) -> Value {
    let mut meta = serde_json::to_value(&context.meta).unwrap_or_default();
    if let Some(members) = meta.as_object_mut() {
        members.retain(|name, _| name.starts_with("com.example"));
    }
    meta
}

async fn run_steps(script: &Value, context: &Context) -> Result<Value, ErrorData> {
    let mut answers = Vec::new();
    for step in script["steps"].as_array().into_iter().flatten() {
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
    if script["error"].is_object() {
        return Err(to_library_type(script["error"].clone())?);
    }
    if script["result"].is_object() {
        return Ok(script["result"].clone());
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
    let notification: ServerNotification = to_library_type(notification)?;
    let sent = context.peer.send_notification(notification).await;
    sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn ask(context: &Context, question: Value) -> Result<Value, ErrorData> {
    let question: ServerRequest = to_library_type(question)?;
    Ok(match context.peer.send_request(question).await {
        Ok(answer) => serde_json::to_value(answer).unwrap_or_default(),
        Err(error) => json!(error.to_string()),
    })
}
