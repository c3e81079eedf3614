//! `cargo xtask fuzz --minimise`: chooses the committed inputs, few enough for every run of the tests to replay.

use std::fs;
use std::path::{Path, PathBuf};

use super::Target;
use super::engine::Engine;

/// The limits for one target; for all targets, fewer than 4,000 files and 1.5 MB.
const MAX_FILES: usize = 440;
const MAX_BYTES: u64 = 160_000;

/// The prefix of handwritten inputs, which are never removed.
const HANDWRITTEN_PREFIX: &str = "hand-";

/// For each target, commits the inputs that a set cover of all branches needs. If these exceed the limits, the longest are left out.
pub(super) fn minimise(engine: &Engine, targets: &[Target]) -> Result<(), String> {
    for target in targets {
        let (before, picked) = (
            Corpus::at(&target.committed_corpus())?,
            pick(engine, target)?,
        );
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
    let directory = target.local_corpus().with_extension("picked");
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
    }
    engine.merge(target, &directory)?;
    let mut picked = Corpus::at(&directory)?;
    let all = picked.0.len();
    picked.0.sort_by_key(|file| file.bytes);
    while picked.0.len() > MAX_FILES || picked.bytes() > MAX_BYTES {
        picked.0.pop();
    }
    let left_out = all - picked.0.len();
    if left_out > 0 {
        eprintln!(
            "{}: there is no room for {left_out} of {all} inputs",
            target.name
        );
    }
    Ok(picked)
}

fn replace(target: &Target, picked: &Corpus) -> Result<Corpus, String> {
    let committed_corpus = target.committed_corpus();
    for file in Corpus::at(&committed_corpus)?.0 {
        if !file.is_handwritten() {
            fs::remove_file(&file.path).map_err(|error| failed(&file.path, &error))?;
        }
    }
    for File { path, .. } in &picked.0 {
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, committed_corpus.join(name)).map_err(|error| failed(path, &error))?;
    }
    Corpus::at(&committed_corpus)
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
    fn is_handwritten(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(HANDWRITTEN_PREFIX)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
