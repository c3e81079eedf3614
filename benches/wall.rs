//! Measures the time of each case: `cargo bench --bench wall`. Times vary between runs; use `instructions` for comparisons.

mod cases;
mod rig;

use cases::*;
use divan::Bencher;
use everlink::protocol::Era;
use rig::samples;

macro_rules! measure {
    ($($work:ident: $kind:ident { $($case:ident => $make:ident($($with:tt)*),)* })*) => {
        $(
            #[divan::bench(args = [$(stringify!($case)),*])]
            fn $work(bencher: Bencher<'_, '_>, case: &str) {
                let make = || match case {
                    $(stringify!($case) => $kind::$make($($with)*),)*
                    _ => unreachable!("the table lists all cases"),
                };
                time(bencher, make);
            }
        )*
    };
}

all_cases!(measure);

fn time<C: Case>(bencher: Bencher<'_, '_>, make: impl Fn() -> Box<C>) {
    if C::REPEATS {
        let mut case = make();
        bencher.bench_local(|| case.run());
    } else {
        bencher
            .with_inputs(make)
            .bench_local_refs(|case| case.run());
    }
}

fn main() {
    divan::main();
}
