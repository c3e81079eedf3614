//! Counts allocations and allocated bytes: `cargo xtask bench`. Prints a line for each case: its name, the number of allocations, the number of bytes.

mod cases;

use alloc_count::{Counting, count};
use cases::*;
use everlink::protocol::Era;

#[global_allocator]
static HEAP: Counting = Counting;

macro_rules! measure {
    ($($work:ident: $kind:ident { $($case:ident => $make:ident($($with:tt)*),)* })*) => {
        fn main() {
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
