//! The parts of a recording: rotation and compression when it is written, and the parts in their order when it is read.
//!
//! The newest part is the file itself. Finished parts are `FILE.1.gz`, `FILE.2.gz` and so on, oldest first. A part that was not compressed before the
//! process was killed is `FILE.1`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::system::{for_sole_writer, is_at, is_locked, lock, make_private, open_at_once, private};

/// The first line of every part but the first, which begins with the setup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartHeader {
    pub(super) part: usize,
    /// The seed of the recording to which the part belongs. It differs between recordings.
    pub(super) seed: u64,
}

/// The maximum length of a [`PartHeader`] line in bytes.
const MAX_HEADER: u64 = 1024;

/// The number of processes that can record with the same name at once. A host that restarts its guard starts the new one before the old one has ended.
const MAX_WRITERS: usize = 9;

/// How often a file is opened again whose path leads elsewhere. On some network file systems, no file looks like the one that was opened.
const MAX_ATTEMPTS: usize = 100;

/// The files of a recording that is being written.
pub(super) struct PartWriter {
    pub(super) path: PathBuf,
    file: File,
    /// Whether it can be seen if the path still leads to the file. On some network file systems it cannot.
    has_known_place: bool,
    /// The size in bytes at which a new part starts. `None`: the recording has one part.
    limit: Option<usize>,
    /// The number of the present part.
    part: usize,
    seed: u64,
    /// The number of bytes in the present part.
    len: usize,
    /// The threads that compress finished parts.
    compressions: Vec<thread::JoinHandle<()>>,
}

impl PartWriter {
    /// Creates the file, and replaces an existing one. Does not delete old parts such as `FILE.3.gz`, because they may be other files. A new part with the
    /// same number replaces them.
    ///
    /// If another process writes the file, takes the next free name: `l-2.jsonl` to `l-9.jsonl` for `l.jsonl`. Nobody asked for that name, so a file that
    /// is no recording is left alone.
    pub(super) fn create(path: &Path, limit: Option<usize>, seed: u64) -> io::Result<PartWriter> {
        let mut number = 1;
        let (path, file) = loop {
            let path = numbered_path(path, number);
            let file = match number == 1 || is_replaceable(&path) {
                true => create_private_file(&path)?,
                false => None,
            };
            match file {
                Some(file) => break (path, file),
                None if number == MAX_WRITERS => {
                    let last = path.display();
                    let text = format!(
                        "other processes write this file, and the names up to {last} are taken; name another file"
                    );
                    return Err(io::Error::new(ErrorKind::ResourceBusy, text));
                }
                None => number += 1,
            }
        };
        Ok(PartWriter {
            has_known_place: is_at(&file, &path)?,
            path,
            file,
            limit,
            part: 1,
            seed,
            len: 0,
            compressions: Vec::new(),
        })
    }

    /// Writes whole lines. Starts a new part if the present one has reached its limit.
    pub(super) fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.len += lines.len();
        match self.limit {
            Some(limit) if self.len >= limit => self.rotate(),
            _ => Ok(()),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.has_known_place && !is_at(&self.file, &self.path)? {
            // Another process may write the file that has the name now.
            let path = self.path.display();
            let text = format!("{path} was moved or removed, so no further part can follow");
            return Err(io::Error::other(text));
        }
        self.compressions.retain(|thread| !thread.is_finished());
        let finished = part_path(&self.path, self.part);
        self.file = replace_locked(&self.path, &finished)?;
        let compressed = compressed_path(&self.path, self.part);
        // The link must not wait for this. Without a thread, the part stays as it is.
        let compress = move || drop(compress(&finished, &compressed));
        let thread = thread::Builder::new().name("compress".into());
        self.compressions.extend(thread.spawn(compress));
        self.part += 1;
        let header = PartHeader {
            part: self.part,
            seed: self.seed,
        };
        let mut header = serde_json::to_vec(&header)?;
        header.push(b'\n');
        self.len = header.len();
        self.file.write_all(&header)
    }
}

