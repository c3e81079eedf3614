//! Measures a server over HTTP on the loopback: an echo of 100 bytes, sequential and with 64 calls in flight.
//!
//! All sockets have `TCP_NODELAY`, and each end is a process with one thread. `raw` keeps its connections and reads only the body length of
//! a head: one blocking connection for sequential calls, 64 connections on tokio for concurrent ones. `rmcp-pooled` keeps its connections,
//! and its server answers with JSON and without sessions. `rmcp-default` has the defaults of rmcp.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::{CORES, Effort, calls, in_eras};
use crate::machine::Placement;
use crate::peers::rmcp::HttpMode;
use crate::peers::{Client, everlink, raw, rmcp};
use crate::report::{Sample, Task, rounds};

const WHO: [&str; 4] = ["raw", "everlink-tokio", "rmcp-pooled", "rmcp-default"];

pub(crate) fn run(effort: Effort) {
    let effort = effort.with_more_rounds();
    for case in CORES {
        rounds(
            effort.rounds,
            &in_eras("http", case, &WHO, effort.of(2_000)),
        );
    }
}

pub(crate) fn sample(task: &Task) -> Sample {
    let placement = Placement::of(&task.case);
    let server = ServerProcess::start(&placement, &format!("{}-http", task.who));
    let (url, era) = (server.url(), task.era);
    let mut client: Box<dyn Client> = match &*task.who {
        "raw" => {
            let tasks = ServerProcess::start(&placement, "raw-http-tasks");
            let mut client = raw::Http::new(&server.address, &tasks.address);
            return calls(&mut client, task.size, 3 * task.size);
        }
        "everlink-tokio" => Box::new(everlink::tokio_http(&url, era)),
        "rmcp-default" => Box::new(rmcp::client(rmcp::over_http(&url, era, HttpMode::Default))),
        "rmcp-pooled" => Box::new(rmcp::client(rmcp::over_http(&url, era, HttpMode::Pooled))),
        other => unreachable!("{other} takes no part"),
    };
    calls(&mut *client, task.size, 3 * task.size)
}

/// A server process that prints its address. Killed when dropped.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl ServerProcess {
    pub(crate) fn start(placement: &Placement, who: &str) -> ServerProcess {
        let child = placement.server(who).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the server starts");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut address);
        read.expect("the server prints its address");
        ServerProcess {
            child,
            address: address.trim_end().to_owned(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
