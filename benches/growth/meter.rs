//! Counts steps with valgrind, under which the program runs.
#![allow(dead_code, reason = "tests that share the rig count in their own way")]

use std::env;
use std::process::{self, Command, Stdio};

/// How many times each step is taken while it is counted. A cost that only some of the steps have is divided among all.
pub(crate) const REPEAT: usize = 16;

/// A limit that is never reached, so that n can be any number.
pub(crate) const UNLIMITED: usize = 1 << 40;

/// The number of objects in a scenario, and whether steps are counted now.
pub(crate) struct Meter {
    pub(crate) n: usize,
    is_counted: bool,
    /// Whether the program runs under valgrind.
    is_under_valgrind: bool,
    is_instrumented: bool,
}

impl Meter {
    pub(crate) fn new(n: usize) -> Meter {
        Meter {
            n,
            is_counted: false,
            is_under_valgrind: env::var_os("EVERLINK_GROWTH").is_some(),
            is_instrumented: false,
        }
    }

    /// Takes the steps of a scenario, which must leave it unchanged. The first round lets tables and buffers grow to their final size; the second
    /// is counted.
    pub(crate) fn round(&mut self, mut steps: impl FnMut(&mut Meter)) {
        steps(self);
        self.is_counted = true;
        steps(self);
        self.is_counted = false;
    }

    /// Takes a step [`REPEAT`] times and counts it. The step gets the number of the repetition.
    pub(crate) fn step(&mut self, name: &str, mut step: impl FnMut(usize)) {
        let is_counted = self.is_counted && self.is_under_valgrind;
        if is_counted && !self.is_instrumented {
            ask_valgrind(&["instrumentation", "on"]);
            self.is_instrumented = true;
        }
        let mut steps = || (0..REPEAT).for_each(&mut step);
        if self.is_counted {
            counted(&mut steps);
        } else {
            steps();
        }
        if is_counted {
            ask_valgrind(&["dump", name]);
        }
    }
}

/// Valgrind counts only what happens in this function. `cargo xtask growth` knows its name.
#[inline(never)]
fn counted(steps: &mut dyn FnMut()) {
    steps();
}

/// Sends a command to the valgrind under which this program runs. Valgrind reads commands only while the program works, so this waits in a busy loop.
fn ask_valgrind(command: &[&str]) {
    let vgdb = Command::new("vgdb")
        .arg(format!("--pid={}", process::id()))
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut vgdb = vgdb.expect("vgdb comes with valgrind");
    loop {
        if let Some(status) = vgdb.try_wait().expect("vgdb ends") {
            assert!(status.success(), "valgrind refuses the command: {status}");
            return;
        }
        for turn in 0..10_000 {
            core::hint::black_box(turn);
        }
    }
}
