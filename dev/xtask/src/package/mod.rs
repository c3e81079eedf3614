//! `cargo xtask package`: builds the program for each platform, and packs it for PyPI, npm and direct downloads.
//!
//! `platform` lists the platforms, and `build` builds for one of them. `dependencies` lists the packages in the program, for `sbom` and `licences`. `wheel` and
//! `npm` pack, and `archive` writes their files. `install` installs the packages and runs them, and kills them.

mod archive;
mod build;
mod dependencies;
mod install;
mod licences;
mod npm;
mod platform;
mod sbom;
mod wheel;

use std::env::consts::EXE_EXTENSION;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use pico_args::Arguments;
use xshell::cmd;

use self::archive::{Effort, Entry, sha256_hex};
use self::build::{Place, Program};
pub(crate) use self::install::{check, check_python, run_check, run_kills};
use self::platform::{PLATFORMS, Platform};
use crate::step::{self, Skipped, build_as_for_tests, cargo, shell, target, words};

/// The version of the workspace, which all packages have.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// The limit for the bytes of each file.
const MAX_BYTES: usize = 6_000_000;

/// A file for users.
#[derive(Eq, PartialEq)]
struct File {
    name: String,
    bytes: Vec<u8>,
}

/// What the packages of one platform contain.
struct Contents {
    platform: Platform,
    program: Vec<u8>,
    wheel_tags: Vec<String>,
    licences: Vec<Entry>,
    sbom: String,
    effort: Effort,
    /// The manual page and the completions.
    texts: Vec<Entry>,
}

/// Builds and packs all platforms, or the named ones. Names those that this machine cannot build.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let out = arguments.opt_value_from_str("--out")?;
    let mut platforms: Vec<Platform> = arguments.values_from_fn("--target", Platform::named)?;
    words(arguments)?;
    if platforms.is_empty() {
        platforms = PLATFORMS.to_vec();
    }
    let programs = build_all(&platforms, &Place::here())?;
    let files = pack(&programs)?;
    write_all(&out.unwrap_or_else(|| target().join("package")), &files)?;
    check_sizes(&files)?;
    ensure!(!programs.is_empty(), "no program could be built");
    Ok(())
}

/// The programs of these platforms. Names those that this machine cannot build.
fn build_all(platforms: &[Platform], place: &Place) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for platform in platforms {
        match build::build(platform, place) {
            Ok(program) => programs.push(program),
            Err(error) if error.is::<Skipped>() => {
                eprintln!("not built here: {}: {error}", platform.name());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(programs)
}

/// All files for these programs, sorted by name.
fn pack(programs: &[Program]) -> Result<Vec<File>> {
    // The manual page and the completions are printed by a program that runs here. They are the same for all platforms.
    let native = programs.iter().find(|program| program.platform.is_here());
    let texts = match native {
        Some(program) => texts_of(&program.file)?,
        None => {
            cargo("build --package everlink-cli")?;
            texts_of(&debug_path())?
        }
    };
    let mut files = vec![npm::pack_main()?];
    for program in programs {
        let tags = program.platform.wheel_tags.iter();
        let tags = tags.map(|&tag| tag.to_owned()).collect();
        files.extend(pack_one(&contents(program, tags, texts.clone())?)?);
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn contents(program: &Program, wheel_tags: Vec<String>, texts: Vec<Entry>) -> Result<Contents> {
    let platform = program.platform;
    let packages = dependencies::linked(platform.target)?;
    Ok(Contents {
        platform,
        program: program.bytes.clone(),
        wheel_tags,
        licences: licences::entries(&platform, &packages)?,
        sbom: sbom::document(VERSION, &packages),
        effort: Effort::Most,
        texts,
    })
}

/// The files of one platform: wheel, npm package, archive and the list of its packages.
fn pack_one(contents: &Contents) -> Result<Vec<File>> {
    Ok(vec![
        wheel::pack(contents)?,
        npm::pack_platform(contents)?,
        pack_archive(contents)?,
        File {
            name: format!("{}.cyclonedx.json", archive_name(&contents.platform)),
            bytes: contents.sbom.clone().into_bytes(),
        },
    ])
}

/// The archive for direct downloads.
fn pack_archive(contents: &Contents) -> Result<File> {
    let platform = contents.platform;
    let mut entries = vec![
        Entry::executable(platform.program(), contents.program.clone()),
        Entry::new("README.md", step::read("cli/README.md")?),
        Entry::new("everlink.cyclonedx.json", contents.sbom.as_bytes()),
    ];
    entries.extend(contents.licences.iter().chain(&contents.texts).cloned());
    let name = archive_name(&platform);
    if platform.os != "win32" {
        return Ok(File {
            bytes: archive::tar_gz(&name, &entries, contents.effort)?,
            name: format!("{name}.tar.gz"),
        });
    }
    for entry in &mut entries {
        entry.path = format!("{name}/{}", entry.path);
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(File {
        bytes: archive::zip(&entries, contents.effort)?,
        name: format!("{name}.zip"),
    })
}

fn archive_name(platform: &Platform) -> String {
    format!("everlink-{VERSION}-{}", platform.target)
}

/// The program with the features of the tests, so that nothing is compiled after them.
fn tested_program() -> Result<PathBuf> {
    build_as_for_tests()?;
    Ok(debug_path())
}

fn debug_path() -> PathBuf {
    let program = target().join("debug/everlink");
    program.with_extension(EXE_EXTENSION)
}

fn texts_of(program: &Path) -> Result<Vec<Entry>> {
    let shell = shell()?;
    let outputs = [
        ("everlink.1", "man"),
        ("completions/everlink.bash", "completions bash"),
        ("completions/_everlink", "completions zsh"),
        ("completions/everlink.fish", "completions fish"),
        ("completions/_everlink.ps1", "completions powershell"),
    ];
    let entry = |(path, words): (&str, &str)| {
        let text = cmd!(shell, "{program}").args(words.split(' ')).output()?;
        ensure!(
            !text.stdout.is_empty(),
            "`everlink {words}` printed nothing"
        );
        Ok(Entry::new(path, text.stdout))
    };
    outputs.into_iter().map(entry).collect()
}

/// Writes all files and their hashes into this directory, and prints their sizes.
fn write_all(directory: &Path, files: &[File]) -> Result<()> {
    let mut sums = String::new();
    for file in files {
        sums += &format!("{}  {}\n", sha256_hex(&file.bytes), file.name);
        step::write(directory.join(&file.name), &file.bytes)?;
        eprintln!("{:>9} bytes  {}", file.bytes.len(), file.name);
    }
    step::write(directory.join("SHA256SUMS"), sums)?;
    eprintln!("packed into {}", directory.display());
    Ok(())
}

/// Fails if a file is too large.
fn check_sizes(files: &[File]) -> Result<()> {
    for File { name, bytes } in files {
        let bytes = bytes.len();
        ensure!(
            bytes <= MAX_BYTES,
            "{name} has {bytes} bytes, of at most {MAX_BYTES}"
        );
    }
    Ok(())
}

/// The files below a directory, in order, each with its path there and its bytes.
fn sources(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut sources = Vec::new();
    for file in step::files(directory, "")? {
        let file = step::root().join(file);
        let inner = file.strip_prefix(directory).unwrap_or(&file);
        let inner = inner.to_string_lossy().replace('\\', "/");
        sources.push((inner, fs_err::read(&file)?));
    }
    Ok(sources)
}
