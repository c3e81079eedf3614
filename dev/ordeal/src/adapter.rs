//! The adapters that lead to children, all of which go through the same ordeals. Knows no ordeal.

use std::io;
use std::process::Command;

use everlink::Config;
use everlink_handle::Link;
use tokio::runtime::{Builder, Runtime};

/// How a program gets a link to a child from an adapter.
pub type Connect<'a> = dyn Fn(Command, Config) -> io::Result<Link> + 'a;

/// One adapter.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// What it is called.
    pub name: &'static str,
    within: fn(&mut dyn FnMut(&Connect<'_>)),
}

/// All of them.
pub const ADAPTERS: &[Adapter] = &[
    Adapter {
        name: "stdio",
        within: |program| program(&everlink_stdio::connect),
    },
    Adapter {
        name: "tokio",
        within: |program| {
            let runtime = runtime();
            let _inside = runtime.enter();
            program(&|command, config| Ok(everlink_tokio::child::connect(command, config)));
        },
    },
];

impl Adapter {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Adapter> {
        let mut all = ADAPTERS.iter().copied();
        all.find(|adapter| adapter.name == name)
    }

    /// Runs a program with links of this adapter, within whatever the adapter needs around it.
    pub fn run(self, mut program: impl FnMut(&Connect<'_>)) {
        (self.within)(&mut program);
    }
}

/// A runtime with one thread beside that of the program, which may block.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("the system has room for a runtime")
}
