//! The platforms that the program is published for, and their names in Rust, npm and Python. Must not build anything.

use std::env::consts;

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
    Platform {
        os: "linux",
        cpu: "x64",
        target: "x86_64-unknown-linux-musl",
        wheel_tags: &[
            "manylinux_2_17_x86_64",
            "manylinux2014_x86_64",
            "musllinux_1_1_x86_64",
        ],
    },
    Platform {
        os: "linux",
        cpu: "arm64",
        target: "aarch64-unknown-linux-musl",
        wheel_tags: &[
            "manylinux_2_17_aarch64",
            "manylinux2014_aarch64",
            "musllinux_1_1_aarch64",
        ],
    },
    Platform {
        os: "win32",
        cpu: "x64",
        target: "x86_64-pc-windows-gnu",
        wheel_tags: &["win_amd64"],
    },
    Platform {
        os: "darwin",
        cpu: "arm64",
        target: "aarch64-apple-darwin",
        wheel_tags: &["macosx_11_0_arm64"],
    },
    Platform {
        os: "darwin",
        cpu: "x64",
        target: "x86_64-apple-darwin",
        wheel_tags: &["macosx_10_12_x86_64"],
    },
];

impl Platform {
    /// The platform with this name, such as `linux-x64`.
    pub(super) fn named(name: &str) -> Result<Platform, String> {
        let found = PLATFORMS.iter().find(|platform| platform.name() == name);
        found.copied().ok_or_else(|| {
            let known: Vec<String> = PLATFORMS.iter().map(Platform::name).collect();
            format!(
                "there is no platform `{name}`; there are {}",
                known.join(", ")
            )
        })
    }

    /// The platform of this machine, if the program is published for it.
    pub(super) fn here() -> Option<Platform> {
        PLATFORMS
            .iter()
            .find(|platform| platform.is_here())
            .copied()
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
            let found = Platform::named(&platform.name());
            assert_eq!(found.map(|found| found.target), Ok(platform.target));
        }
    }

    #[test]
    fn an_unknown_platform_is_refused_with_the_known_ones() {
        let text = Platform::named("amiga-m68k").map(|platform| platform.target);
        assert!(text.is_err_and(|text| text.contains("linux-x64")));
    }
}
