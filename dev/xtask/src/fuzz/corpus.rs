//! `cargo xtask fuzz --minimise`: chooses the committed inputs, few enough for every run of the tests to replay.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use super::Target;
use super::engine::Engine;
use crate::step;

/// The limits for one target; for all targets, fewer than 4,000 files and 1.5 MB.
const MAX_FILES: usize = 440;
const MAX_BYTES: u64 = 160_000;

/// The prefix of handwritten inputs, which are never removed.
const HANDWRITTEN_PREFIX: &str = "hand-";

/// For each target, commits the inputs that a set cover of all branches needs. If these exceed the limits, the longest are left out.
pub(super) fn minimise(engine: &Engine, targets: &[Target]) -> Result<()> {
    for target in targets {
        let committed = target.committed_corpus();
        let before = corpus(&committed)?;
        let picked = pick(engine, target)?;
        for (file, _) in before.iter().filter(|(file, _)| !is_handwritten(file)) {
            fs::remove_file(file)?;
        }
        for (file, _) in picked {
            fs::copy(&file, committed.join(file.file_name().unwrap_or_default()))?;
        }
        let after = corpus(&committed)?;
        eprintln!(
            "{:<14} {:>5} files, {:>7} bytes -> {:>5} files, {:>7} bytes",
            target.name,
            before.len(),
            bytes(&before),
            after.len(),
            bytes(&after)
        );
    }
    Ok(())
}

fn pick(engine: &Engine, target: &Target) -> Result<Vec<File>> {
    let directory = target.local_corpus().with_extension("picked");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    engine.merge(target, &directory)?;
    let mut picked = corpus(&directory)?;
    let all = picked.len();
    picked.sort_by_key(|(_, bytes)| *bytes);
    while picked.len() > MAX_FILES || bytes(&picked) > MAX_BYTES {
        picked.pop();
    }
    let left_out = all - picked.len();
    if left_out > 0 {
        let name = &target.name;
        eprintln!("{name}: there is no room for {left_out} of {all} inputs");
    }
    Ok(picked)
}

/// A file and the number of its bytes.
type File = (PathBuf, u64);

/// The files of a directory.
fn corpus(directory: &Path) -> Result<Vec<File>> {
    let files = step::files(directory, "")?.into_iter();
    let sized = files.map(|file| {
        let file = step::root().join(file);
        let bytes = fs::metadata(&file)?.len();
        Ok((file, bytes))
    });
    sized.collect()
}

fn bytes(files: &[File]) -> u64 {
    files.iter().map(|(_, bytes)| bytes).sum()
}

fn is_handwritten(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(HANDWRITTEN_PREFIX)
}
