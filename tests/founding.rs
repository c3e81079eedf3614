//! The three promises that the project was founded on.

mod world;

use everlink::ExitStatus;
use world::{Peer, World, config, every_chunking};

#[test]
fn smoke() {
    every_chunking(|chunking| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|life| match life {
                1 => Peer::legacy("2025-11-25").dies_of("tools/call", ExitStatus::Code(1)),
                2 => Peer::modern(),
                3 => Peer::dies_on_probe(),
                _ => Peer::legacy("2025-11-25"),
            });
        world.until_ready();
        let call = world.tool("add");
        println!("{}", world.failure(call));
        world.until_ready();
        let call = world.tool("add");
        world.until_done(call);
        world
    });
}
