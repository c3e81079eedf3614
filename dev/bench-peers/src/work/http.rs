//! A server over HTTP on the loopback: an echo of 100 bytes, one by one and 64 at a time.
//!
//! Nobody waits to fill a segment (`TCP_NODELAY`), and each end is a process with one thread. `raw` keeps its connections and reads
//! nothing of a head but the length of the body: blocking for calls one by one, 64 connections on tokio for many. `rmcp-pooled` keeps its
//! connections, and its server answers with JSON and without sessions; `rmcp-default` is rmcp as it comes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::{CORES, Effort, calls, in_eras};
use crate::machine::Place;
use crate::peers::rmcp::Manner;
use crate::peers::{Client, everlink, raw, rmcp};
use crate::report::{Sample, Task, rounds};

const WHO: [&str; 4] = ["raw", "everlink-tokio", "rmcp-pooled", "rmcp-default"];

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_turns();
    for case in CORES {
        rounds(
            effort.rounds,
            &in_eras("http", case, &WHO, effort.of(2_000)),
        );
    }
}

pub(crate) fn sample(task: &Task) -> Sample {
    let place = Place::of(&task.case);
    let site = Site::start(&place, &format!("{}-http", task.who));
    let (url, era) = (site.url(), task.era);
    let mut client: Box<dyn Client> = match &*task.who {
        "raw" => {
            let tasks = Site::start(&place, "raw-http-tasks");
            let mut client = raw::Http::new(&site.address, &tasks.address);
            return calls(&mut client, task.size, 3 * task.size);
        }
        "everlink-tokio" => Box::new(everlink::tokio_http(&url, era)),
        "rmcp-default" => Box::new(rmcp::client(rmcp::over_http(&url, era, Manner::Default))),
        "rmcp-pooled" => Box::new(rmcp::client(rmcp::over_http(&url, era, Manner::Pooled))),
        other => unreachable!("{other} takes no part"),
    };
    calls(&mut *client, task.size, 3 * task.size)
}

/// A server process that says its address, and ends with this value.
pub(crate) struct Site {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Site {
    pub(crate) fn start(place: &Place, who: &str) -> Site {
        let child = place.server(who).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the server starts");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let said = BufReader::new(stdout).read_line(&mut address);
        said.expect("it says where it is");
        Site {
            child,
            address: address.trim_end().to_owned(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
