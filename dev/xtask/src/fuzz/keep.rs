//! `cargo xtask fuzz --minimise`: which inputs are committed, so few that every run of the tests can replay them.

use std::fs;
use std::path::{Path, PathBuf};

use super::Target;
use super::engine::Engine;

/// The most that is committed for one target: of all of them, fewer than 4,000 files and 1.5 MB.
const FILES: usize = 440;
const BYTES: u64 = 160_000;

/// What was written by hand stays, whatever it shows.
const BY_HAND: &str = "hand-";

/// For each target, the smallest corpus that shows all that is known becomes the committed one.
///
/// Inputs are picked by set cover, of branches with how often they are taken. Where that comes to more than is committed, it is
/// set cover of the branches alone; and should that be too much, the longest are left out.
pub(super) fn minimise(engine: &Engine, targets: &[Target]) -> Result<(), String> {
    for target in targets {
        let (before, picked) = (Corpus::at(&target.committed())?, pick(engine, target)?);
        let after = replace(target, &picked)?;
        eprintln!(
            "{:<14} {:>5} files, {:>7} bytes -> {:>5} files, {:>7} bytes",
            target.name,
            before.0.len(),
            before.bytes(),
            after.0.len(),
            after.bytes()
        );
    }
    Ok(())
}

fn pick(engine: &Engine, target: &Target) -> Result<Corpus, String> {
    let with_counts = merged(engine, target, true)?;
    if with_counts.fits() {
        return Ok(with_counts);
    }
    let mut branches = merged(engine, target, false)?;
    let all = branches.0.len();
    branches.0.sort_by_key(|file| file.bytes);
    while !branches.fits() {
        branches.0.pop();
    }
    let lost = all - branches.0.len();
    if lost > 0 {
        eprintln!(
            "{}: there is no room for {lost} of {all} inputs",
            target.name
        );
    }
    Ok(branches)
}

/// The inputs that were picked, beside what has grown.
fn merged(engine: &Engine, target: &Target, counts: bool) -> Result<Corpus, String> {
    let picked = target.grown().with_extension("picked");
    if picked.exists() {
        fs::remove_dir_all(&picked).map_err(|error| failed(&picked, &error))?;
    }
    engine.merge(target, &picked, counts)?;
    Corpus::at(&picked)
}

fn replace(target: &Target, picked: &Corpus) -> Result<Corpus, String> {
    let committed = target.committed();
    for file in Corpus::at(&committed)?.0 {
        if !file.is_by_hand() {
            fs::remove_file(&file.path).map_err(|error| failed(&file.path, &error))?;
        }
    }
    for File { path, .. } in &picked.0 {
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, committed.join(name)).map_err(|error| failed(path, &error))?;
    }
    Corpus::at(&committed)
}

/// The files of a directory.
struct Corpus(Vec<File>);

struct File {
    path: PathBuf,
    bytes: u64,
}

impl Corpus {
    fn at(directory: &Path) -> Result<Corpus, String> {
        let entries = fs::read_dir(directory).map_err(|error| failed(directory, &error))?;
        let files = entries.map(|entry| {
            let path = entry?.path();
            let bytes = path.metadata()?.len();
            Ok(File { path, bytes })
        });
        let files: Result<_, std::io::Error> = files.collect();
        files.map(Corpus).map_err(|error| failed(directory, &error))
    }

    fn fits(&self) -> bool {
        self.0.len() <= FILES && self.bytes() <= BYTES
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|file| file.bytes).sum()
    }
}

impl File {
    fn is_by_hand(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(BY_HAND)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
