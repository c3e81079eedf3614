//! How steps are counted by valgrind, under which the program then runs.
#![allow(dead_code, reason = "tests that share the rig count in their own way")]

use std::env;
use std::process::{self, Command, Stdio};

/// How often each step is taken while it is counted. What only some of them cost is divided among all.
pub(crate) const REPEAT: usize = 16;

/// Where there is no limit, so that there can be n.
pub(crate) const UNLIMITED: usize = 1 << 40;

/// How many there are of what a world is about, and whether somebody counts.
pub(crate) struct Meter {
    pub(crate) n: usize,
    is_counted: bool,
    /// It runs under valgrind.
    is_watched: bool,
    is_on: bool,
}

impl Meter {
    pub(crate) fn new(n: usize) -> Meter {
        Meter {
            n,
            is_counted: false,
            is_watched: env::var_os("EVERLINK_GROWTH").is_some(),
            is_on: false,
        }
    }

    /// Takes the steps of a world that leave it as it was: once so that tables and buffers have the size that they keep, then to be counted.
    pub(crate) fn round(&mut self, mut steps: impl FnMut(&mut Meter)) {
        steps(self);
        self.is_counted = true;
        steps(self);
        self.is_counted = false;
    }

    /// Takes a step several times, and has that counted. It is given the number of the time.
    pub(crate) fn step(&mut self, name: &str, mut step: impl FnMut(usize)) {
        let is_counted = self.is_counted && self.is_watched;
        if is_counted && !self.is_on {
            ask_valgrind(&["instrumentation", "on"]);
            self.is_on = true;
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

/// Valgrind counts what happens in here, and nothing else. Its name is known to `cargo xtask growth`.
#[inline(never)]
fn counted(steps: &mut dyn FnMut()) {
    steps();
}

/// Has valgrind, under which this runs, do something. It looks for orders only while there is work, so the wait is busy.
fn ask_valgrind(order: &[&str]) {
    let asked = Command::new("vgdb")
        .arg(format!("--pid={}", process::id()))
        .args(order)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut asked = asked.expect("vgdb comes with valgrind");
    loop {
        if let Some(status) = asked.try_wait().expect("vgdb ends") {
            assert!(status.success(), "valgrind does not obey: {status}");
            return;
        }
        for turn in 0..10_000 {
            core::hint::black_box(turn);
        }
    }
}
