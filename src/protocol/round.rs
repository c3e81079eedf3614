//! The names of what goes back and forth when a modern server wants input before it goes on. Knows no value.

/// Result: what is asked, by key.
pub const INPUT_REQUESTS: &str = "inputRequests";
/// Retry: the answers, by the same keys.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// Result and retry: a text of the server that comes back as it was.
pub const REQUEST_STATE: &str = "requestState";

/// What the parameters of a retry have more than those of the request (S-MRTR-11).
pub const MEMBERS: [&str; 2] = [INPUT_RESPONSES, REQUEST_STATE];

/// Result: of which kind it is.
pub const RESULT_TYPE: &str = "resultType";
/// The result type of an ordinary result.
pub const COMPLETE: &str = "complete";
/// The result type of one that wants input.
pub const INPUT_REQUIRED: &str = "input_required";
/// The result type of a call that goes on as a task (tasks extension).
pub const TASK: &str = "task";
