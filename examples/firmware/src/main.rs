//! An MCP server on a Cortex-M without an operating system, with 64 KB of RAM. It speaks MCP over a UART, one JSON message on each line.
//!
//! - `main` sets the limits and is the driver: it moves bytes between the UART and the server, and sleeps.
//! - `tools` is the application: a sensor, an LED, a slow tool, and a tool that reports the use of memory.
//! - `board` is the hardware, and `heap` the memory.
#![no_std]
#![no_main]

extern crate alloc;

mod board;
mod heap;
mod tools;

use alloc::vec::Vec;

use cortex_m_rt::entry;
use everlink::protocol::ServerCapabilities;
use everlink::server::{Config, Limits, Offer};
use everlink::{Input, Output, Server, StreamId};

use tools::Tools;

#[entry]
fn main() -> ! {
    heap::init();
    board::start();
    board::log("firmware: started");
    let mut server = Server::new(config());
    let mut tools = Tools::default();
    // Messages that are being sent, and how many of their bytes the UART has taken.
    let (mut output, mut sent) = (Vec::new(), 0);
    let mut received = [0; 128];
    loop {
        // Carry out every output. The bytes of a `Write` are at the end of `output`, and are sent below.
        while let Some(next) = server.poll_output(&mut output) {
            if let Output::Event(event) = next {
                tools.handle(&mut server, board::now(), event);
            }
        }

        // Report what the UART has taken: the server limits the bytes that are neither sent nor reported.
        let taken = board::send(&output[sent..]);
        sent += taken;
        if sent == output.len() {
            output.clear();
            sent = 0;
        }
        if taken > 0 {
            server.handle(board::now(), Input::sent(taken));
            continue;
        }

        // Sleep until the next deadline of the server or of a tool, or until there is something to move.
        let deadline = server.poll_timeout().map(|deadline| deadline.at);
        let deadline = deadline.into_iter().chain(tools.deadline()).min();
        let wants_input = server.wants_input(StreamId::DUPLEX);
        board::sleep(deadline, wants_input, !output.is_empty());

        // Feed what arrived, unless the server asks to stop. Then the bytes stay in the ring and in the UART.
        if wants_input {
            let count = board::receive(&mut received);
            if count > 0 {
                server.handle(board::now(), Input::bytes(&received[..count]));
            }
        }

        // Pass the time.
        server.handle_timeout(board::now());
        tools.handle_timeout(&mut server, board::now());
    }
}

/// The description of the server, and limits for 64 KB of RAM. The defaults are for a computer: they allow messages of 16 MiB.
fn config() -> Config {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("everlink-firmware", env!("CARGO_PKG_VERSION"))
        .with_capabilities(tools)
        .with_instructions("A board with a temperature sensor and two LEDs.");
    // The key protects states that a server gives its client to keep. This server gives none, so the key need not be random.
    let mut config = Config::new(offer, [0; 16]);
    // A request that exceeds a limit gets an error, and the next one is served.
    config.limits = Limits::small();
    config
}
