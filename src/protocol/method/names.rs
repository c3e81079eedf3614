//! The names of all methods, so that they are spelled in one place. Knows nothing about them.

/// Suggests values for an argument.
pub const COMPLETION_COMPLETE: &str = "completion/complete";
/// Asks the user.
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// Opens a legacy connection.
pub const INITIALIZE: &str = "initialize";
/// Sets the least severe log message wanted, in the legacy era.
pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
/// Withdraws a request.
pub const NOTIFICATIONS_CANCELLED: &str = "notifications/cancelled";
/// Says that the user finished at a URL.
pub const NOTIFICATIONS_ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
/// Ends the legacy handshake.
pub const NOTIFICATIONS_INITIALIZED: &str = "notifications/initialized";
/// Carries a log message.
pub const NOTIFICATIONS_MESSAGE: &str = "notifications/message";
/// Reports how far a request is.
pub const NOTIFICATIONS_PROGRESS: &str = "notifications/progress";
/// Says that the prompts changed.
pub const NOTIFICATIONS_PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
/// Says that the resources changed.
pub const NOTIFICATIONS_RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
/// Says that one resource changed.
pub const NOTIFICATIONS_RESOURCES_UPDATED: &str = "notifications/resources/updated";
/// Says that the roots changed.
pub const NOTIFICATIONS_ROOTS_LIST_CHANGED: &str = "notifications/roots/list_changed";
/// Says what a `subscriptions/listen` will deliver, first on its stream.
pub const NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: &str =
    "notifications/subscriptions/acknowledged";
/// Says that a task changed, in the tasks extension.
pub const NOTIFICATIONS_TASKS: &str = "notifications/tasks";
/// Says that a task changed, in 2025-11-25.
pub const NOTIFICATIONS_TASKS_STATUS: &str = "notifications/tasks/status";
/// Says that the tools changed.
pub const NOTIFICATIONS_TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
/// Asks for a sign of life.
pub const PING: &str = "ping";
/// Fills in a prompt.
pub const PROMPTS_GET: &str = "prompts/get";
/// Lists the prompts.
pub const PROMPTS_LIST: &str = "prompts/list";
/// Lists the resources.
pub const RESOURCES_LIST: &str = "resources/list";
/// Reads a resource.
pub const RESOURCES_READ: &str = "resources/read";
/// Asks for word of one resource, in the legacy era.
pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
/// Lists the templates of resources.
pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
/// Ends what `resources/subscribe` began.
pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Asks the client for its roots.
pub const ROOTS_LIST: &str = "roots/list";
/// Asks the client's model.
pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
/// Asks a modern server for its versions and capabilities.
pub const SERVER_DISCOVER: &str = "server/discover";
/// Asks a modern server for word of changes, for as long as the request lives.
pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";
/// Cancels a task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// Asks how a task is.
pub const TASKS_GET: &str = "tasks/get";
/// Lists the tasks.
pub const TASKS_LIST: &str = "tasks/list";
/// Waits for what a task gave.
pub const TASKS_RESULT: &str = "tasks/result";
/// Answers what a task asks.
pub const TASKS_UPDATE: &str = "tasks/update";
/// Calls a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// Lists the tools.
pub const TOOLS_LIST: &str = "tools/list";
