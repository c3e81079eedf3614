//! A hostile host beside a good one, both on one `everlink guard --listen`: what the attacks do, and what the good host feels of them.
//!
//! `wire` speaks HTTP on raw sockets, `attacks` are the ways to overdraw what hosts share, `good` is the host that must not notice. Linux only:
//! resident memory is read from `/proc`.

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

/// Resident memory that the guard stays under, whatever hosts do. `docs/LIMITS.md` says why.
pub const MEMORY_BOUND: u64 = 512 << 20;

/// Connections that the guard serves at most. `docs/LIMITS.md` says who gives way to a new one.
pub const CONNECTIONS: usize = 512;

/// How much is done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scale {
    /// Calls of the good host, alone and again during the attack.
    pub calls: usize,
    /// How long the attack has before these begin.
    pub head_start: Duration,
    /// Bytes of an answer that is not read.
    pub answer_bytes: usize,
    /// Clients that do not read theirs.
    pub deaf: usize,
}

impl Scale {
    /// Enough for a verdict on times.
    pub const FULL: Scale = Scale {
        calls: 1_000,
        head_start: Duration::from_secs(3),
        answer_bytes: 8 << 20,
        deaf: 160,
    };

    /// Enough to see whether anything breaks, with a program that was not optimised.
    pub const QUICK: Scale = Scale {
        calls: 60,
        head_start: Duration::from_millis(1_500),
        answer_bytes: 4 << 20,
        deaf: 24,
    };
}

/// What the good host felt of an attack.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Felt {
    /// Its calls before the attack.
    pub alone: Calls,
    /// Its calls during the attack.
    pub beside: Calls,
    /// Hosts that came during the attack, and after it, and what went wrong for them.
    pub newcomers: Calls,
    /// The most memory that the guard ever had, in bytes.
    pub peak_memory: u64,
    /// The most sockets that the guard was seen to have open at once.
    pub most_sockets: usize,
}

impl Felt {
    /// How many times as long its slowest calls took during the attack, by the 99th percentile.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.beside.p99().as_secs_f64() / self.alone.p99().as_secs_f64()
    }
}

/// Runs one attack on a guard of its own.
///
/// # Errors
///
/// When the guard cannot be started, or the good host cannot begin.
pub fn run(everlink: &Path, attack: &Attack, scale: Scale) -> io::Result<Felt> {
    let guard = Guard::start(everlink)?;
    let address = guard.address();
    let mut host = Host::connect(address)?;
    host.calls(scale.calls / 10);
    let alone = host.calls(scale.calls);
    let stop = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..attacks::THREADS)
        .map(|_| {
            let (stop, act) = (Arc::clone(&stop), attack.act);
            thread::spawn(move || {
                yield_processor();
                act(address, scale, &stop);
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
    // The sockets of the attackers are closed now; what they began may still be there.
    newcomers.add(good::newcomer(address));
    Ok(Felt {
        alone,
        beside,
        newcomers,
        peak_memory: guard.peak_memory()?,
        most_sockets,
    })
}

/// From now on this thread runs only when nobody else wants the processor. An attacker comes from another machine: what it does there costs the guard
/// and the good host nothing, and should cost them nothing here.
fn yield_processor() {
    // On Linux, the priority of "this process" is that of the thread alone.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}
