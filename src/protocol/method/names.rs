//! The names of all methods, so that each is spelled in one place.

/// Suggests values for an argument.
pub const COMPLETION_COMPLETE: &str = "completion/complete";
/// Asks the user.
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// Opens a legacy connection.
pub const INITIALIZE: &str = "initialize";
/// Sets the minimum severity of log messages, in the legacy era.
pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
/// Cancels a request.
pub const NOTIFICATIONS_CANCELLED: &str = "notifications/cancelled";
/// Says that the user finished at a URL.
pub const NOTIFICATIONS_ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
/// Ends the legacy handshake.
pub const NOTIFICATIONS_INITIALIZED: &str = "notifications/initialized";
/// Carries a log message.
pub const NOTIFICATIONS_MESSAGE: &str = "notifications/message";
/// Reports the progress of a request.
pub const NOTIFICATIONS_PROGRESS: &str = "notifications/progress";
/// Says that the prompts changed.
pub const NOTIFICATIONS_PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
/// Says that the resources changed.
pub const NOTIFICATIONS_RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
/// Says that one resource changed.
pub const NOTIFICATIONS_RESOURCES_UPDATED: &str = "notifications/resources/updated";
/// Says that the roots changed.
pub const NOTIFICATIONS_ROOTS_LIST_CHANGED: &str = "notifications/roots/list_changed";
/// Acknowledges a `subscriptions/listen` and says what it will deliver. The first message on its stream.
pub const NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: &str =
    "notifications/subscriptions/acknowledged";
/// Says that a task changed, in the tasks extension.
pub const NOTIFICATIONS_TASKS: &str = "notifications/tasks";
/// Says that a task changed, in 2025-11-25.
pub const NOTIFICATIONS_TASKS_STATUS: &str = "notifications/tasks/status";
/// Says that the tools changed.
pub const NOTIFICATIONS_TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
/// Checks whether the peer is alive.
pub const PING: &str = "ping";
/// Fills in a prompt.
pub const PROMPTS_GET: &str = "prompts/get";
/// Lists the prompts.
pub const PROMPTS_LIST: &str = "prompts/list";
/// Lists the resources.
pub const RESOURCES_LIST: &str = "resources/list";
/// Reads a resource.
pub const RESOURCES_READ: &str = "resources/read";
/// Subscribes to changes of one resource, in the legacy era.
pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
/// Lists the resource templates.
pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
/// Ends a subscription of `resources/subscribe`.
pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Asks the client for its roots.
pub const ROOTS_LIST: &str = "roots/list";
/// Asks the client's model.
pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
/// Asks a modern server for its versions and capabilities.
pub const SERVER_DISCOVER: &str = "server/discover";
/// Subscribes to changes at a modern server, as long as the request is open.
pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";
/// Cancels a task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// Asks for the state of a task.
pub const TASKS_GET: &str = "tasks/get";
/// Lists the tasks.
pub const TASKS_LIST: &str = "tasks/list";
/// Waits for the result of a task.
pub const TASKS_RESULT: &str = "tasks/result";
/// Answers the asks of a task.
pub const TASKS_UPDATE: &str = "tasks/update";
/// Calls a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// Lists the tools.
pub const TOOLS_LIST: &str = "tools/list";
