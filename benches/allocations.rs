//! Counts allocations and allocated bytes: `cargo xtask bench`. The counts are the same on every run and every machine.
//!
//! Prints a line for each case: its name, the number of allocations, the number of bytes. Then prints the sizes of values, and the heap use of idle
//! machines.

mod cases;
mod rig;

use alloc_count::{Counting, count, live};
use cases::*;
use everlink::protocol::Era;
use everlink::{Client, Relay, Server};
use rig::pair::Pair;
use rig::samples::{echo, long_echo, long_params};
use rig::{ERAS, params, samples};

#[global_allocator]
static HEAP: Counting = Counting;

macro_rules! measure {
    ($($work:ident: $kind:ident { $($case:ident => $make:ident($($with:tt)*),)* })*) => {
        fn cases() {
            $($(
                let mut case = $kind::$make($($with)*);
                let ((), counts) = count(|| case.run());
                let allocations = counts.allocs + counts.reallocs;
                println!("{}/{}\t{allocations}\t{}", stringify!($work), stringify!($case), counts.bytes);
            )*)*
        }
    };
}

all_cases!(measure);

fn main() {
    cases();
    sizes();
    ERAS.into_iter().for_each(idle_heaps);
}

/// Prints the size of each machine's type.
fn sizes() {
    println!("size/client\t-\t{}", size_of::<Client>());
    println!("size/relay\t-\t{}", size_of::<Relay>());
    println!("size/server\t-\t{}", size_of::<Server>());
}

/// Prints how much heap the machines at both ends still hold after many calls, short and long, have ended.
fn idle_heaps(era: Era) {
    let before = live();
    let mut pair = Pair::ready(era);
    pair.concurrent_round_trips(64);
    pair.round_trip(long_params(10 << 10), long_echo(10 << 10));
    for _ in 0..100 {
        pair.round_trip(params(), echo());
    }
    let (client, server) = pair.into_parts();
    let all = live() - before;
    drop(server);
    let heap = live() - before;
    drop(client);
    assert_eq!(live(), before, "nothing else is held");
    let era = match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
        _ => unreachable!("there are two eras"),
    };
    println!("idle_heap/{era}_client\t-\t{heap}");
    println!("idle_heap/{era}_server\t-\t{}", all - heap);
}
