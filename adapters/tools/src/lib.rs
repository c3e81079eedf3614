//! MCP servers from functions: typed tools, resources and prompts.
//!
//! [`Tools`] is a set of functions. Arguments are read with serde, and schemas come from `schemars`. The same set serves the standard streams with
//! threads (`everlink-stdio`), and standard streams, HTTP and axum on tokio (`everlink-tokio`). Its capabilities follow from what was registered.
//!
//! ```no_run
//! use everlink_tools::Tools;
//! use everlink_tools::schemars::{self, JsonSchema}; // the derive macro needs the name `schemars`
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     /// The first number
//!     a: i64,
//!     /// The second number
//!     b: i64,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Sum {
//!     sum: i64,
//! }
//!
//! let tools = Tools::new("calculator", "1.0")
//!     .tool("add", "Adds two numbers", async |args: Add, _| Ok(Sum { sum: args.a + args.b }))
//!     .resource("calculator://pi", "pi", async |_| Ok("3.14159"));
//!
//! // With threads:
//! let service = everlink_stdio::serve(tools.config(), tools.blocking_handler())?;
//! service.closed().wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On tokio, [`handler`](Tools::handler) takes the place of `blocking_handler`:
//!
//! ```no_run
//! # async fn example(tools: everlink_tools::Tools) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let service = everlink_tokio::http::serve(listener, tools.config(), tools.handler());
//! # Ok(())
//! # }
//! ```
//!
//! `#[derive(JsonSchema)]` needs the name `schemars` in scope: by `use everlink_tools::schemars`, or by `schemars = "1"` among the dependencies.
//!
//! # What a function returns
//!
//! A tool returns any value that serde writes and `schemars` describes. An object becomes structured content, with its JSON as a text beside it; a
//! [`WithText`] has another text. A `String` is a text, and `()` is an empty result. A [`Reply`] has content blocks of any kind.
//!
//! # What can go wrong
//!
//! The `?` operator turns every error into an [`Error`], which the model reads as the result of a failed tool (`isError`). A protocol error is
//! [`Error::protocol`]. Bad arguments never reach the function. The model reads what is wrong with which argument; clients before 2025-11-25 get a
//! protocol error, as their version of the specification says. A result with a number that is NaN or infinite becomes an error, too, because JSON has no such
//! numbers; an `Option` becomes null.

// The modules: `tools` is the set, `registration` and `tool` add to it, `registry` is its content, and `dispatch` answers requests. `function` runs functions
// of all kinds. `context` is what a function sees of its request. `output`, `reading` and `prompting` are what functions return, and `questions` what they ask
// first. `schema` makes schemas, `check` compares a value with one, `form` makes those of forms. `arguments` and `text` read arguments, and `uri_template`
// matches URIs.

mod arguments;
mod base64;
mod check;
mod context;
mod dispatch;
mod error;
mod form;
mod function;
mod output;
mod prompting;
mod questions;
mod reading;
mod registration;
mod registry;
mod schema;
mod text;
mod tool;
mod tools;
mod uri_template;

pub use context::{AskFailure, Context, Elicited};
pub use error::Error;
pub use everlink;
pub use everlink_types as types;
pub use form::{FormError, form};
pub use function::Answering;
pub use output::{Output, Reply, WithText};
#[doc(hidden)]
pub use output::{OutputDescription, OutputShape};
pub use prompting::Messages;
pub use questions::Questions;
pub use reading::Contents;
pub use registry::CompletionInput;
pub use schemars::{self, JsonSchema};
pub use tools::Tools;

/// The result of a function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
