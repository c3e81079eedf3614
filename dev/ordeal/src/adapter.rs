//! The adapters that lead to children, all of which go through the same ordeals. Knows no ordeal.

use std::io;
use std::process::Command;

use everlink::Config;
use everlink_handle::Link;

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
pub const ADAPTERS: &[Adapter] = &[Adapter {
    name: "stdio",
    within: |program| program(&everlink_stdio::connect),
}];

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
