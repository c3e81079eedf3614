//! What a client does in each scenario, step by step. Knows not what is judged.

use std::sync::Arc;

use everlink::Payload;
use everlink::client::Listing;
use everlink_tokio::Link;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Failed;

/// Does what this scenario asks for.
pub(super) async fn play(
    scenario: &str,
    link: &Link,
    context: Option<&Payload>,
) -> Result<(), Failed> {
    match scenario {
        "initialize" | "request-metadata" => {
            link.ready().await??;
            Ok(())
        }
        "json-schema-ref-no-deref" => {
            link.list_tools().await?;
            Ok(())
        }
        "tools_call" => add(link).await,
        "elicitation-sep1034-client-defaults" | "http-invalid-tool-headers" | "sse-retry" => {
            call_all(link).await
        }
        "http-standard-headers" => use_all(link).await,
        "http-custom-headers" => call_as_told(link, context).await,
        "json-schema-2020-12-preservation" => echo_schema(link).await,
        "sep-2322-client-request-state" => call_at_once(link).await,
        _ => Err("there is no such scenario here".into()),
    }
}

/// Has two numbers added.
async fn add(link: &Link) -> Result<(), Failed> {
    let tools = link.list_tools().await?;
    let tool = named(&tools, "add_numbers")?;
    let sum = link
        .call_tool(&tool.name, json!({ "a": 2, "b": 3 }))
        .await?;
    let text = sum.text();
    if !text.ends_with('5') {
        return Err(format!("2 and 3 are said to be this: {text}").into());
    }
    Ok(())
}

/// Calls every tool that there is, one after the other.
async fn call_all(link: &Link) -> Result<(), Failed> {
    for tool in &link.list_tools().await?.items {
        let tool: Tool = tool.parse()?;
        link.call_tool(&tool.name, tool.arguments()).await?;
    }
    Ok(())
}

/// Uses everything that there is, one after the other.
async fn use_all(link: &Link) -> Result<(), Failed> {
    #[derive(Deserialize)]
    struct Resource {
        uri: String,
    }
    #[derive(Deserialize)]
    struct Prompt {
        name: String,
    }
    call_all(link).await?;
    for resource in &link.list_resources().await?.items {
        let resource: Resource = resource.parse()?;
        link.read_resource(&resource.uri).await?;
    }
    for prompt in &link.list_prompts().await?.items {
        let prompt: Prompt = prompt.parse()?;
        link.get_prompt(&prompt.name, json!({})).await?;
    }
    Ok(())
}

/// Makes the calls that the scenario spells out.
async fn call_as_told(link: &Link, context: Option<&Payload>) -> Result<(), Failed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        tool_calls: Vec<Call>,
    }
    #[derive(Deserialize)]
    struct Call {
        name: String,
        arguments: Payload,
    }
    let context = context.ok_or("the scenario says not which calls to make")?;
    // What the link knows of the tools is what they were listed with.
    link.list_tools().await?;
    for call in context.parse::<Told>()?.tool_calls {
        link.call_tool(&call.name, &call.arguments).await?;
    }
    Ok(())
}

/// Sends the schema of one tool to the other, as it came.
async fn echo_schema(link: &Link) -> Result<(), Failed> {
    let tools = link.list_tools().await?;
    let tool = named(&tools, "json_schema_2020_12_tool")?;
    let arguments = json!({ "schema": tool.input_schema });
    link.call_tool("json_schema_echo", arguments).await?;
    Ok(())
}

/// Calls every tool that there is, all at once. Some of them ask something back, each in its own rounds.
async fn call_at_once(link: &Link) -> Result<(), Failed> {
    let mut calls = Vec::new();
    for tool in &link.list_tools().await?.items {
        let tool: Tool = tool.parse()?;
        calls.push(link.call_tool(&tool.name, tool.arguments()));
    }
    for call in calls {
        call.await?;
    }
    Ok(())
}

/// What of a tool matters to somebody who calls it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    input_schema: Payload,
}

impl Tool {
    /// Something to call it with.
    fn arguments(&self) -> Map<String, Value> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Schema {
            properties: Map<String, Value>,
        }
        let schema: Schema = self.input_schema.parse().unwrap_or_default();
        let made = schema.properties.into_iter().map(|(name, property)| {
            let value = match property["type"].as_str() {
                Some("array") => json!([]),
                Some("boolean") => json!(true),
                Some("integer" | "number") => json!(1),
                Some("null") => Value::Null,
                Some("object") => json!({}),
                _ => json!("something"),
            };
            (name, value)
        });
        made.collect()
    }
}

fn named(tools: &Arc<Listing>, name: &str) -> Result<Tool, Failed> {
    let tools = tools.items.iter().flat_map(Payload::parse::<Tool>);
    let tool = tools.into_iter().find(|tool| tool.name == name);
    tool.ok_or_else(|| format!("there is no tool `{name}`").into())
}
