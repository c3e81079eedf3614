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

/// For each target, the inputs that a set cover of all branches needs become the committed ones. Should that be too much, the
/// longest are left out.
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
    let directory = target.grown().with_extension("picked");
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
    }
    engine.merge(target, &directory)?;
    let mut picked = Corpus::at(&directory)?;
    let all = picked.0.len();
    picked.0.sort_by_key(|file| file.bytes);
    while picked.0.len() > FILES || picked.bytes() > BYTES {
        picked.0.pop();
    }
    let lost = all - picked.0.len();
    if lost > 0 {
        eprintln!(
            "{}: there is no room for {lost} of {all} inputs",
            target.name
        );
    }
    Ok(picked)
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
