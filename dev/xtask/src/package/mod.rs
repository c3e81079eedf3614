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
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::archive::{Effort, Entry, sha256_hex};
use self::build::{Build, Place, Program};
pub(crate) use self::install::{check, check_python, run_check, run_kills};
use self::platform::{PLATFORMS, Platform};
use crate::step::{self, build_as_for_tests, cargo, target};

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

/// The parsed arguments.
struct Options {
    out: PathBuf,
    platforms: Vec<Platform>,
}

/// Builds and packs all platforms, or the named ones. Names those that this machine cannot build.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let (programs, missing) = build_all(&options.platforms, &Place::here())?;
    let files = pack(&programs)?;
    write_all(&options.out, &files)?;
    for reason in &missing {
        eprintln!("not built here: {reason}");
    }
    check_sizes(&files)?;
    match programs.is_empty() {
        true => Err("no program could be built".into()),
        false => Ok(()),
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        out: target().join("package"),
        platforms: Vec::new(),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        let value = value.ok_or_else(|| format!("{argument} must be followed by a value"))?;
        match argument.as_str() {
            "--out" => options.out = PathBuf::from(value),
            "--target" => options.platforms.push(Platform::named(value)?),
            _ => return Err(format!("there is no option `{argument}`")),
        }
    }
    if options.platforms.is_empty() {
        options.platforms = PLATFORMS.to_vec();
    }
    Ok(options)
}

/// The programs of these platforms, and the reasons for those that this machine cannot build.
fn build_all(platforms: &[Platform], place: &Place) -> Result<(Vec<Program>, Vec<String>), String> {
    let (mut programs, mut missing) = (Vec::new(), Vec::new());
    for platform in platforms {
        match build::build(platform, place)? {
            Build::Program(program) => programs.push(program),
            Build::Impossible(reason) => missing.push(format!("{}: {reason}", platform.name())),
        }
    }
    Ok((programs, missing))
}

/// All files for these programs, sorted by name.
fn pack(programs: &[Program]) -> Result<Vec<File>, String> {
    let texts = texts(programs)?;
    let mut files = vec![npm::pack_main()?];
    for program in programs {
        let tags = program.platform.wheel_tags.iter();
        let tags = tags.map(|&tag| tag.to_owned()).collect();
        let contents = contents(program, tags, texts.clone())?;
        files.extend(pack_one(&contents)?);
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn contents(
    program: &Program,
    wheel_tags: Vec<String>,
    texts: Vec<Entry>,
) -> Result<Contents, String> {
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
fn pack_one(contents: &Contents) -> Result<Vec<File>, String> {
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
fn pack_archive(contents: &Contents) -> Result<File, String> {
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

/// The manual page and the completions, printed by a program that runs here. They are the same for all platforms.
fn texts(programs: &[Program]) -> Result<Vec<Entry>, String> {
    let native = programs.iter().find(|program| program.platform.is_here());
    match native {
        Some(program) => texts_of(&program.file),
        None => texts_of(&debug_program()?),
    }
}

/// Builds the program for this machine, without optimisation.
fn debug_program() -> Result<PathBuf, String> {
    cargo("build --package everlink-cli")?;
    Ok(debug_path())
}

/// The same with the features of the tests, so that nothing is compiled after them.
fn tested_program() -> Result<PathBuf, String> {
    build_as_for_tests()?;
    Ok(debug_path())
}

fn debug_path() -> PathBuf {
    let program = target().join("debug/everlink");
    program.with_extension(EXE_EXTENSION)
}

fn texts_of(program: &Path) -> Result<Vec<Entry>, String> {
    let outputs = [
        ("everlink.1", &["man"][..]),
        ("completions/everlink.bash", &["completions", "bash"]),
        ("completions/_everlink", &["completions", "zsh"]),
        ("completions/everlink.fish", &["completions", "fish"]),
        ("completions/_everlink.ps1", &["completions", "powershell"]),
    ];
    let mut entries = Vec::new();
    for (path, words) in outputs {
        let output = Command::new(program)
            .args(words)
            .output()
            .map_err(|error| format!("{} could not start: {error}", program.display()))?;
        if !output.status.success() || output.stdout.is_empty() {
            return Err(format!(
                "`everlink {}` printed nothing, and ended with {}",
                words.join(" "),
                output.status
            ));
        }
        entries.push(Entry::new(path, output.stdout));
    }
    Ok(entries)
}

/// Writes all files and their hashes into this directory, and prints their sizes.
fn write_all(directory: &Path, files: &[File]) -> Result<(), String> {
    let failed = |error| format!("{} cannot be written: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    let mut sums = String::new();
    for file in files {
        let hash = sha256_hex(&file.bytes);
        sums.push_str(&format!("{hash}  {}\n", file.name));
        fs::write(directory.join(&file.name), &file.bytes).map_err(failed)?;
        eprintln!("{:>9} bytes  {}", file.bytes.len(), file.name);
    }
    fs::write(directory.join("SHA256SUMS"), sums).map_err(failed)?;
    eprintln!("packed into {}", directory.display());
    Ok(())
}

/// Fails if a file is too large.
fn check_sizes(files: &[File]) -> Result<(), String> {
    let large = files.iter().find(|file| file.bytes.len() > MAX_BYTES);
    large.map_or(Ok(()), |file| {
        let bytes = file.bytes.len();
        Err(format!(
            "{} has {bytes} bytes, of at most {MAX_BYTES}",
            file.name
        ))
    })
}
