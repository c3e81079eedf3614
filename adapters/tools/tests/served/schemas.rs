//! The schemas that are listed.

use everlink_tools::types::{Icon, Tool, ToolAnnotations};
use everlink_tools::{JsonSchema, Tools};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{call, run, serve};

#[derive(Deserialize, Serialize, JsonSchema)]
struct Point {
    /// To the right
    x: i32,
    #[serde(default)]
    y: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Line {
    from: Point,
    to: Point,
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Shape {
    Circle { radius: f64 },
    Dot(Point),
}

async fn listed(tools: &Tools) -> Value {
    let list = call(&serve(tools).await, "tools/list", json!({})).await;
    list["tools"][0].clone()
}

#[test]
fn schema_of_arguments_has_no_references_and_keeps_descriptions_and_extensions() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("draw", "Draws", async |_: Line, _| Ok(()));
        let tool = listed(&tools).await;
        let point = json!({
            "type": "object",
            "properties": {
                "x": {"type": "integer", "format": "int32", "description": "To the right"},
                "y": {"type": ["number", "null"], "format": "double", "default": null},
            },
            "required": ["x"],
        });
        let expected = json!({
            "type": "object",
            "properties": {"from": point, "to": point, "region": {"type": "string", "x-mcp-header": "Region"}},
            "required": ["from", "to", "region"],
        });
        assert_eq!(tool["inputSchema"], expected);
        assert_eq!(tool.get("outputSchema"), None);
    });
}

#[test]
fn enum_with_data_is_an_object_in_both_schemas() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("same", "", async |shape: Shape, _| Ok(shape));
        let tool = listed(&tools).await;
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(schema["type"], "object");
            assert_eq!(
                schema["oneOf"].as_array().map(Vec::len),
                Some(2),
                "{schema}"
            );
        }
    });
}

#[test]
fn schema_of_a_result_says_what_is_written() {
    #[derive(Serialize, JsonSchema)]
    struct Written {
        #[serde(skip_serializing_if = "Option::is_none")]
        maybe: Option<u8>,
        always: Option<u8>,
    }
    run(async {
        let tools = Tools::new("tests", "1.0").tool("write", "", async |(): (), _| {
            Ok(Written {
                maybe: None,
                always: None,
            })
        });
        assert_eq!(
            listed(&tools).await["outputSchema"]["required"],
            json!(["always"])
        );
    });
}

#[test]
fn description_of_a_tool_is_listed_as_given() {
    run(async {
        let tool = Tool::new("look")
            .with_title("Look around")
            .with_annotations(ToolAnnotations::read_only().with_idempotent(true))
            .with_icons(vec![Icon::new("https://example.com/eye.png")]);
        let tools = Tools::new("tests", "1.0").tool_as(tool, async |(): (), _| Ok("nothing"));
        let tool = listed(&tools).await;
        assert_eq!(tool["title"], "Look around");
        assert_eq!(
            tool["annotations"],
            json!({"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false})
        );
        assert_eq!(tool["icons"][0]["src"], "https://example.com/eye.png");
        assert_eq!(
            tool["inputSchema"],
            json!({"type": "object", "additionalProperties": false})
        );
    });
}
