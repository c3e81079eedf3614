//! Calls a tool of a server twice:
//! `smol-driver <tool> <arguments> <program> [argument...]`.

use std::error::Error;
use std::process::Command;

use everlink::Config;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "smol-driver <tool> <arguments> <program> [argument...]";
    let (Some(tool), Some(arguments), Some(program)) = (words.next(), words.next(), words.next())
    else {
        return Err(usage.into());
    };
    let arguments: serde_json::Value = serde_json::from_str(&arguments)?;
    let mut command = Command::new(program);
    command.args(words);
    smol::block_on(async {
        let link = smol_driver::connect(command, Config::child("smol-driver", "1.0"));
        let session = link.ready().await?;
        println!("connected, {}", session.version);
        for _ in 0..2 {
            let result = link.call_tool(&tool, &arguments).idempotent().await?;
            println!("{}", result.text());
        }
        link.shutdown().await?;
        println!("closed");
        Ok(())
    })
}
