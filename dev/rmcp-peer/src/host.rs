//! The host: it plays the scenarios one after the other, like `tests/transparency/host.py`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    ClientConfig, ClientNotification, ClientRequest, ClientResult, ErrorData, ProtocolVersion,
    ServerNotification, ServerRequest, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RunningService, Service,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// How long an expected notification may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take where none is to come.
const MOMENT: Duration = Duration::from_millis(300);
/// No step takes longer, whatever it waits for; with the largest messages, ten times as long.
const STEP_LIMIT: Duration = Duration::from_secs(8);

/// What the application hears and says.
#[derive(Clone, Default)]
struct Application {
    heard: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Application {
    fn hear(&self, notification: &ServerNotification) {
        let method = serde_json::to_value(notification).unwrap_or_default()["method"].take();
        let mut heard = self.heard.lock().expect("nobody panics with it");
        *heard
            .entry(method.as_str().unwrap_or_default().to_owned())
            .or_default() += 1;
    }

    fn count(&self, method: &str) -> usize {
        let heard = self.heard.lock().expect("nobody panics with it");
        heard.get(method).copied().unwrap_or_default()
    }
}

impl Service<RoleClient> for Application {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let answer = match request {
            ServerRequest::CreateMessageRequest(_) => {
                json!({"role": "assistant", "content": {"type": "text", "text": "Ada 𝄞"}, "model": "test-model", "stopReason": "endTurn"})
            }
            ServerRequest::ListRootsRequest(_) => {
                json!({"roots": [{"uri": "file:///home/ada", "name": "home"}, {"uri": "file:///tmp/%C3%BC"}]})
            }
            ServerRequest::ElicitRequest(_) => {
                json!({"action": "accept", "content": {"name": "Ada", "age": 36}})
            }
            ServerRequest::PingRequest(_) => json!({}),
            _ => {
                return Err(ErrorData::new(
                    rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                    "Method not found",
                    None,
                ));
            }
        };
        serde_json::from_value(answer)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        self.hear(&notification);
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let info = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "roots": {"listChanged": true}, "sampling": {}, "elicitation": {},
                "experimental": {"x-everlink-host": {"deep": [1, null]}},
                "extensions": {"com.example/host-extension": {"level": 4}},
            },
            "clientInfo": {"name": "transparent-host", "title": "Gastgeber", "version": "3.2.1", "websiteUrl": "https://example.com/host"},
        });
        serde_json::from_value(info).expect("the library knows all of it")
    }
}

struct Host {
    running: RunningService<RoleClient, Application>,
    application: Application,
    is_modern: bool,
}

pub(crate) async fn run(is_whole: bool, era: &str, transport: &str, target: &[&str]) {
    let mode = if era == "legacy" {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        }
    };
    let application = Application::default();
    let service = application.clone();
    let running = if transport == "stdio" {
        let mut command = tokio::process::Command::new(target[0]);
        command.args(&target[1..]);
        let child = TokioChildProcess::new(command).expect("the server starts");
        service.serve_with_lifecycle(child, mode).await
    } else {
        let http = StreamableHttpClientTransport::from_uri(target[0]);
        service.serve_with_lifecycle(http, mode).await
    };
    let running = running.expect("the server agrees");
    let version = running
        .peer_info()
        .map(|info| info.protocol_version.to_string());
    let host = Host {
        is_modern: version.is_some_and(|version| version.as_str() >= "2026"),
        application,
        running,
    };
    host.play(is_whole, transport == "http").await;
    let _ = timeout(PATIENCE, host.running.cancel()).await;
}

type Outcome = Result<Value, String>;

impl Host {
    async fn play(&self, is_whole: bool, is_http: bool) {
        let scenarios = crate::json_file("scenarios.json");
        for scenario in scenarios.as_array().expect("scenarios are a list") {
            let is_large = scenario["whole"] == true;
            if is_large && !is_whole {
                continue;
            }
            self.application
                .heard
                .lock()
                .expect("nobody panics with it")
                .clear();
            let marked = self
                .call("mark", json!({"scenario": scenario["name"]}), &Value::Null)
                .await;
            marked.expect("the connection is there");
            let limit = STEP_LIMIT * if is_large { 10 } else { 1 };
            let (mut outcomes, mut has_failed) = (Vec::new(), false);
            for step in scenario["steps"].as_array().into_iter().flatten() {
                let outcome = timeout(limit, self.step(step, has_failed)).await;
                let outcome = outcome.unwrap_or_else(|_| Err("it hangs".to_owned()));
                has_failed |= outcome
                    .as_ref()
                    .map_or(true, |value| value["isError"] == true);
                outcomes.push(shortened(outcome.unwrap_or_else(Value::String)));
            }
            if is_http {
                // Messages on other streams may arrive after the reply.
                sleep(Duration::from_millis(150)).await;
            }
            println!(
                "{}",
                json!({"scenario": scenario["name"], "outcomes": outcomes})
            );
        }
        let _ = self
            .call("mark", json!({"scenario": "end"}), &Value::Null)
            .await;
    }

