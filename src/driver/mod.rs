//! What passes between a machine and its driver: inputs, outputs, ids, instants, faults, and requests to a store.
//!
//! Does not depend on the wire format, nor on either end.
//!
//! Which output occurs with which binding:
//!
//! | output | child or socket | HTTP client | server on a pipe | HTTP server |
//! |---|---|---|---|---|
//! | `Open`, `Release` | yes | yes | `Release` | `Release` |
//! | `Write` | yes | – | yes | yes |
//! | `CloseWrite`, `Terminate`, `Kill`, `Inspect` | yes | – | – | – |
//! | `Request` | – | yes | – | – |
//! | `Response`, `Finish` | – | – | – | yes |
//! | `Abort` | – | yes | – | yes |
//! | `Store` | – | – | – | only with `Storage::Driver` |
//! | `Event` | yes | yes | yes | yes |

mod fault;
mod id;
mod io;
mod store;
mod time;

pub use fault::{ExitStatus, Fault, FaultKind};
pub use id::{AskId, CallId, Epoch, LookupId, RequestId, StreamId};
pub use io::{Input, LAST_WORDS, Output};
pub use store::{SessionRecord, StoreAnswer, StoreRequest};
pub use time::{Deadline, Instant, Wake};
pub(crate) use time::{Span, TICK};
