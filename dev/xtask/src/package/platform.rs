//! The platforms that the program is published for, and their names in Rust, npm and Python. Must not build anything.

use std::env::consts;

use anyhow::{Context as _, Result};

use crate::step::skip;

/// A system and a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Platform {
    /// The name of Node for the system.
    pub(super) os: &'static str,
    /// The name of Node for the processor.
    pub(super) cpu: &'static str,
    /// The target of the compiler.
    pub(super) target: &'static str,
    /// The platform tags of the wheel.
    pub(super) wheel_tags: &'static [&'static str],
}

/// All platforms. A static program has no C library to wait for, so one program serves all distributions of Linux.
pub(super) const PLATFORMS: &[Platform] = &[
    platform(
        ("linux", "x64"),
        "x86_64-unknown-linux-musl",
        &[
            "manylinux_2_17_x86_64",
            "manylinux2014_x86_64",
            "musllinux_1_1_x86_64",
        ],
    ),
    platform(
        ("linux", "arm64"),
        "aarch64-unknown-linux-musl",
        &[
            "manylinux_2_17_aarch64",
            "manylinux2014_aarch64",
            "musllinux_1_1_aarch64",
        ],
    ),
    platform(("win32", "x64"), "x86_64-pc-windows-gnu", &["win_amd64"]),
    platform(
        ("darwin", "arm64"),
        "aarch64-apple-darwin",
        &["macosx_11_0_arm64"],
    ),
    platform(
        ("darwin", "x64"),
        "x86_64-apple-darwin",
        &["macosx_10_12_x86_64"],
    ),
];

const fn platform(
    (os, cpu): (&'static str, &'static str),
    target: &'static str,
    wheel_tags: &'static [&'static str],
) -> Platform {
    Platform {
        os,
        cpu,
        target,
        wheel_tags,
    }
}

impl Platform {
    /// The platform with this name, such as `linux-x64`.
    pub(super) fn named(name: &str) -> Result<Platform> {
        let known: Vec<String> = PLATFORMS.iter().map(Platform::name).collect();
        let found = known.iter().position(|known| known == name);
        let known = known.join(", ");
        let found =
            found.with_context(|| format!("there is no platform `{name}`; there are {known}"))?;
        Ok(PLATFORMS[found])
    }

    /// The platform of this machine. Skips the step if the program is not published for it.
    pub(super) fn here() -> Result<Platform> {
        let here = PLATFORMS.iter().find(|platform| platform.is_here());
        here.copied()
            .ok_or_else(|| skip("no packages are made for this platform"))
    }

    /// Whether this machine can run the program of this platform.
    pub(super) fn is_here(&self) -> bool {
        let os = match self.os {
            "darwin" => "macos",
            "win32" => "windows",
            other => other,
        };
        let cpu = match self.cpu {
            "x64" => "x86_64",
            _ => "aarch64",
        };
        os == consts::OS && cpu == consts::ARCH
    }

    /// Such as `linux-x64`.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.os, self.cpu)
    }

    /// The file name of the program.
    pub(super) fn program(&self) -> &'static str {
        match self.os {
            "win32" => "everlink.exe",
            _ => "everlink",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PLATFORMS, Platform};

    #[test]
    fn every_platform_is_found_by_its_name() {
        for platform in PLATFORMS {
            let found = Platform::named(&platform.name()).expect("a platform");
            assert_eq!(found.target, platform.target);
        }
    }

    #[test]
    fn an_unknown_platform_is_refused_with_the_known_ones() {
        let error = Platform::named("amiga-m68k").expect_err("no platform");
        assert!(error.to_string().contains("linux-x64"));
    }
}
