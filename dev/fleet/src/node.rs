//! One node: a server with a few tools, whose sessions are in Redis.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature, code};
use everlink::server::{Config, Http, Offer, Request};
use everlink::{Change, ErrorObject, List, Payload};
use everlink_redis::{RedisStore, secret_from};
use everlink_tokio::Context;
use everlink_tokio::http::{self, Health, ServerTransport, Store as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// The arguments of a node: the address, the URL of Redis or `none`, and the file that lists the calls that ran.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let [address, redis, ran] = words else {
        return Err("usage: fleet node ADDRESS REDIS|none FILE".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(address, redis, ran.clone()))
}

async fn serve(address: &str, redis: &str, ran: String) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with(ServerFeature::Logging);
    let offer = Offer::new("fleet", "1").with_capabilities(capabilities);
    let mut config = Config::new(offer, secret_from("the key of the tests"));
    config.limits.sessions = 100_000;
    config.limits.exchanges = 200_000;
    config.limits.requests = 10_000;
    let mut terminate = signal(SignalKind::terminate())?;
    let handler = move |request, context| answer(request, context, ran.clone());
    let health = Health::new();
    let service = if redis == "none" {
        let (endpoint, transport) = ServerTransport::new();
        let endpoint = endpoint
            .with_health(health.clone())
            .with_connections(60_000);
        config = config.with_http(Http::new());
        http::serve_at(listener, config, (endpoint, transport), None, handler)
    } else {
        let store = RedisStore::new(redis)?;
        config = config.with_http(Http::new().with_storage(store.storage()));
        let health = health.clone().with_store(store.health());
        let (endpoint, transport, port) = ServerTransport::with_store();
        let endpoint = endpoint.with_health(health).with_connections(60_000);
        let store = tokio::spawn(store.run(port));
        http::serve_at(
            listener,
            config,
            (endpoint, transport),
            Some(store),
            handler,
        )
    };
    terminate.recv().await;
    health.drain();
    service.shutdown().await?;
    Ok(())
}

async fn answer(request: Request, context: Context, ran: String) -> Result<Payload, ErrorObject> {
    let params: Value = request
        .params
        .and_then(|params| params.parse().ok())
        .unwrap_or_default();
    if request.method != "tools/call" {
        let list = json!({"tools": [{"name": "count", "inputSchema": {"type": "object"}}]});
        return payload(&list);
    }
    let arguments = &params["arguments"];
    let failed =
        |error: &dyn std::fmt::Display| ErrorObject::new(code::INTERNAL_ERROR, error.to_string());
    let text = match params["name"].as_str().unwrap_or_default() {
        "echo" => arguments["text"].to_string(),
        // Logs the numbers from 1 on, with a pause after each.
        "count" => {
            note(&ran, &arguments["tag"]).map_err(|error| failed(&error))?;
            let (most, pause) = (arguments["n"].as_u64(), arguments["ms"].as_u64());
            for n in 1..=most.unwrap_or(1) {
                context.log(LogLevel::Info, None, payload(&json!({"n": n}))?);
                tokio::time::sleep(Duration::from_millis(pause.unwrap_or(0))).await;
            }
            "counted".to_owned()
        }
        "ask" => match context.ask("roots/list", None).await {
            Ok(answer) => answer.as_str().to_owned(),
            Err(error) => return Err(failed(&format!("{error:?}"))),
        },
        "publish" => {
            let told = context.service().publish(Change::List(List::Tools)).await;
            format!("{told:?}")
        }
        other => return Err(ErrorObject::new(code::INVALID_PARAMS, other)),
    };
    payload(&json!({"content": [{"type": "text", "text": text}], "pid": std::process::id()}))
}

fn payload(value: &Value) -> Result<Payload, ErrorObject> {
    Payload::of(value).map_err(|error| ErrorObject::new(code::INTERNAL_ERROR, error.to_string()))
}

/// Notes that a call ran.
fn note(file: &str, tag: &Value) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    // One write, so that lines of several nodes do not mix.
    file.write_all(format!("{tag}\n").as_bytes())
}