/// Waits until all finished parts are compressed.
impl Drop for PartWriter {
    fn drop(&mut self) {
        for thread in self.compressions.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Compresses a finished part. The original is removed when the compressed file is complete, so nothing is lost if the process is killed.
fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = with_suffix(to, ".tmp");
    let mut source = File::open(from)?;
    let target = BufWriter::new(create_private_file(&unfinished)?.ok_or(ErrorKind::ResourceBusy)?);
    let mut encoder = GzEncoder::new(target, Compression::fast());
    let written = io::copy(&mut source, &mut encoder)
        .and_then(|_| encoder.finish()?.flush())
        .and_then(|()| fs::rename(&unfinished, to));
    match written {
        Ok(()) => fs::remove_file(from),
        Err(error) => {
            let _ = fs::remove_file(&unfinished);
            Err(error)
        }
    }
}

/// Reads the lines of a recording, each with its newline. Lines are bytes, not strings, because a truncated recording may end inside a character.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    /// The parts that were not read yet, the last one first.
    parts: Vec<PathBuf>,
    /// The part that is read.
    path: PathBuf,
    /// The number of parts that were opened.
    opened: usize,
    seed: Option<u64>,
}

impl Lines {
    /// Opens all parts of a rotated recording, or the one file of a recording without rotation.
    pub(super) fn open(path: &Path) -> io::Result<Lines> {
        let mut parts = Vec::new();
        for part in 1..newest_part(path)? {
            let plain = part_path(path, part);
            let compressed = compressed_path(path, part);
            // Prefers the plain file: `compress` removes it only after the compressed file is complete.
            match [plain, compressed].into_iter().find(|path| path.is_file()) {
                Some(path) => parts.push(path),
                None => break,
            }
        }
        // If the process was killed during `rotate`, the newest part does not exist.
        if parts.is_empty() || path.exists() {
            parts.push(path.to_owned());
        }
        parts.reverse();
        let mut lines = Lines {
            reader: Box::new(io::empty()),
            parts,
            path: PathBuf::new(),
            opened: 0,
            seed: None,
        };
        lines.open_next()?;
        Ok(lines)
    }

