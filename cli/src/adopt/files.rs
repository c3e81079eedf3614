//! Reads and replaces configuration files, and keeps backups beside them. Does not look into them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::{fmt, process};

use crate::system::{copy_owner, private};

/// What is appended to the name of a file to name its backup. A second backup also has a number.
const BACKUP_SUFFIX: &str = ".everlink-backup";

/// A configuration file that was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// The path that a host uses.
    pub(super) path: PathBuf,
    /// The file itself, if the path is a symbolic link. Otherwise the same path.
    pub(super) target: PathBuf,
    pub(super) text: String,
}

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The file has changed since it was read.
    Changed,
    Io(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Io(error)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Changed => f.write_str(
                "another program changed it at the same moment, so it was left alone; run the command again",
            ),
            WriteError::Io(error) => write!(f, "it cannot be written: {error}"),
        }
    }
}

impl ConfigFile {
    /// Reads a file. `None` if there is none. The error says what is wrong with it.
    pub(super) fn read(path: &Path) -> Result<Option<ConfigFile>, String> {
        let unreadable = |error| format!("it cannot be read: {error}");
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err("it is not a file".to_owned()),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        }
        let text = String::from_utf8(fs::read(path).map_err(unreadable)?);
        let text = text.map_err(|_| {
            "it is not UTF-8 text; the file is left alone: save it as UTF-8 and run the command again"
        })?;
        // Only a link is resolved: a resolved path looks strange on Windows.
        let target = match fs::symlink_metadata(path).map_err(unreadable)?.is_symlink() {
            true => fs::canonicalize(path).map_err(unreadable)?,
            false => path.to_owned(),
        };
        Ok(Some(ConfigFile {
            path: path.to_owned(),
            target,
            text,
        }))
    }

    /// Replaces the file by another text, unless it has changed since it was read. At no time is the file missing or incomplete.
    pub(super) fn replace(&self, text: &str) -> Result<(), WriteError> {
        let metadata = self.writable_metadata()?;
        let mut name = OsString::from(".");
        name.push(self.name());
        name.push(format!(".everlink-{}", process::id()));
        let temporary = self.target.with_file_name(name);
        // A process with this id may have been killed here.
        let _ = fs::remove_file(&temporary);
        let result = create(&temporary, text, &metadata)
            .map_err(WriteError::from)
            .and_then(|()| match fs::read(&self.target) {
                Ok(bytes) if bytes == self.text.as_bytes() => Ok(()),
                Ok(_) => Err(WriteError::Changed),
                Err(error) => Err(error.into()),
            })
            .and_then(|()| Ok(fs::rename(&temporary, &self.target)?));
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Fails if the file must not be written. A rename needs only a writable directory, so it would replace a protected file.
    fn writable_metadata(&self) -> io::Result<Metadata> {
        let metadata = fs::metadata(&self.target)?;
        if metadata.permissions().readonly() {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "the file is read-only",
            ));
        }
        OpenOptions::new().write(true).open(&self.target)?;
        Ok(metadata)
    }

    /// Keeps a copy of the file as it was read. Never overwrites an older copy.
    pub(super) fn write_backup(&self) -> io::Result<PathBuf> {
        let metadata = fs::metadata(&self.target)?;
        let existing = self.backups()?;
        let mut number = existing.last().map_or(1, |backup| backup.number + 1);
        loop {
            let path = self.backup_path(number);
            match create(&path, &self.text, &metadata) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
                Ok(()) => return Ok(path),
            }
        }
    }

    /// Returns the backups, oldest first. Leaves out those that cannot be read.
    pub(super) fn backups(&self) -> io::Result<Vec<Backup>> {
        let directory = self.target.parent().unwrap_or(Path::new(""));
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        let mut backups = Vec::new();
        for entry in fs::read_dir(directory)? {
            let Some(number) = self.backup_number(&entry?.file_name()) else {
                continue;
            };
            let path = self.backup_path(number);
            if let Ok(text) = fs::read_to_string(&path) {
                backups.push(Backup { path, number, text });
            }
        }
        backups.sort_by_key(|backup| backup.number);
        Ok(backups)
    }

    fn name(&self) -> &OsStr {
        self.target.file_name().unwrap_or_default()
    }

    fn backup_path(&self, number: usize) -> PathBuf {
        let mut name = self.name().to_owned();
        name.push(BACKUP_SUFFIX);
        if number > 1 {
            name.push(format!("-{number}"));
        }
        self.target.with_file_name(name)
    }

    fn backup_number(&self, name: &OsStr) -> Option<usize> {
        let own_name = self.name().to_str()?;
        let suffix = name.to_str()?.strip_prefix(own_name)?;
        let number = suffix.strip_prefix(BACKUP_SUFFIX)?;
        match number {
            "" => Some(1),
            number => number.strip_prefix('-')?.parse().ok(),
        }
    }
}

