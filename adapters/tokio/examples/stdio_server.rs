//! A server with one tool, on its standard streams: `cargo run -p everlink-tokio --example stdio_server`

use std::error::Error;
use std::time::Duration;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Progress, Request};
use everlink::{ErrorObject, Payload};
use everlink_tokio::{Context, secret, stdio};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("nap", "1.0").with_capabilities(tools);
    let service = stdio::serve(Config::new(offer, secret()), answer)?;
    service.closed().await?;
    Ok(())
}

async fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref().map(Payload::parse::<Value>);
    let params = params.and_then(Result::ok).unwrap_or_default();
    let result = match &*request.method {
        "tools/list" => json!({"tools": [{
            "name": "nap",
            "description": "Sleeps for so many seconds",
            "inputSchema": {"type": "object", "properties": {"seconds": {"type": "integer"}}},
        }]}),
        "tools/call" if params["name"] == "nap" => {
            let seconds = params["arguments"]["seconds"].as_u64().unwrap_or(1);
            for second in 1..=seconds {
                tokio::time::sleep(Duration::from_secs(1)).await;
                context.progress(Progress::new(second as f64).of(seconds as f64));
            }
            json!({"content": [{"type": "text", "text": format!("slept for {seconds} s")}]})
        }
        method => {
            let text = format!("{method} is not served here");
            return Err(ErrorObject::new(code::METHOD_NOT_FOUND, text));
        }
    };
    Payload::of(&result).map_err(|why| ErrorObject::new(code::INTERNAL_ERROR, why.to_string()))
}
