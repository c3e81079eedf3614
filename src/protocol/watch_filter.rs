//! Reads and writes the watch filter of `subscriptions/listen` and of its acknowledgement, for both ends.
//! Does not decide what is granted.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use serde::Deserialize;

use crate::json::Json;
use crate::protocol::watch::Watch;
use crate::wire::encode::Object;

/// The member that holds the filter.
pub(crate) const MEMBER: &str = "notifications";

/// Adds the members of the filter (S-SUB-01). The filter has no member for log levels.
pub(crate) fn write(filter: &mut Object<'_>, watch: &Watch) {
    let lists = [
        ("toolsListChanged", watch.tools),
        ("promptsListChanged", watch.prompts),
        ("resourcesListChanged", watch.resources),
    ];
    for (member, _) in lists.into_iter().filter(|(_, wanted)| *wanted) {
        filter.boolean(member, true);
    }
    if !watch.uris.is_empty() {
        filter.texts("resourceSubscriptions", watch.uris.iter().map(|uri| &**uri));
    }
}

/// Reads the filter in these params. Returns `None` if there is none, or if it cannot be parsed.
pub(crate) fn read(params: Json<'_>) -> Option<Filter> {
    serde_json::from_str::<Params>(params.as_str())
        .ok()
        .map(|params| params.notifications)
}

#[derive(Deserialize)]
struct Params {
    notifications: Filter,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: BTreeSet<Box<str>>,
    /// Present if the client asks for notifications of the tasks extension.
    pub(crate) task_ids: Option<serde::de::IgnoredAny>,
}

impl From<Filter> for Watch {
    fn from(filter: Filter) -> Watch {
        Watch {
            tools: filter.tools_list_changed,
            prompts: filter.prompts_list_changed,
            resources: filter.resources_list_changed,
            uris: filter.resource_subscriptions,
            logs: None,
        }
    }
}
