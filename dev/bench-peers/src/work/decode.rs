//! Measures the parsing of the reply to a call, in three sizes.
//!
//! `everlink` includes all work of a client machine: it finds the end of the line, matches the reply to its call, and gives the application
//! an event with the result as JSON text. `serde_json` is the minimum: the end of the line, the id, and the result as borrowed text. `rmcp`
//! is its codec, which builds values of its types; it matches the reply to its call later.
//!
//! The number of calls in flight does not depend on the number of decoded replies, so their cost cancels out in the difference.

use std::hint::black_box;
use std::time::Instant;

use alloc_count::count;
use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use rmcp::transport::async_rw::JsonRpcMessageCodec;
use serde_json::json;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Decoder;

use super::in_process::count_instructions;
use super::{Effort, in_eras};
use crate::echo;
use crate::peers::everlink::{Scripted, child};
use crate::peers::raw::Envelope;
use crate::report::{Era, Sample, Task, rounds};

/// The cases, each with its number of calls in flight.
const CASES: [(&str, usize); 3] = [("200 B", 4_800), ("59 KB", 240), ("1 MB", 24)];

pub(crate) fn run(effort: Effort) {
    for (case, in_flight) in CASES {
        let mut tasks = in_eras("decode", case, &["serde_json", "everlink"], in_flight / 2);
        tasks.push(Task::new("decode", case, Era::Both, "rmcp", in_flight / 2));
        rounds(effort.rounds, &tasks);
        count_instructions(&tasks, in_flight / 6);
    }
}

pub(crate) fn sample(task: &Task) -> Sample {
    let case = CASES.into_iter().find(|(case, _)| *case == task.case);
    let (_, in_flight) = case.expect("it is a case");
    let result = result(&task.case);
    let line = |id: u64| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
    let ids: Vec<u64>;
    let mut decode: Box<dyn FnMut(String)> = match &*task.who {
        "everlink" => {
            let (mut config, mut buf) = (child(task.era), Vec::new());
            config.limits.calls_in_flight = in_flight;
            let mut link = Scripted::new(config, &mut buf);
            ids = link.start_calls(in_flight, &mut buf);
            Box::new(move |line| drop(black_box(link.decode(line.as_bytes(), &mut buf))))
        }
        "serde_json" => {
            ids = (1..=in_flight as u64).collect();
            Box::new(|line| {
                black_box(Envelope::read(line.as_bytes()));
            })
        }
        "rmcp" => {
            ids = (1..=in_flight as u64).collect();
            let mut codec = JsonRpcMessageCodec::<RxJsonRpcMessage<RoleClient>>::new();
            Box::new(move |line| {
                // A buffer that takes over the bytes instead of copying them.
                let mut line = BytesMut::from(tokio_util::bytes::Bytes::from(line));
                let message = codec.decode(&mut line).expect("it is a reply");
                drop(black_box(message.expect("it is whole")));
            })
        }
        other => unreachable!("{other} takes no part"),
    };
    let mut lines: Vec<String> = ids.into_iter().map(line).collect();
    let warm_up = task.size / 5 + 1;
    lines.drain(..warm_up).for_each(&mut decode);
    let measured: Vec<String> = lines.drain(..task.size).collect();
    let start = Instant::now();
    let ((), counts) = count(|| measured.into_iter().for_each(&mut decode));
    let span = start.elapsed();
    let per_line = |total: usize| total as f64 / task.size as f64;
    Sample::default()
        .with("time", span.as_secs_f64() * 1e6 / task.size as f64)
        .with("allocations", per_line(counts.allocs + counts.reallocs))
}

fn result(case: &str) -> String {
    let text = |bytes| {
        let text = echo::text(bytes);
        json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}).to_string()
    };
    match case {
        "200 B" => text(90),
        "1 MB" => text(1_000_000),
        _ => {
            let tool = |number: u32| {
                json!({
                    "name": format!("tool_{number}"),
                    "title": format!("Tool number {number}"),
                    "description": echo::text(200),
                    "inputSchema": {
                        "type": "object",
                        "properties": {
                            "path": {"type": "string", "description": "Which file"},
                            "limit": {"type": "integer", "minimum": 1, "description": "How many lines"},
                        },
                        "required": ["path"],
                    },
                })
            };
            let tools: Vec<_> = (0..130).map(tool).collect();
            json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})
                .to_string()
        }
    }
}
