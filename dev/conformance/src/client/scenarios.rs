//! The steps of a client in each scenario. Must not depend on what the suite checks.

use std::sync::Arc;

use everlink::Payload;
use everlink::client::Listing;
use everlink_tokio::Link;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Failure;

/// Runs the steps of this scenario.
pub(super) async fn run_scenario(
    scenario: &str,
    link: &Link,
    context: Option<&Payload>,
) -> Result<(), Failure> {
    match scenario {
        "initialize" | "request-metadata" => {
            link.ready().await?;
            Ok(())
        }
        "json-schema-ref-no-deref" => {
            link.list_tools().await?;
            Ok(())
        }
        "tools_call" => add_numbers(link).await,
        "elicitation-sep1034-client-defaults" | "http-invalid-tool-headers" | "sse-retry" => {
            call_all(link).await
        }
        "http-standard-headers" => use_all(link).await,
        "http-custom-headers" => call_from_context(link, context).await,
        "json-schema-2020-12-preservation" => echo_schema(link).await,
        "sep-2322-client-request-state" => call_all_concurrently(link).await,
        _ if scenario.starts_with("auth/") => {
            link.ready().await?;
            link.list_tools().await?;
            link.call_tool("test-tool", json!({})).await?;
            Ok(())
        }
        _ => Err("there is no such scenario here".into()),
    }
}

/// Calls the tool that adds two numbers.
async fn add_numbers(link: &Link) -> Result<(), Failure> {
    let tools = link.list_tools().await?;
    let tool = find_tool(&tools, "add_numbers")?;
    let result = link
        .call_tool(&tool.name, json!({ "a": 2, "b": 3 }))
        .await?;
    let text = result.text();
    if !text.ends_with('5') {
        return Err(format!("2 and 3 are said to be this: {text}").into());
    }
    Ok(())
}

/// Calls every tool, one after the other.
async fn call_all(link: &Link) -> Result<(), Failure> {
    for tool in &link.list_tools().await?.items {
        let tool: Tool = tool.parse()?;
        link.call_tool(&tool.name, tool.arguments()).await?;
    }
    Ok(())
}

/// Calls every tool, reads every resource and gets every prompt, one after the other.
async fn use_all(link: &Link) -> Result<(), Failure> {
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

/// Makes the calls that the context of the scenario lists.
async fn call_from_context(link: &Link, context: Option<&Payload>) -> Result<(), Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CallList {
        tool_calls: Vec<Call>,
    }
    #[derive(Deserialize)]
    struct Call {
        name: String,
        arguments: Payload,
    }
    let context = context.ok_or("the scenario says not which calls to make")?;
    // The link learns the header fields of tools from their list.
    link.list_tools().await?;
    for call in context.parse::<CallList>()?.tool_calls {
        link.call_tool(&call.name, &call.arguments).await?;
    }
    Ok(())
}

/// Sends the schema of one tool to another one, unchanged.
async fn echo_schema(link: &Link) -> Result<(), Failure> {
    let tools = link.list_tools().await?;
    let tool = find_tool(&tools, "json_schema_2020_12_tool")?;
    let arguments = json!({ "schema": tool.input_schema });
    link.call_tool("json_schema_echo", arguments).await?;
    Ok(())
}

/// Calls every tool at the same time. Some of them ask questions, each in its own rounds.
async fn call_all_concurrently(link: &Link) -> Result<(), Failure> {
    let mut calls = Vec::new();
    for tool in &link.list_tools().await?.items {
        let tool: Tool = tool.parse()?;
        calls.push(link.call_tool(&tool.name, tool.arguments()).start());
    }
    for call in calls {
        call.await?;
    }
    Ok(())
}

/// The members of a tool that a caller needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    input_schema: Payload,
}

impl Tool {
    /// Arguments with a value for each property of the schema.
    fn arguments(&self) -> Map<String, Value> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Schema {
            properties: Map<String, Value>,
        }
        let schema: Schema = self.input_schema.parse().unwrap_or_default();
        let arguments = schema.properties.into_iter().map(|(name, property)| {
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
        arguments.collect()
    }
}

fn find_tool(tools: &Arc<Listing>, name: &str) -> Result<Tool, Failure> {
    let tools = tools.items.iter().flat_map(Payload::parse::<Tool>);
    let tool = tools.into_iter().find(|tool| tool.name == name);
    tool.ok_or_else(|| format!("there is no tool `{name}`").into())
}
