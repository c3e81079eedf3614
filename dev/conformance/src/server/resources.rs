//! The resources.

use everlink_tools::Tools;
use everlink_tools::types::{Resource, ResourceContents, ResourceTemplate};
use serde::Deserialize;
use serde_json::json;

use super::media::PICTURE;

/// The resource that can change.
pub(super) const WATCHED: &str = "test://watched-resource";

#[derive(Deserialize)]
struct Item {
    id: String,
}

pub(super) fn add_to(tools: Tools) -> Tools {
    let text = Resource::new("test://static-text", "static-text").with_mime_type("text/plain");
    let picture =
        Resource::new("test://static-binary", "static-binary").with_mime_type("image/png");
    let watched = Resource::new(WATCHED, "watched-resource").with_mime_type("text/plain");
    let items = ResourceTemplate::new("test://template/{id}/data", "template");
    tools
        .with_resource_updates()
        .resource_as(text, async |_| Ok("This is the text of a resource."))
        .resource_as(picture, async |_| Ok(ResourceContents::blob("", PICTURE)))
        .resource_as(watched, async |_| Ok("A client can watch this resource."))
        .template_as(
            items.with_mime_type("application/json"),
            async |Item { id }, _| {
                Ok(
                    json!({"id": id, "templateTest": true, "data": format!("Data of {id}")})
                        .to_string(),
                )
            },
        )
}
