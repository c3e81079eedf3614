//! The host: runs the scenarios in order, like `tests/transparency/host.py`.

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

/// The timeout for an expected notification.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout where no notification is expected.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
/// The limit for one step; scenarios with large messages get ten times as much.
const STEP_LIMIT: Duration = Duration::from_secs(8);

/// The host application: answers questions and counts notifications.
#[derive(Clone, Default)]
struct Application {
    received: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Application {
    fn record(&self, notification: &ServerNotification) {
        let method = serde_json::to_value(notification).unwrap_or_default()["method"].take();
        let mut received = self.received.lock().expect("the lock is not poisoned");
        *received
            .entry(method.as_str().unwrap_or_default().to_owned())
            .or_default() += 1;
    }

    fn count(&self, method: &str) -> usize {
        let received = self.received.lock().expect("the lock is not poisoned");
        received.get(method).copied().unwrap_or_default()
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
        self.record(&notification);
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

pub(crate) async fn run(is_full_run: bool, era: &str, transport: &str, target: &[&str]) {
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
    host.run_scenarios(is_full_run, transport == "http").await;
    let _ = timeout(NOTIFICATION_TIMEOUT, host.running.cancel()).await;
}

type Outcome = Result<Value, String>;

impl Host {
    async fn run_scenarios(&self, is_full_run: bool, is_http: bool) {
        let scenarios = crate::json_file("scenarios.json");
        for scenario in scenarios.as_array().expect("scenarios are a list") {
            let is_large = scenario["whole"] == true;
            if is_large && !is_full_run {
                continue;
            }
            self.application
                .received
                .lock()
                .expect("the lock is not poisoned")
                .clear();
            let mark_result = self
                .call("mark", json!({"scenario": scenario["name"]}), &Value::Null)
                .await;
            mark_result.expect("the connection is there");
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
            // After a failed step, nothing more comes. A modern host receives only what it listens for.
            let wait = if has_failed || self.is_modern {
                SHORT_TIMEOUT
            } else {
                NOTIFICATION_TIMEOUT
            };
            let count = step["count"].as_u64().unwrap_or(1) as usize;
            return Ok(self.expect(method, count, wait).await);
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
                let request: ClientRequest =
                    to_library_type(&message(&step["request"], &step["params"]))?;
                let reply = self.running.peer().send_request(request).await;
                Ok(json!(reply.map_err(|error| error.to_string())?))
            }
            _ => {
                let notification: ClientNotification =
                    to_library_type(&message(&step["notify"], &step["params"]))?;
                let sent = self.running.peer().send_notification(notification).await;
                sent.map(|()| Value::Null)
                    .map_err(|error| error.to_string())
            }
        }
    }

    async fn expect(&self, method: &str, count: usize, wait: Duration) -> Value {
        let end = Instant::now() + wait;
        while self.application.count(method) < count && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
        let received = self.application.count(method).min(count);
        json!(format!("{received} of {count} {method}"))
    }

    /// Calls a tool, and answers the questions of a modern server first.
    async fn call(&self, tool: &str, arguments: Value, meta: &Value) -> Outcome {
        let params = to_library_type(&params_of(tool, &arguments, meta))?;
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
        self.expect("notifications/progress", 1, NOTIFICATION_TIMEOUT)
            .await;
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
        let filter: SubscriptionFilter = to_library_type(&step["listen"])?;
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
        let mut received = Vec::new();
        while let Ok(Ok(Some(notification))) =
            timeout(NOTIFICATION_TIMEOUT, subscription.next()).await
        {
            received.push(json!(notification)["method"].to_string());
            if received.len() == 4 {
                break;
            }
        }
        let _ = subscription.cancel().await;
        received.sort();
        Ok(json!(received))
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
    to_library_type(&message(
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

/// Converts JSON to a type of the library.
fn to_library_type<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
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
