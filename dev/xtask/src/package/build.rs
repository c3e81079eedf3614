//! Builds the program for a platform, so that its bytes do not depend on where it is built. Must not pack anything.

use std::env;
use std::env::consts;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader};
use xshell::cmd;

use super::platform::Platform;
use crate::install::{need_program, need_target};
use crate::step::{cargo_in, root, shell, skip, target};

/// The profile of published programs.
const PROFILE: &str = "dist";

/// A program for a platform.
pub(super) struct Program {
    pub(super) platform: Platform,
    pub(super) file: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Program {
    pub(super) fn read(platform: Platform, file: PathBuf) -> Result<Program> {
        Ok(Program {
            platform,
            bytes: fs::read(&file)?,
            file,
        })
    }
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

/// Builds the program for this platform, and checks that it can be published. It is skipped if this machine cannot build it.
pub(super) fn build(platform: &Platform, place: &Place) -> Result<Program> {
    let tools = tools(platform)?;
    let name = platform.target;
    need_target(name)?;
    let prefixes = prefixes(place);
    let remapped = |option: &str| {
        let options = prefixes.iter();
        let options = options.map(|(from, to)| format!("{option}={}={to}", from.display()));
        options.collect::<Vec<_>>()
    };
    let mut flags = remapped("--remap-path-prefix");
    flags.extend(tools.flags.iter().map(|&flag| flag.to_owned()));
    let underscored = name.replace('-', "_");
    let shell = shell()?;
    shell.change_dir(&place.source);
    let build =
        format!("build --locked --package everlink-cli --profile {PROFILE} --target {name}");
    let mut build = cargo_in(&shell, &build)
        .env("CARGO_TARGET_DIR", &place.target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env(
            format!("CFLAGS_{underscored}"),
            remapped("-ffile-prefix-map").join(" "),
        );
    if platform.os != "darwin" {
        build = build.env(format!("CC_{underscored}"), tools.compiler);
    }
    if let Some(linker) = tools.linker {
        let variable = format!("CARGO_TARGET_{}_LINKER", underscored.to_uppercase());
        build = build.env(variable, linker);
    }
    build.run()?;
    let directory = place.target.join(name).join(PROFILE);
    let program = Program::read(*platform, directory.join(platform.program()))?;
    check_paths(&program.bytes, place)?;
    ensure!(
        platform.os != "linux" || !needs_loader(&program.bytes)?,
        "the program for {name} is not static"
    );
    Ok(program)
}

/// The tools for this platform, which are installed if that is possible.
fn tools(platform: &Platform) -> Result<Tools> {
    let needed = |compiler: &'static str, package: &str| {
        let needed = need_program(compiler, package);
        needed.with_context(|| format!("on Debian it is in the package {package}"))?;
        Ok::<_, anyhow::Error>(compiler)
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
        ("darwin", _) => Err(skip("it needs the linker and the libraries of macOS")),
        _ => Err(skip(format!(
            "there is no compiler for it on {}",
            consts::OS
        ))),
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
fn check_paths(program: &[u8], place: &Place) -> Result<()> {
    let mut names: Vec<PathBuf> = prefixes(place).into_iter().map(|(from, _)| from).collect();
    names.extend(env::var_os("HOME").map(PathBuf::from));
    for name in names {
        // With a separator: the texts of the program contain `notifications/roots`, and a home directory may be `/root`.
        let path = format!("{}/", name.display());
        let bytes = path.as_bytes();
        let mut windows = program.windows(bytes.len());
        let has_path = bytes != b"/" && windows.any(|window| window == bytes);
        ensure!(!has_path, "the program contains the path {path}");
    }
    Ok(())
}

/// Whether an ELF program names a loader for shared libraries.
fn needs_loader(program: &[u8]) -> Result<bool> {
    let file = ElfFile64::<object::Endianness>::parse(program)?;
    let mut segments = file.elf_program_headers().iter();
    Ok(segments.any(|segment| segment.p_type(file.endian()) == PT_INTERP))
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
pub(super) fn copy_of_source(directory: &Path) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(directory);
    let shell = shell()?;
    let listed = cmd!(
        shell,
        "git ls-files --cached --others --exclude-standard -z"
    )
    .read()?;
    for file in listed.split_terminator('\0') {
        let (from, to) = (root().join(file), directory.join(file));
        // A file may be deleted and not committed.
        if from.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(directory))?;
            fs::copy(from, to)?;
        }
    }
    Ok(directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_with_an_interpreter_needs_a_loader() {
        if cfg!(target_os = "linux") {
            let dynamic = fs::read("/proc/self/exe").expect("this program");
            assert!(needs_loader(&dynamic).expect("an ELF file"));
            // The type of the program header that names the loader becomes an unknown one.
            let file = ElfFile64::<object::Endianness>::parse(&*dynamic).expect("an ELF file");
            let headers = file.elf_program_headers();
            let at = headers
                .iter()
                .position(|header| header.p_type(file.endian()) == PT_INTERP);
            let place = 0x40 + 0x38 * at.expect("a loader");
            let mut fixed = dynamic.clone();
            fixed[place] = 0x70;
            assert!(!needs_loader(&fixed).expect("an ELF file"));
        }
        assert!(needs_loader(b"").is_err());
    }
}
