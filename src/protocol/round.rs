//! The member names of multi-round requests, in which a modern server wants input before it goes on.

/// In a result: the asks of the server, by key.
pub const INPUT_REQUESTS: &str = "inputRequests";
/// In a retry: the answers, by the same keys.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// In a result and in its retry: a text of the server that the client returns unchanged.
pub const REQUEST_STATE: &str = "requestState";

/// The members that the parameters of a retry have in addition to those of the request.
pub const MEMBERS: [&str; 2] = [INPUT_RESPONSES, REQUEST_STATE];

/// In a result: its kind.
pub const RESULT_TYPE: &str = "resultType";
/// The result type of an ordinary result.
pub const COMPLETE: &str = "complete";
/// The result type of a result that wants input.
pub const INPUT_REQUIRED: &str = "input_required";
/// The result type of a call that goes on as a task (tasks extension).
pub const TASK: &str = "task";