/// A copy of a file before its servers were guarded.
#[derive(Debug)]
pub(super) struct Backup {
    pub(super) path: PathBuf,
    number: usize,
    pub(super) text: String,
}

/// Whether the error says that there is no such file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Creates a file with the owner and the permissions of another one. Configurations contain secrets, so nobody else can read it in between.
fn create(path: &Path, text: &str, like: &Metadata) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = private(options.write(true).create_new(true)).open(path)?;
    let result = fill(&mut file, text, like);
    if result.is_err() {
        let _ = fs::remove_file(path);
    }
    result
}

fn fill(file: &mut File, text: &str, like: &Metadata) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    copy_owner(like, file)?;
    file.set_permissions(like.permissions())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own. Dropping this removes it.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("everlink-adopt-{name}-{}", process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("a directory");
            Directory(path)
        }

        fn file(&self, text: &str) -> ConfigFile {
            let path = self.0.join("mcp.json");
            fs::write(&path, text).expect("the file can be written");
            ConfigFile::read(&path).expect("readable").expect("a file")
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn file_that_changed_since_it_was_read_is_not_replaced() {
        let directory = Directory::new("changed");
        let file = directory.file("old");
        fs::write(&file.path, "changed").expect("the file can be written");
        assert!(matches!(file.replace("new"), Err(WriteError::Changed)));
        assert_eq!(fs::read_to_string(&file.path).expect("readable"), "changed");
        assert_eq!(directory.names(), ["mcp.json"]);
    }

    #[test]
    fn file_is_replaced_and_nothing_is_left_beside_it() {
        let directory = Directory::new("replaced");
        let file = directory.file("old");
        file.replace("new").expect("written");
        assert_eq!(fs::read_to_string(&file.path).expect("readable"), "new");
        assert_eq!(directory.names(), ["mcp.json"]);
    }

    #[test]
    fn read_only_file_is_not_replaced() {
        let directory = Directory::new("read-only");
        let file = directory.file("old");
        let permissions = fs::metadata(&file.path).expect("a file").permissions();
        let mut read_only = permissions.clone();
        read_only.set_readonly(true);
        fs::set_permissions(&file.path, read_only).expect("permissions");
        let error = file.replace("new").expect_err("read-only").to_string();
        assert!(error.contains("read-only"), "{error}");
        assert_eq!(fs::read_to_string(&file.path).expect("readable"), "old");
        assert_eq!(directory.names(), ["mcp.json"]);
        // Windows removes no read-only file.
        fs::set_permissions(&file.path, permissions).expect("permissions");
    }

    #[test]
    fn backup_never_overwrites_an_older_one() {
        let directory = Directory::new("backup");
        let file = directory.file("one");
        file.write_backup().expect("written");
        let file = directory.file("two");
        file.write_backup().expect("written");
        fs::remove_file(directory.0.join("mcp.json.everlink-backup")).expect("a file");
        let file = directory.file("three");
        file.write_backup().expect("written");
        let backups = file.backups().expect("readable");
        let texts: Vec<&str> = backups.iter().map(|backup| backup.text.as_str()).collect();
        assert_eq!(texts, ["two", "three"]);
        assert_eq!(
            directory.names(),
            [
                "mcp.json",
                "mcp.json.everlink-backup-2",
                "mcp.json.everlink-backup-3"
            ]
        );
    }

    #[test]
    fn text_that_is_no_utf_8_is_an_error() {
        let directory = Directory::new("utf-16");
        let path = directory.0.join("mcp.json");
        fs::write(&path, [0xff, 0xfe, b'{', 0]).expect("the file can be written");
        let error = ConfigFile::read(&path).expect_err("not UTF-8");
        assert!(error.contains("UTF-8"), "{error}");
        assert!(ConfigFile::read(&directory.0).is_err());
        assert!(
            ConfigFile::read(&directory.0.join("none"))
                .expect("no error")
                .is_none()
        );
        assert!(
            ConfigFile::read(&path.join("none"))
                .expect("no error")
                .is_none()
        );
    }
}
