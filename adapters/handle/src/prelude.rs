//! The names that most applications need: `use everlink_tokio::prelude::*;`, or the same of another adapter.
//!
//! A name that both ends have means that of the client here: [`Config`] is the configuration of a link, [`ServerConfig`] that of a server.

pub use everlink::client::{CallOptions, Event, State};
pub use everlink::protocol::{
    ClientCapabilities, ClientFeature, ServerCapabilities, ServerFeature,
};
pub use everlink::server::{Config as ServerConfig, Offer, Request};
pub use everlink::{Change, Config, ErrorObject, Limits, List, Payload, Policy, Watch};

pub use crate::{
    CallError, Context, Events, Guard, Link, NotReady, OpenAsk, Response, Service, ServiceError,
    ToolResult, secret,
};