    async fn step(&self, step: &Value, has_failed: bool) -> Outcome {
        if let Some(method) = step["expect"].as_str() {
            // Nothing is to come if a step has failed, and a modern host hears of nothing that it did not listen for.
            let patience = if has_failed || self.is_modern {
                MOMENT
            } else {
                PATIENCE
            };
            let count = step["count"].as_u64().unwrap_or(1) as usize;
            return Ok(self.expect(method, count, patience).await);
        }
        if step["listen"].is_object() {
            return self.listen(step).await;
        }
        if step["task"].is_string() {
            return Ok(json!("not of this library"));
        }
        let tool = step["call"].as_str();
        if let (Some(tool), Some(number)) = (tool, step["parallel"].as_u64()) {
            let mut calls = tokio::task::JoinSet::new();
            for number in 0..number {
                let (peer, request) = (
                    self.running.peer().clone(),
                    request_of(tool, &json!({"number": number}), &Value::Null),
                );
                calls.spawn(async move {
                    peer.send_request(request?)
                        .await
                        .map_err(|error| error.to_string())
                });
            }
            calls.join_all().await;
            return Ok(json!("all answered"));
        }
        match tool {
            Some(tool) if step["cancel"].is_string() => self.cancel(tool, step).await,
            Some(tool) if step["fill"].is_u64() => {
                let text = "x".repeat(step["fill"].as_u64().unwrap_or_default() as usize);
                self.call(tool, json!({"text": text}), &Value::Null).await
            }
            Some(tool) => {
                self.call(tool, step["arguments"].clone(), &step["meta"])
                    .await
            }
            _ if step["request"].is_string() => {
                let request: ClientRequest = typed(&message(&step["request"], &step["params"]))?;
                let reply = self.running.peer().send_request(request).await;
                Ok(json!(reply.map_err(|error| error.to_string())?))
            }
            _ => {
                let notification: ClientNotification =
                    typed(&message(&step["notify"], &step["params"]))?;
                let sent = self.running.peer().send_notification(notification).await;
                sent.map(|()| Value::Null)
                    .map_err(|error| error.to_string())
            }
        }
    }

    async fn expect(&self, method: &str, count: usize, patience: Duration) -> Value {
        let end = Instant::now() + patience;
        while self.application.count(method) < count && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
        let heard = self.application.count(method).min(count);
        json!(format!("{heard} of {count} {method}"))
    }

    /// Calls a tool, and answers what a modern server wants to know first.
    async fn call(&self, tool: &str, arguments: Value, meta: &Value) -> Outcome {
        let params = typed(&params_of(tool, &arguments, meta))?;
        let result = self.running.call_tool(params).await;
        Ok(json!(result.map_err(|error| error.to_string())?))
    }

    async fn cancel(&self, tool: &str, step: &Value) -> Outcome {
        let request = request_of(tool, &step["arguments"], &Value::Null)?;
        let options = PeerRequestOptions::no_options();
        let sent = self
            .running
            .peer()
            .send_cancellable_request(request, options)
            .await;
        let handle = sent.map_err(|error| error.to_string())?;
        self.expect("notifications/progress", 1, PATIENCE).await;
        let reason = step["cancel"].as_str().map(str::to_owned);
        let cancelled = handle.cancel(reason).await;
        sleep(Duration::from_millis(500)).await;
        cancelled
            .map(|()| Value::Null)
            .map_err(|error| error.to_string())
    }

    async fn listen(&self, step: &Value) -> Outcome {
        if !self.is_modern {
            return Ok(json!("not of this era"));
        }
        let filter: SubscriptionFilter = typed(&step["listen"])?;
        let opened = self.running.peer().listen(filter).await;
        let mut subscription = opened.map_err(|error| error.to_string())?;
        for inner in step["steps"].as_array().into_iter().flatten() {
            self.call(
                inner["call"].as_str().unwrap_or_default(),
                json!({}),
                &Value::Null,
            )
            .await?;
        }
        let mut heard = Vec::new();
        while let Ok(Ok(Some(notification))) = timeout(PATIENCE, subscription.next()).await {
            heard.push(json!(notification)["method"].to_string());
            if heard.len() == 4 {
                break;
            }
        }
        let _ = subscription.cancel().await;
        heard.sort();
        Ok(json!(heard))
    }
}

fn params_of(tool: &str, arguments: &Value, meta: &Value) -> Value {
    let mut params = json!({"name": tool});
    if !arguments.is_null() {
        params["arguments"] = arguments.clone();
    }
    if !meta.is_null() {
        params["_meta"] = meta.clone();
    }
    params
}

fn request_of(tool: &str, arguments: &Value, meta: &Value) -> Result<ClientRequest, String> {
    typed(&message(
        &json!("tools/call"),
        &params_of(tool, arguments, meta),
    ))
}

fn message(method: &Value, params: &Value) -> Value {
    let mut message = json!({"method": method});
    if !params.is_null() {
        message["params"] = params.clone();
    }
    message
}

/// The library's own type of what stands in JSON.
fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone())
        .map_err(|error| format!("this library cannot say it: {error}"))
}

fn shortened(value: Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > 300 => {
            json!(format!("{} characters", text.chars().count()))
        }
        Value::Array(values) => values.into_iter().map(shortened).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, each)| (name, shortened(each)))
            .collect(),
        other => other,
    }
}
