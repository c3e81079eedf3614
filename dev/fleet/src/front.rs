//! Three nodes of another program behind nginx, for tests that want one URL.

use std::io::{self, Read as _};
use std::process::Command;

use crate::Failure;
use crate::services::{Balancer, Process, Redis, free_port, wait_for_port};

/// The argument: a program that serves at its first argument, with its sessions in the Redis that its second names.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let [program] = words else {
        return Err("usage: fleet front PROGRAM".into());
    };
    let redis = Redis::start()?;
    let (mut ports, mut nodes) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args([&format!("127.0.0.1:{port}"), &redis.url()]);
        nodes.push(Process::start(&mut command)?);
        wait_for_port(port)?;
        ports.push(port);
    }
    let nginx = Balancer::nginx(&ports)?;
    println!("http://127.0.0.1:{}/mcp", nginx.port);
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
