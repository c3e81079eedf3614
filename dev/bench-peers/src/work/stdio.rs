//! Measures a server as a child process on two pipes: an echo of 100 bytes, sequential and with 64 calls in flight.
//!
//! Each library has its own client and server. Both ends are the same program, with a single-threaded runtime if the library needs one.
//! `rmcp-stdio` serves with tokio's blocking pool, as `stdio()` does, and `rmcp-stdio_pipes` as its documentation recommends. `raw` writes
//! and reads the same number of bytes with blocking calls and looks only for the end of the line.

use super::{CORES, Effort, calls, in_eras};
use crate::machine::Placement;
use crate::peers::{Client, everlink, raw, rmcp};
use crate::report::{Sample, Task, rounds};

const WHO: [&str; 5] = [
    "raw",
    "everlink-stdio",
    "everlink-tokio",
    "rmcp-stdio_pipes",
    "rmcp-stdio",
];

pub(crate) fn run(effort: Effort) {
    let effort = effort.with_more_rounds();
    for case in CORES {
        rounds(
            effort.rounds,
            &in_eras("stdio", case, &WHO, effort.of(4_000)),
        );
    }
}

pub(crate) fn sample(task: &Task) -> Sample {
    let (command, era) = (Placement::of(&task.case).server(&task.who), task.era);
    let mut client: Box<dyn Client> = match &*task.who {
        "raw" => Box::new(raw::Pipe::new(command)),
        "everlink-stdio" => Box::new(everlink::OnThreads::stdio(command, everlink::child(era))),
        "everlink-tokio" => Box::new(everlink::tokio_stdio(command, everlink::child(era))),
        "rmcp-stdio" | "rmcp-stdio_pipes" => Box::new(rmcp::client(rmcp::over_child(command, era))),
        other => unreachable!("{other} takes no part"),
    };
    calls(&mut *client, task.size, 3 * task.size)
}
