//! A server with one tool, on its standard streams: `cargo run -p everlink-stdio --example echo`

use std::error::Error;

use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{Config, Offer, Progress, Request};
use everlink::{ErrorObject, Payload};
use everlink_stdio::{Context, secret, serve};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("echo", "1.0").with_capabilities(tools);
    let service = serve(Config::new(offer, secret()), answer)?;
    service.closed().wait()?;
    Ok(())
}

fn answer(request: Request, context: Context) -> Result<Payload, ErrorObject> {
    let params = request.params.as_ref().map(Payload::parse::<Value>);
    let params = params.and_then(Result::ok).unwrap_or_default();
    let result = match &*request.method {
        "tools/list" => json!({"tools": [{
            "name": "echo",
            "description": "Says what it was told",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        }]}),
        "tools/call" if params["name"] == "echo" => {
            context.progress(Progress::new(1.0).of(1.0));
            println!("this goes to standard error, and harms nobody");
            let text = &params["arguments"]["text"];
            json!({"content": [{"type": "text", "text": text}]})
        }
        "tools/call" => {
            let text = format!("there is no tool {}", params["name"]);
            return Err(ErrorObject::new(code::INVALID_PARAMS, text));
        }
        method => {
            let text = format!("{method} is not served here");
            return Err(ErrorObject::new(code::METHOD_NOT_FOUND, text));
        }
    };
    Payload::of(&result).map_err(|why| ErrorObject::new(code::INTERNAL_ERROR, why.to_string()))
}
