//! Prints the scripts, or the texts, that files of a corpus hold: `cargo run -p model --example show -- <target> <file>...`.

use std::fmt::Debug;

use model::{Tape, both, relay, server, site, web};

fn main() {
    let mut args = std::env::args().skip(1);
    let target = args.next().expect("the name of a fuzz target");
    for file in args {
        let data = std::fs::read(&file).expect("a file");
        let mut tape = Tape::new(&data);
        let tape = &mut tape;
        println!("{file}");
        match &*target {
            "client_http" => show(web::setup(tape), &web::Op::read_all(tape)),
            "client_stdio" => show(model::Setup::read(tape), &model::Op::read_all(tape)),
            "pair" => show(both::Setup::read(tape), &both::Op::read_all(tape)),
            "relay" => show(relay::Setup::read(tape), &relay::Op::read_all(tape)),
            "server_http" => show(site::Setup::read(tape), &site::Op::read_all(tape)),
            "server_stdio" => show(server::Setup::read(tape), &server::Op::read_all(tape)),
            "again" | "line" | "message" | "sse" => println!("{}", data.escape_ascii()),
            other => panic!("there is no {other}"),
        }
    }
}

fn show(setup: impl Debug, ops: &[impl Debug]) {
    println!("{setup:#?}");
    for (at, op) in ops.iter().enumerate() {
        println!("{at:>4} {op:?}");
    }
}
