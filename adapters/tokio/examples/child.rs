//! Calls a tool of a server that it starts: `cargo run -p everlink-tokio --example child -- TOOL JSON COMMAND [ARGUMENT]...`

use std::error::Error;
use std::process::Command;

use everlink::{Config, Payload};
use everlink_tokio::child;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: child TOOL JSON COMMAND [ARGUMENT]...";
    let tool = arguments.next().ok_or(usage)?;
    let json: Payload = arguments.next().ok_or(usage)?.parse()?;
    let mut command = Command::new(arguments.next().ok_or(usage)?);
    command.args(arguments);

    let link = child::connect(command, Config::child("child", "1.0"))?;
    let session = link.ready().await?;
    eprintln!("{:?} speaks {}", session.server, session.version);
    for tool in &link.list_tools().await?.items {
        eprintln!("{}", tool.as_str());
    }
    let call = link.call_tool(&tool, json).on_progress(|report| {
        eprintln!("{} of {:?}", report.progress, report.total);
    });
    match call.await {
        Ok(result) => println!("{}", result.text()),
        Err(error) => eprintln!("{error}"),
    }
    link.shutdown().await?;
    Ok(())
}