    /// Sets the seed of the recording. Reading fails at a later part with another seed.
    pub(super) const fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            if self.reader.read_until(b'\n', &mut line)? > 0 {
                return Ok(Some(line));
            }
            if self.parts.is_empty() {
                return Ok(None);
            }
            self.open_next()?;
            self.check_header()?;
        }
    }

    fn open_next(&mut self) -> io::Result<()> {
        let Some(path) = self.parts.pop() else {
            return Ok(());
        };
        self.path.clone_from(&path);
        let mut reader = BufReader::new(File::open(path)?);
        self.opened += 1;
        let is_compressed = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        self.reader = if is_compressed {
            Box::new(BufReader::new(MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        Ok(())
    }

    /// Reads the first line of a later part, and fails if the part does not belong here.
    fn check_header(&mut self) -> io::Result<()> {
        let mut line = Vec::new();
        // A part that was created but not written has no header, and no other line.
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let header: Option<PartHeader> = serde_json::from_slice(&line).ok();
        match header {
            Some(header) if header.part == self.opened && Some(header.seed) == self.seed => Ok(()),
            header => {
                let (path, part) = (self.path.display(), self.opened);
                let found = match header {
                    Some(header) if Some(header.seed) == self.seed => {
                        format!("is part {}", header.part)
                    }
                    Some(header) => format!("is part {} of another recording", header.part),
                    None => "is no later part of a recording".to_owned(),
                };
                let text = format!(
                    "part {part} of this recording is expected in {path}, but that file {found}; a replay needs all parts"
                );
                Err(io::Error::new(ErrorKind::InvalidData, text))
            }
        }
    }
}

/// Returns the number of the newest part, which is the file itself. `usize::MAX` if it is missing or empty: then the other parts are all that there is.
fn newest_part(path: &Path) -> io::Result<usize> {
    let mut line = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(usize::MAX),
        file => BufReader::new(file?.take(MAX_HEADER)).read_until(b'\n', &mut line)?,
    };
    let header: Option<PartHeader> = serde_json::from_slice(&line).ok();
    Ok(match header {
        Some(header) => header.part,
        None if line.is_empty() => usize::MAX,
        None => 1,
    })
}

/// Returns the name for the process with this number: the path itself, then `l-2.jsonl` for `l.jsonl`, and so on.
fn numbered_path(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Whether there is no file of this name, an empty one, or a recording.
fn is_replaceable(path: &Path) -> bool {
    let mut line = Vec::new();
    let read = match fs::metadata(path) {
        Err(error) => return error.kind() == ErrorKind::NotFound,
        // To open a pipe would wait for its other end.
        Ok(metadata) if !metadata.is_file() => return false,
        Ok(_) => File::open(path),
    };
    let read = read.map(|file| BufReader::new(file.take(MAX_HEADER)));
    let read = read.and_then(|mut file| file.read_until(b'\n', &mut line));
    let is_recording =
        line.starts_with(b"{\"everlink\":") || serde_json::from_slice::<PartHeader>(&line).is_ok();
    read.is_ok() && (line.is_empty() || is_recording)
}

fn part_path(path: &Path, part: usize) -> PathBuf {
    with_suffix(path, &format!(".{part}"))
}

fn compressed_path(path: &Path, part: usize) -> PathBuf {
    with_suffix(path, &format!(".{part}.gz"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Gives the file at `path` the name `finished`, and puts a new file in its place, which is locked before it has the name. So no other process can take
/// the name in between.
fn replace_locked(path: &Path, finished: &Path) -> io::Result<File> {
    let unnamed = with_suffix(path, ".next");
    let file = create_private_file(&unnamed)?.ok_or(ErrorKind::ResourceBusy)?;
    match fs::remove_file(finished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if cfg!(windows) || fs::hard_link(path, finished).is_err() {
        // Some file systems have no second names for a file, and Windows replaces no open file. There, the name is free for a moment, and belongs to
        // whoever takes it.
        fs::rename(path, finished)?;
        drop(file);
        let _ = fs::remove_file(unnamed);
        return Ok(create_private_file(path)?.ok_or(ErrorKind::ResourceBusy)?);
    }
    fs::rename(unnamed, path)?;
    Ok(file)
}

/// Creates an empty file that only the user can read, because it holds messages of the server. Returns `None` if another process writes the file,
/// and leaves its content alone.
fn create_private_file(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // The file is emptied when it is locked.
    private(for_sole_writer(
        options.write(true).create(true).truncate(false),
    ));
    let mut attempt = 0;
    let file = loop {
        attempt += 1;
        let opened = match open_at_once(&options, path) {
            Err(error) if is_locked(&error) => return Ok(None),
            opened => opened?,
        };
        let file = opened.ok_or_else(|| {
            io::Error::other("no program reads this pipe: start its reader first")
        })?;
        if !lock(&file)? {
            return Ok(None);
        }
        // The process that had the lock may have given the file another name. It must not be emptied then.
        if attempt == MAX_ATTEMPTS || is_at(&file, path)? {
            break file;
        }
    };
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    // An existing file may be readable by others.
    make_private(&file)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("everlink-parts-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a directory");
            Directory(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(path: &Path, lines: usize) {
        let mut writer = PartWriter::create(path, Some(100), 7).expect("a file");
        for line in 0..lines {
            let line = format!("{{\"line\":{line}}}\n");
            writer.write_lines(line.as_bytes()).expect("a file");
        }
    }

    fn read(path: &Path) -> io::Result<usize> {
        let mut lines = Lines::open(path)?;
        lines.set_seed(7);
        let mut count = 0;
        while let Some(line) = lines.next()? {
            assert_eq!(line, format!("{{\"line\":{count}}}\n").into_bytes());
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn parts_are_compressed_and_read_in_order_and_not_mixed_with_the_next_recording() {
        let directory = Directory::new("order");
        let path = directory.0.join("it");
        write(&path, 100);
        assert!(directory.names().len() > 12, "{:?}", directory.names());
        assert!(directory.names().contains(&"it.12.gz".to_owned()));
        assert!(!directory.names().contains(&"it.12".to_owned()));
        assert_eq!(read(&path).expect("a recording"), 100);
        write(&path, 1);
        assert_eq!(read(&path).expect("a recording"), 1);
        write(&path, 30);
        assert_eq!(read(&path).expect("a recording"), 30);
    }

    #[test]
    fn recording_takes_the_next_name_that_no_other_recording_writes() {
        let directory = Directory::new("locked");
        let path = directory.0.join("it.jsonl");
        let create = || PartWriter::create(&path, Some(100), 7);
        let mut writers: Vec<_> = (0..9).map(|_| create().expect("a file")).collect();
        let error = create().map(drop).expect_err("all files are written");
        let text = error.to_string();
        assert!(text.contains("other processes write"), "{text}");
        assert!(text.contains("it-9.jsonl"), "{text}");
        for (writer, lines) in writers.iter_mut().zip([20, 30]) {
            for line in 0..lines {
                let line = format!("{{\"line\":{line}}}\n");
                writer.write_lines(line.as_bytes()).expect("a file");
            }
        }
        // A process that ends makes its name free.
        writers.remove(2);
        let third = create().expect("a file");
        assert_eq!(third.path, directory.0.join("it-3.jsonl"));
        drop(writers);
        assert_eq!(read(&path).expect("a recording"), 20);
        let second = directory.0.join("it-2.jsonl");
        assert_eq!(read(&second).expect("a recording"), 30);
    }

    #[test]
    fn second_recording_takes_no_file_that_is_something_else() {
        let directory = Directory::new("foreign");
        let path = |name: &str| directory.0.join(name);
        for (name, content) in [
            ("it-2.jsonl", "notes"),
            ("it-3.jsonl", "{\"line\":0}\n"),
            ("it-4.jsonl", "{\"part\":3,\"seed\":8}\n{\"line\":9}\n"),
            ("it-5.jsonl", "{\"everlink\":\"0.1.0\",\"format\":1}\n"),
            ("it-6.jsonl", ""),
        ] {
            fs::write(path(name), content).expect("a file");
        }
        let create = || PartWriter::create(&path("it.jsonl"), Some(100), 7).expect("a file");
        let writers: Vec<_> = (0..5).map(|_| create()).collect();
        let taken = writers.iter().map(|writer| writer.path.clone());
        let names = ["it", "it-4", "it-5", "it-6", "it-7"];
        let expected = names.map(|name| path(&format!("{name}.jsonl")));
        assert_eq!(taken.collect::<Vec<_>>(), expected);
        assert_eq!(fs::read(path("it-2.jsonl")).expect("a file"), b"notes");
    }

    #[cfg(unix)]
    #[test]
    fn recording_whose_file_was_removed_takes_no_name_from_another_one() {
        let directory = Directory::new("removed");
        let path = directory.0.join("it");
        let mut first = PartWriter::create(&path, Some(100), 8).expect("a file");
        fs::remove_file(&path).expect("a file");
        let mut second = PartWriter::create(&path, Some(100), 7).expect("a file");
        assert_eq!(second.path, path);
        second.write_lines(b"{\"line\":0}\n").expect("a file");
        let error = first.write_lines(&[b'\n'; 100]).expect_err("no name");
        assert!(error.to_string().contains("moved or removed"), "{error}");
        drop(second);
        assert_eq!(directory.names(), ["it"]);
        assert_eq!(read(&path).expect("a recording"), 1);
    }

    /// Another recording of the same name begins at any moment of a rotation.
    #[test]
    fn rotating_recording_keeps_its_name_and_its_parts_while_others_begin() {
        let directory = Directory::new("race");
        let path = directory.0.join("it.jsonl");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let mut writer = PartWriter::create(&path, Some(100), 7).expect("a file");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let other = PartWriter::create(&path, Some(100), 8).expect("a file");
                        assert_ne!(other.path, path);
                    }
                });
            }
            for line in 0..600 {
                let line = format!("{{\"line\":{line}}}\n");
                let written = writer.write_lines(line.as_bytes());
                if written.is_err() {
                    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                written.expect("the recording keeps its name");
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(writer);
        assert_eq!(read(&path).expect("a recording"), 600);
    }

    #[test]
    fn parts_of_a_killed_process_are_read_and_a_missing_or_foreign_part_is_reported() {
        let directory = Directory::new("killed");
        let path = directory.0.join("it");
        write(&path, 20);
        // The part was not compressed yet, or both files exist.
        let mut plain = Vec::new();
        let first = File::open(compressed_path(&path, 1)).expect("a part");
        MultiGzDecoder::new(first)
            .read_to_end(&mut plain)
            .expect("a part");
        fs::write(part_path(&path, 1), &plain).expect("a file");
        fs::write(compressed_path(&path, 1), b"half").expect("a file");
        assert_eq!(read(&path).expect("a recording"), 20);
        // The newest part has no header yet, or does not exist.
        fs::write(&path, b"").expect("a file");
        let without_newest = read(&path).expect("a recording");
        fs::remove_file(&path).expect("a file");
        assert_eq!(read(&path).expect("a recording"), without_newest);
        fs::remove_file(compressed_path(&path, 2)).expect("a file");
        // The second part belongs to another recording.
        let foreign = "{\"part\":2,\"seed\":8}\n{\"line\":9}\n";
        fs::write(part_path(&path, 2), foreign).expect("a file");
        let error = read(&path).expect_err("a foreign part");
        for words in [
            "part 2 of this recording",
            "it.2",
            "part 2 of another recording",
        ] {
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
        fs::remove_file(part_path(&path, 2)).expect("a file");
        fs::write(&path, "{\"part\":3,\"seed\":7}\n").expect("a file");
        let error = read(&path).expect_err("part 2 is missing");
        assert!(
            error.to_string().contains("that file is part 3;"),
            "{error}"
        );
    }
}
