//! Counts the instructions of each case: `cargo xtask bench`. The counts are the same on every run, so small changes show.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the macros generate such code"
)]

mod cases;

use cases::*;
use everlink::protocol::Era;
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

macro_rules! measure {
    ($($work:ident: $kind:ident { $($case:ident => $make:ident($($with:tt)*),)* })*) => {
        $(
            #[library_benchmark]
            $(#[bench::$case($kind::$make($($with)*))])*
            fn $work(mut case: Box<$kind>) -> Box<$kind> {
                case.run();
                case
            }
        )*
        library_benchmark_group!(name = all, benchmarks = [$($work),*]);
    };
}

all_cases!(measure);

// Without the cache simulation, whose numbers are not used, it takes half as long.
main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [all]
);
