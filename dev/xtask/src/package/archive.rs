//! Writes zip and tar archives whose bytes depend on their entries alone. Must not know what is packed.

use std::io::{Cursor, Write};

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// The time of every entry in a tar archive: 1980-01-01, the oldest that a zip archive can have.
const TIME: u64 = 315_532_800;

/// The gzip header's number for an unknown system.
const UNKNOWN_SYSTEM: u8 = 255;

/// A file in an archive.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) executable: bool,
}

impl Entry {
    pub(super) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            bytes: bytes.into(),
            executable: false,
        }
    }

    pub(super) fn executable(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry {
            executable: true,
            ..Entry::new(path, bytes)
        }
    }

    fn mode(&self) -> u32 {
        match self.executable {
            true => 0o755,
            false => 0o644,
        }
    }
}

/// How much time goes into a small archive.
#[derive(Clone, Copy)]
pub(super) enum Effort {
    /// For archives that nobody downloads.
    Least,
    Most,
}

impl Effort {
    fn level(self) -> u32 {
        match self {
            Effort::Least => 1,
            Effort::Most => 9,
        }
    }
}

/// A zip archive with these entries, in this order.
pub(super) fn zip(entries: &[Entry], effort: Effort) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(effort.level().into()))
            .last_modified_time(DateTime::default())
            .unix_permissions(entry.mode());
        writer.start_file(&entry.path, options)?;
        writer.write_all(&entry.bytes)?;
    }
    Ok(writer.finish()?.into_inner())
}

/// A compressed tar archive with these entries in a directory, in the order of their paths.
pub(super) fn tar_gz(directory: &str, entries: &[Entry], effort: Effort) -> Result<Vec<u8>> {
    let compressor = GzBuilder::new()
        .mtime(0)
        .operating_system(UNKNOWN_SYSTEM)
        .write(Vec::new(), Compression::new(effort.level()));
    let mut builder = tar::Builder::new(compressor);
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    for entry in sorted {
        let mut header = tar::Header::new_ustar();
        header.set_mode(entry.mode());
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(entry.bytes.len() as u64);
        let path = format!("{directory}/{}", entry.path);
        builder.append_data(&mut header, &path, entry.bytes.as_slice())?;
    }
    Ok(builder.into_inner()?.finish()?)
}

/// The SHA-256 of these bytes.
pub(super) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// The same in hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    let digits = sha256(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Effort, Entry, sha256_hex, tar_gz, zip};

    fn entries() -> [Entry; 2] {
        [
            Entry::executable("bin/b", "program"),
            Entry::new("a", "text"),
        ]
    }

    #[test]
    fn tar_does_not_depend_on_the_order_of_its_entries() {
        let [one, other] = entries();
        let pack =
            |entries: [Entry; 2]| tar_gz("package", &entries, Effort::Most).expect("an archive");
        assert_eq!(pack([one.clone(), other.clone()]), pack([other, one]));
    }

    #[test]
    fn gzip_header_has_no_time_and_no_system() {
        let bytes = tar_gz("package", &entries(), Effort::Most).unwrap_or_default();
        assert_eq!(
            bytes.get(..10),
            Some(&b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"[..])
        );
    }

    #[test]
    fn zip_keeps_the_mode_and_the_oldest_time() {
        let bytes = zip(&entries(), Effort::Most).unwrap_or_default();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).expect("it is a zip");
        let program = archive.by_name("bin/b").expect("it has the program");
        assert_eq!(program.unix_mode(), Some(0o100_755));
        assert_eq!(program.last_modified().map(|time| time.year()), Some(1980));
    }

    #[test]
    fn hash_is_the_known_one() {
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_hex(b""), known);
    }
}
