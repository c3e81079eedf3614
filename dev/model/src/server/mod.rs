//! A server under test, over a pipe or over HTTP: its setup, and what both transports share.
//!
//! The rules know only the inputs and the outputs; they ask the machine nothing that they could know themselves.

pub(crate) mod http;
mod http_clients;
mod http_rules;
pub(crate) mod pipe;
mod rules;
mod scripted_client;
mod stores;

use std::time::Duration;

use everlink::Payload;
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature, Version, Versions};
use everlink::server::{Cache, Config, Limits, ListenEnd, Offer, UnknownMethods};
use serde_json::{Value, json};

pub(crate) use pipe::change;
pub(crate) use rules::params_of;
pub(crate) use scripted_client::{ClientMessage, ScriptedClient};
pub(crate) use stores::Kept;

use crate::script::{Read, Script, read_fields};
use crate::world::{PAYLOAD, SECRET, Setup};

/// The configuration of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    pub(crate) config: Config,
    /// What is offered in the end where nothing was at the beginning.
    pub(crate) later: Offer,
}

impl Read for Setup<ServerConfig> {
    fn read(script: &mut Script<'_>) -> Setup<ServerConfig> {
        let traits = script.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let choices = script.byte();
        let mut config = Config::new(offer(script.byte()), SECRET);
        let later = offer(choices);
        if has(0) {
            config.offer = None;
        }
        if has(1) {
            config.versions = versions(choices);
        }
        if choices & 64 != 0 {
            config.unknown_methods = UnknownMethods::Delivered;
        }
        if choices & 128 != 0 {
            config.listen_end = ListenEnd::CancelledThenResult;
        }
        if has(2) {
            read_fields!(script, config, spans: ask_timeout drain flush);
        }
        if has(3) {
            config.limits = limits(script);
        }
        if has(6) {
            config.names_itself = false;
            config.log_level = LogLevel::Error;
            config.cache = Cache::new(Duration::from_millis(20), true);
        }
        Setup {
            lazy: has(4),
            reports_sent: !has(5),
            ..Setup::prompt(ServerConfig { config, later })
        }
    }
}

/// One of many offers: most of them have most of what there is.
pub(crate) fn offer(bits: u8) -> Offer {
    let has = |mask: u8| bits & mask == mask;
    let mut offered = ServerCapabilities::default();
    if !has(0b11) {
        offered = offered.with_tools(!has(0b100));
    }
    if !has(0b1_1000) {
        offered = offered.with_resources(!has(0b100), !has(0b10_0000));
    }
    if !has(0b1100_0000) {
        offered = offered.with_prompts(!has(0b100)).with_completions();
    }
    if !has(0b10_0001) {
        offered = offered.with_logging();
    }
    if has(0b100_0100) {
        use ServerFeature::{Tasks, TasksCancel, TasksExtension, TasksList};
        let tasks = [Tasks, TasksCancel, TasksList, TasksExtension];
        offered = tasks.into_iter().fold(offered, ServerCapabilities::with);
    }
    let mut offer = Offer::new("model", "1").with_capabilities(offered);
    if has(0b1001_0000) {
        offer = offer.with_instructions("mind\nthe \"gap\"");
    }
    offer
}

fn versions(choice: u8) -> Versions {
    match choice % 8 {
        0 => Versions::ALL,
        1 => Versions::MODERN,
        2 => Versions::LEGACY,
        3 => Versions::only(Version::V2024_11_05),
        4 => Versions::only(Version::V2025_03_26).with(Version::V2026_07_28),
        5 => Versions::since(Version::V2025_11_25),
        6 => Versions::only(Version::V2025_03_26),
        _ => Versions::NONE,
    }
}

fn limits(script: &mut Script<'_>) -> Limits {
    let sizes = &[0, 1, 3, 40, 300, 800, 4_000, 100_000];
    let mut limits = Limits::default();
    read_fields!(script, limits, sizes, sizes: message_bytes requests queued_bytes write_window
        undelivered_bytes asks);
    limits.input_rounds = u32::from(script.byte() % 4);
    read_fields!(script, limits, sizes, sizes: listens watched_uris noise_sample);
    limits
}

pub(crate) fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}

/// One of some questions, with a mark in it.
pub(crate) fn question(what: u8, mark: u64) -> (&'static str, Value) {
    let (method, mut params) = match what % 8 {
        0 | 1 => ("roots/list", json!({})),
        2 => (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 1}),
        ),
        3 => (
            "elicitation/create",
            json!({"message": "?", "requestedSchema": {}}),
        ),
        4 => (
            "elicitation/create",
            json!({"mode": "url", "url": "https://example.org"}),
        ),
        5 => ("sampling/createMessage", json!({"tools": []})),
        6 => ("ping", json!({})),
        _ => ("unheard/of", json!({})),
    };
    params["ask"] = json!(mark);
    params["pad"] = json!(PAYLOAD);
    (method, params)
}
