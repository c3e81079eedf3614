//! Runs a hostile host and a good host on one `everlink guard --listen`, and measures the effect of attacks on the good one.
//!
//! `wire` is HTTP on raw sockets, `attacks` has the attacks, and `good` the host that they must not affect. Linux only: resident memory is
//! read from `/proc`.

pub mod attacks;
pub mod good;
pub mod guard;
mod wire;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use attacks::Attack;
use good::{Calls, Host};
use guard::Guard;

/// The limit for the guard's resident memory during these attacks. `docs/LIMITS.md` derives the higher bound for any behaviour of hosts, 832 MiB.
pub const MEMORY_BOUND: u64 = 512 << 20;

/// The connection limit of the guard. `docs/LIMITS.md` says which connection gives way to a new one.
pub const CONNECTIONS: usize = 512;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scale {
    /// The calls of the good host, before the attack and again during it.
    pub calls: usize,
    /// The time from the start of the attack to these calls.
    pub head_start: Duration,
    /// The size of an answer that a client does not read.
    pub answer_bytes: usize,
    /// The number of clients that do not read their answers.
    pub silent_readers: usize,
}

impl Scale {
    /// Enough to judge times.
    pub const FULL: Scale = Scale {
        calls: 1_000,
        head_start: Duration::from_secs(3),
        answer_bytes: 8 << 20,
        silent_readers: 160,
    };

    /// Enough to find failures in a build without optimisation. Too small to judge times.
    pub const QUICK: Scale = Scale {
        calls: 60,
        head_start: Duration::from_millis(1_500),
        answer_bytes: 4 << 20,
        silent_readers: 24,
    };
}

/// The effect of an attack on the good host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Impact {
    /// The calls of the good host before the attack.
    pub alone: Calls,
    /// The calls of the good host during the attack.
    pub beside: Calls,
    /// The calls of hosts that connect during the attack and after it.
    pub newcomers: Calls,
    /// The peak of the guard's resident memory, in bytes.
    pub peak_memory: u64,
    /// The highest number of open sockets of the guard, as sampled.
    pub most_sockets: usize,
}

impl Impact {
    /// The 99th percentile of the durations of the good host's calls during the attack, divided by the same percentile before the attack.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        self.beside.p99().as_secs_f64() / self.alone.p99().as_secs_f64()
    }
}

/// Runs one attack on a new guard.
///
/// # Errors
///
/// If the guard cannot be started, or the good host cannot connect.
pub fn run(everlink: &Path, attack: &Attack, scale: Scale) -> io::Result<Impact> {
    let guard = Guard::start(everlink)?;
    let address = guard.address();
    let mut host = Host::connect(address)?;
    // These calls only warm up the guard, and are not measured.
    host.calls(scale.calls / 10);
    let alone = host.calls(scale.calls);
    let stop = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..attacks::THREADS)
        .map(|_| {
            let (stop, run_attack) = (Arc::clone(&stop), attack.run);
            thread::spawn(move || {
                lower_priority();
                run_attack(address, scale, &stop);
            })
        })
        .collect();
    thread::sleep(scale.head_start);
    let mut newcomers = Calls::default();
    let mut beside = Calls::default();
    let mut most_sockets = 0;
    for _ in 0..10 {
        most_sockets = most_sockets.max(guard.sockets());
        beside.add(host.calls(scale.calls / 10));
        newcomers.add(good::newcomer(address));
    }
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        let _ = attacker.join();
    }
    // The attackers have closed their sockets, but their calls and sessions may still exist.
    newcomers.add(good::newcomer(address));
    Ok(Impact {
        alone,
        beside,
        newcomers,
        peak_memory: guard.peak_memory()?,
        most_sockets,
    })
}

/// Lowers the priority of this thread to the minimum. A real attacker runs on another machine, so its work must not slow down the guard or
/// the good host here.
fn lower_priority() {
    // On Linux, this sets the priority of the calling thread only.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}
