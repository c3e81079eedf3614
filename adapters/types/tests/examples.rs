//! Reads every example of the specification (2026-07-28) with its model, and compares the JSON that the model writes with the original.
//!
//! `examples/` has a directory for each type of the specification. A new directory needs a model here, or a reason why it has none.

use std::fs;
use std::path::{Path, PathBuf};

use everlink_types::{
    CallToolParams, CallToolResult, CancelledParams, CompleteParams, CompleteResult, Content,
    CreateMessageParams, CreateMessageResult, ElicitParams, ElicitResult, Field, GetPromptParams,
    GetPromptResult, InputRequest, InputRequiredResult, InputResponse, ListParams,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListRootsResult,
    ListToolsResult, LogParams, ModelPreferences, ProgressParams, ReadResourceParams,
    ReadResourceResult, Resource, ResourceContents, ResourceUpdatedParams, Root, SamplingMessage,
    Tool,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How the examples of a directory are read.
enum Reading {
    /// The whole example with a model, which reads and writes it.
    Model(RoundTrip),
    /// One member of a JSON-RPC message, with a model.
    Member(&'static str, RoundTrip),
    /// Not at all, for this reason.
    NoModel(&'static str),
}

type RoundTrip = fn(&Value) -> Result<Value, serde_json::Error>;

fn model<T: DeserializeOwned + Serialize>(example: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(example)?)
}

/// A content block whose type is known.
fn known_content(example: &Value) -> Result<Value, serde_json::Error> {
    let content = Content::deserialize(example)?;
    assert!(!matches!(content, Content::Other(_)), "its type is known");
    serde_json::to_value(content)
}

/// A map whose keys a program chooses.
type ByKey<T> = std::collections::BTreeMap<String, T>;

const CORE: &str = "the core reads it: see `everlink::protocol` and `everlink::server`";
const ENVELOPE: &str = "it is a JSON-RPC message without content of its own";

fn reading(directory: &str) -> Option<Reading> {
    use Reading::{Member, Model};
    Some(match directory {
        "AudioContent" | "EmbeddedResource" | "ImageContent" | "ResourceLink" | "TextContent"
        | "ToolResultContent" | "ToolUseContent" => Model(known_content),
        "BlobResourceContents" | "TextResourceContents" => Model(model::<ResourceContents>),
        "BooleanSchema"
        | "NumberSchema"
        | "StringSchema"
        | "TitledMultiSelectEnumSchema"
        | "TitledSingleSelectEnumSchema"
        | "UntitledMultiSelectEnumSchema"
        | "UntitledSingleSelectEnumSchema" => Model(model::<Field>),
        "CallToolRequest" => Member("params", model::<CallToolParams>),
        "CallToolRequestParams" => Model(model::<CallToolParams>),
        "CallToolResult" => Model(model::<CallToolResult>),
        "CallToolResultResponse" => Member("result", model::<CallToolResult>),
        "CancelledNotification" => Member("params", model::<CancelledParams>),
        "CancelledNotificationParams" => Model(model::<CancelledParams>),
        "CompleteRequest" => Member("params", model::<CompleteParams>),
        "CompleteRequestParams" => Model(model::<CompleteParams>),
        "CompleteResult" => Model(model::<CompleteResult>),
        "CompleteResultResponse" => Member("result", model::<CompleteResult>),
        "CreateMessageRequest" | "ElicitRequest" => Model(model::<InputRequest>),
        "CreateMessageRequestParams" => Model(model::<CreateMessageParams>),
        "CreateMessageResult" => Model(model::<CreateMessageResult>),
        "ElicitRequestFormParams" | "ElicitRequestURLParams" => Model(model::<ElicitParams>),
        "ElicitResult" => Model(model::<ElicitResult>),
        "GetPromptRequest" => Member("params", model::<GetPromptParams>),
        "GetPromptRequestParams" => Model(model::<GetPromptParams>),
        "GetPromptResult" => Model(model::<GetPromptResult>),
        "GetPromptResultResponse" => Member("result", model::<GetPromptResult>),
        "InputRequests" => Model(model::<ByKey<InputRequest>>),
        "InputRequiredResult" => Model(model::<InputRequiredResult>),
        "InputResponses" => Model(model::<ByKey<InputResponse>>),
        "ListPromptsRequest"
        | "ListResourceTemplatesRequest"
        | "ListResourcesRequest"
        | "ListToolsRequest" => Member("params", model::<ListParams>),
        "ListPromptsResult" => Model(model::<ListPromptsResult>),
        "ListPromptsResultResponse" => Member("result", model::<ListPromptsResult>),
        "ListResourceTemplatesResult" => Model(model::<ListResourceTemplatesResult>),
        "ListResourceTemplatesResultResponse" => {
            Member("result", model::<ListResourceTemplatesResult>)
        }
        "ListResourcesResult" => Model(model::<ListResourcesResult>),
        "ListResourcesResultResponse" => Member("result", model::<ListResourcesResult>),
        "ListRootsResult" => Model(model::<ListRootsResult>),
        "ListToolsResult" => Model(model::<ListToolsResult>),
        "ListToolsResultResponse" => Member("result", model::<ListToolsResult>),
        "LoggingMessageNotification" => Member("params", model::<LogParams>),
        "LoggingMessageNotificationParams" => Model(model::<LogParams>),
        "ModelPreferences" => Model(model::<ModelPreferences>),
        "PaginatedRequestParams" => Model(model::<ListParams>),
        "ProgressNotification" => Member("params", model::<ProgressParams>),
        "ProgressNotificationParams" => Model(model::<ProgressParams>),
        "ReadResourceRequest" => Member("params", model::<ReadResourceParams>),
        "ReadResourceResult" => Model(model::<ReadResourceResult>),
        "ReadResourceResultResponse" => Member("result", model::<ReadResourceResult>),
        "Resource" => Model(model::<Resource>),
        "ResourceUpdatedNotification" => Member("params", model::<ResourceUpdatedParams>),
        "ResourceUpdatedNotificationParams" => Model(model::<ResourceUpdatedParams>),
        "Root" => Model(model::<Root>),
        "SamplingMessage" => Model(model::<SamplingMessage>),
        "Tool" => Model(model::<Tool>),
        _ => Reading::NoModel(no_model(directory)?),
    })
}

/// Why the examples of a directory have no model.
fn no_model(directory: &str) -> Option<&'static str> {
    Some(match directory {
        "ClientCapabilities"
        | "DiscoverRequest"
        | "DiscoverResult"
        | "DiscoverResultResponse"
        | "HeaderMismatchError"
        | "InternalError"
        | "InvalidParamsError"
        | "MethodNotFoundError"
        | "MissingRequiredClientCapabilityError"
        | "ParseError"
        | "ServerCapabilities"
        | "SubscriptionsAcknowledgedNotification"
        | "SubscriptionsListenRequest"
        | "SubscriptionsListenResult"
        | "SubscriptionsListenResultResponse"
        | "UnsupportedProtocolVersionError" => CORE,
        "ListRootsRequest"
        | "PromptListChangedNotification"
        | "ResourceListChangedNotification"
        | "ToolListChangedNotification" => ENVELOPE,
        _ => return None,
    })
}

#[test]
fn every_example_of_the_specification_survives_a_round_trip() {
    let (mut read, mut problems) = (0, Vec::new());
    for directory in entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples")) {
        let name = file_name(&directory);
        let Some(reading) = reading(&name) else {
            problems.push(format!("{name}: no model, and no reason why"));
            continue;
        };
        for file in entries(&directory) {
            let text = fs::read_to_string(&file).expect("the example is a text");
            let example: Value = serde_json::from_str(&text).expect("the example is JSON");
            let (example, round_trip) = match &reading {
                Reading::Model(round_trip) => (&example, round_trip),
                Reading::Member(member, round_trip) => (&example[*member], round_trip),
                Reading::NoModel(reason) => {
                    assert!(!reason.is_empty(), "{name} has a reason");
                    continue;
                }
            };
            read += 1;
            let file = file_name(&file);
            match round_trip(example) {
                Ok(written) if written == *example => {}
                Ok(written) => problems.push(format!("{name}/{file}: written as {written}")),
                Err(error) => problems.push(format!("{name}/{file}: {error}")),
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(read >= 90, "only {read} examples were read");
}

#[test]
fn unknown_members_survive_a_round_trip_of_every_model() {
    for directory in entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples")) {
        let name = file_name(&directory);
        let Some(Reading::Model(round_trip)) = reading(&name) else {
            continue;
        };
        if [
            "InputRequests",
            "InputResponses",
            "CreateMessageRequest",
            "ElicitRequest",
        ]
        .contains(&&*name)
        {
            continue; // The keys of these maps have other meanings.
        }
        for file in entries(&directory) {
            let text = fs::read_to_string(&file).expect("the example is a text");
            let mut example: Value = serde_json::from_str(&text).expect("the example is JSON");
            example["x-unknown"] = serde_json::json!({"deep": [1, 2.5, null]});
            let written = round_trip(&example).expect("unknown members are no error");
            assert_eq!(written, example, "{name}/{}", file_name(&file));
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory exists");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("it is readable").path())
        .collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().expect("it has a name");
    name.to_string_lossy().into_owned()
}
