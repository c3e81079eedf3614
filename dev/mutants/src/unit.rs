//! The packages whose code is changed, and the tests that should notice.

use core::iter;
use core::time::Duration;
use std::path::{Path, PathBuf};

/// A package that is built with all mutants of its files.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The name of its package.
    pub(crate) package: &'static str,
    /// The directory of the package from the root of the project, with a slash at its end.
    directory: &'static str,
    /// The files and directories that are changed, from the directory of the package.
    sources: &'static [&'static str],
    /// The packages whose tests run, beside its own.
    tested: &'static [&'static str],
    /// Test programs that are not run.
    pub(crate) left_out: &'static [&'static str],
    /// A test program that says nothing for so long is killed: if it sleeps for ever, it uses no processor time.
    pub(crate) max_silence: Duration,
}

/// The library, and the adapters that decide something. The others pass bytes on, and their tests wait for processes and the system.
pub(crate) const UNITS: &[Unit] = &[
    Unit {
        package: "everlink",
        directory: "",
        sources: &["src"],
        tested: &["model"],
        left_out: &[
            // Read the sources, which are not the original ones here.
            "documentation",
            "purity",
            "structure",
            // Starts processes.
            "drive_child",
        ],
        max_silence: Duration::from_secs(300),
    },
    adapter(
        "everlink-handle",
        "adapters/handle/",
        &[
            "src/client",
            "src/server",
            "src/relay",
            "src/commands.rs",
            "src/events.rs",
            "src/proxy.rs",
        ],
    ),
    adapter("everlink-tools", "adapters/tools/", &["src"]),
    adapter(
        "everlink-auth",
        "adapters/auth/",
        &["src/redirect.rs", "src/sign.rs", "src/store.rs"],
    ),
    adapter(
        "everlink-tokio",
        "adapters/tokio/",
        &[
            "src/http/endpoint.rs",
            "src/http/protection.rs",
            "src/http/store.rs",
        ],
    ),
];

const fn adapter(
    package: &'static str,
    directory: &'static str,
    sources: &'static [&'static str],
) -> Unit {
    Unit {
        package,
        directory,
        sources,
        tested: &[],
        left_out: &[],
        // Their tests wait for threads, and a mutant that wakes none is common.
        max_silence: Duration::from_secs(20),
    }
}

impl Unit {
    /// The files and directories that are changed, below the root of the project.
    pub(crate) fn sources(&self) -> impl Iterator<Item = PathBuf> {
        let directory = Path::new(self.directory);
        self.sources.iter().map(move |path| directory.join(path))
    }

    /// The file to which the switch is appended, from the root of the project.
    pub(crate) fn library(&self) -> String {
        format!("{}src/lib.rs", self.directory)
    }

    /// The packages whose tests run.
    pub(crate) fn tested(&self) -> impl Iterator<Item = &'static str> {
        iter::once(self.package).chain(self.tested.iter().copied())
    }
}
