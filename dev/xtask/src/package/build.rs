//! Builds the program for a platform, so that its bytes do not depend on where it is built. Must not pack anything.

use std::env;
use std::env::consts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::platform::Platform;
use crate::install::{rust_target, system_program};
use crate::step::{cargo_with, root, target};

/// The profile of published programs.
const PROFILE: &str = "dist";

/// A program for a platform.
pub(super) struct Program {
    pub(super) platform: Platform,
    pub(super) file: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Program {
    pub(super) fn read(platform: Platform, file: PathBuf) -> Result<Program, String> {
        let bytes = fs::read(&file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        Ok(Program {
            platform,
            file,
            bytes,
        })
    }
}

/// A program that was built, or the reason why this machine cannot build it.
pub(super) enum Build {
    Program(Program),
    Impossible(String),
}

/// Where the source is, and where the build goes.
pub(super) struct Place {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
}

impl Place {
    /// This checkout, with a target directory for packages. The flags differ from those of other builds.
    pub(super) fn here() -> Place {
        Place {
            source: root().to_owned(),
            target: absolute(&target()).join("package-build"),
        }
    }
}

/// The tools that compile and link C code for a target.
struct Tools {
    compiler: &'static str,
    /// `None` for the linker that rustc uses by default.
    linker: Option<&'static str>,
    /// Flags for rustc.
    flags: &'static [&'static str],
}

/// Builds the program for this platform, and checks that it can be published.
pub(super) fn build(platform: &Platform, place: &Place) -> Result<Build, String> {
    let tools = match tools(platform) {
        Ok(tools) => tools,
        Err(reason) => return Ok(Build::Impossible(reason)),
    };
    let name = platform.target;
    if !rust_target(name) {
        let reason = format!("the target {name} is missing and could not be installed");
        return Ok(Build::Impossible(reason));
    }
    let arguments =
        format!("build --locked --package everlink-cli --profile {PROFILE} --target {name}");
    let prefixes = prefixes(place);
    let underscored = name.replace('-', "_");
    cargo_with(&arguments, |command| {
        let remapped = prefixes.iter().map(|(from, to)| {
            let from = from.display();
            format!("--remap-path-prefix={from}={to}")
        });
        let flags = remapped.chain(tools.flags.iter().map(|&flag| flag.to_owned()));
        let flags: Vec<String> = flags.collect();
        let c_flags = prefixes
            .iter()
            .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
        let c_flags: Vec<String> = c_flags.collect();
        command
            .current_dir(&place.source)
            .env("CARGO_TARGET_DIR", &place.target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env(format!("CFLAGS_{underscored}"), c_flags.join(" "));
        if platform.os != "darwin" {
            command.env(format!("CC_{underscored}"), tools.compiler);
        }
        if let Some(linker) = tools.linker {
            let variable = format!("CARGO_TARGET_{}_LINKER", underscored.to_uppercase());
            command.env(variable, linker);
        }
    })?;
    let file = place
        .target
        .join(name)
        .join(PROFILE)
        .join(platform.program());
    let program = Program::read(*platform, file)?;
    check_paths(&program.bytes, place)?;
    if platform.os == "linux" && needs_loader(&program.bytes) {
        return Err(format!("the program for {name} is not static"));
    }
    Ok(Build::Program(program))
}

/// The tools for this platform, which are installed if that is possible. The error says why there are none.
fn tools(platform: &Platform) -> Result<Tools, String> {
    let needed = |program: &'static str, package: &str| match system_program(program, package) {
        true => Ok(program),
        false => Err(format!(
            "`{program}` is missing and could not be installed; on Debian it is in the package {package}"
        )),
    };
    match (platform.os, consts::OS) {
        ("linux", "linux") if platform.is_here() => Ok(Tools {
            compiler: needed("musl-gcc", "musl-tools")?,
            linker: None,
            flags: &[],
        }),
        ("linux", "linux") if platform.cpu == "arm64" => {
            // Only the headers of the C library are used.
            let package = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross";
            Ok(Tools {
                compiler: needed("aarch64-linux-gnu-gcc", package)?,
                linker: Some("rust-lld"),
                flags: &["-Clink-self-contained=yes"],
            })
        }
        ("win32", "linux") => Ok(Tools {
            compiler: needed("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64")?,
            linker: None,
            // The linker would write the time into the program.
            flags: &["-Clink-arg=-Wl,--no-insert-timestamp"],
        }),
        ("darwin", "macos") => Ok(Tools {
            compiler: "cc",
            linker: None,
            flags: &[],
        }),
        ("darwin", _) => Err("it needs the linker and the libraries of macOS".into()),
        _ => Err(format!("there is no compiler for it on {}", consts::OS)),
    }
}

/// The directories whose names must not be in the program, and what replaces them there. The longest match comes last, and rustc takes the last.
fn prefixes(place: &Place) -> Vec<(PathBuf, &'static str)> {
    let mut prefixes = vec![
        (cargo_home(), "cargo"),
        (place.source.clone(), "everlink"),
        (place.target.clone(), "target"),
    ];
    // The name of this directory depends on the registry.
    let registries = fs::read_dir(cargo_home().join("registry/src"));
    for registry in registries.into_iter().flatten().flatten() {
        prefixes.push((registry.path(), "crates"));
    }
    prefixes
}

/// Fails if the program contains the name of a directory of this machine.
fn check_paths(program: &[u8], place: &Place) -> Result<(), String> {
    let mut names: Vec<PathBuf> = prefixes(place).into_iter().map(|(from, _)| from).collect();
    names.extend(env::var_os("HOME").map(PathBuf::from));
    for name in names {
        // With a separator: the texts of the program contain `notifications/roots`, and a home directory may be `/root`.
        let path = format!("{}/", name.display());
        let bytes = path.as_bytes();
        let mut windows = program.windows(bytes.len());
        if bytes != b"/" && windows.any(|window| window == bytes) {
            return Err(format!("the program contains the path {path}"));
        }
    }
    Ok(())
}

/// Whether an ELF program names a loader for shared libraries, in a program header of the type `PT_INTERP`.
fn needs_loader(program: &[u8]) -> bool {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at + length).unwrap_or_default();
        let bytes = bytes.iter().rev();
        bytes.fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX / 2);
    // Offsets of the 64-bit ELF header: the table, the size of an entry, and their number.
    let (table, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    (0..count).any(|index| number(place(table + index * size), 4) == INTERPRETER)
}

fn cargo_home() -> PathBuf {
    env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    )
}

/// The path from the root of the file system.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Copies all files that git knows into another directory, and returns it. Two builds from different directories must give the same bytes.
pub(super) fn copy_of_source(directory: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    let _ = fs::remove_dir_all(directory);
    let listed = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .current_dir(root())
        .output()
        .map_err(|error| format!("`git` could not start: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    for file in listed.split_terminator('\0') {
        let (from, to) = (root().join(file), directory.join(file));
        // A file may be deleted and not committed.
        if from.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(directory)).map_err(failed)?;
            fs::copy(from, to).map_err(failed)?;
        }
    }
    Ok(directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::needs_loader;

    /// A header of an ELF file with one program header of this type.
    fn elf(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 0x80];
        bytes[0x20] = 0x40;
        bytes[0x36] = 0x38;
        bytes[0x38] = 1;
        bytes[0x40] = kind;
        bytes
    }

    #[test]
    fn only_a_program_with_an_interpreter_needs_a_loader() {
        assert!(needs_loader(&elf(3)));
        assert!(!needs_loader(&elf(1)));
        assert!(!needs_loader(b""));
    }
}
