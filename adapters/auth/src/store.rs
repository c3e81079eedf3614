//! Where tokens are kept: in files that processes share, or in memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everlink::auth::{Key, Lock};
use fs4::{FileExt, TryLockError};
use ring::digest::{SHA256, digest};

/// Keeps the records of authorizers. Records are secret.
pub trait Store: Send + Sync {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// When the store fails. A record that does not exist is no error.
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>>;

    /// Takes a lock of a record, if nobody holds it. It is held until the result is dropped, or its process ends.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>>;

    /// Replaces a record. A reader sees the old one or the new one, and never a part.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()>;

    /// Deletes a record, if it exists.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn delete(&self, key: &Key) -> io::Result<()>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        (**self).load(key)
    }

    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>> {
        (**self).try_lock(key, lock)
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        (**self).save(key, record)
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        (**self).delete(key)
    }
}

/// The age of a file that no process is still writing.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// A lock that is held until this is dropped.
pub type LockGuard = Box<dyn Any + Send>;

/// A directory with a file for each record. Only its owner can read it.
#[derive(Clone, Debug)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// Keeps the records in this directory. It is created when it is needed, with the mode 0700.
    pub fn new(directory: impl Into<PathBuf>) -> FileStore {
        FileStore {
            directory: directory.into(),
        }
    }

    /// The directory for this user: `$XDG_STATE_HOME/everlink/auth` or `~/.local/state/everlink/auth`; on Windows `%LOCALAPPDATA%\everlink\auth`. `None`
    /// if the environment names no home.
    #[must_use]
    pub fn of_user() -> Option<FileStore> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = if cfg!(windows) {
            PathBuf::from(variable("LOCALAPPDATA")?)
        } else {
            match variable("XDG_STATE_HOME") {
                Some(state) => PathBuf::from(state),
                None => Path::new(&variable("HOME")?).join(".local").join("state"),
            }
        };
        Some(FileStore::new(base.join("everlink").join("auth")))
    }

    /// Returns the directory in which the store keeps its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &Key, extension: &str) -> PathBuf {
        self.directory
            .join(format!("{}.{extension}", record_name(key)))
    }

    /// Returns the error with the directory before its text.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(
            error.kind(),
            format!("{}: {error}", self.directory.display()),
        )
    }

    /// Removes files of this age that processes left behind when they were killed during a save. They have tokens.
    fn remove_leftovers(&self, key: &Key, age: Duration) {
        let start = self.path(key, "");
        let Some(start) = start.file_name().and_then(|name| name.to_str()) else {
            return;
        };
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let is_leftover = name
                .to_str()
                .is_some_and(|name| name.starts_with(start) && name.ends_with(".new"));
            let modified = || entry.metadata()?.modified();
            // A clock that was set back makes the age unknown: then the file stays for now.
            let is_old = || modified().is_ok_and(|at| at.elapsed().is_ok_and(|since| since >= age));
            if is_leftover && (age.is_zero() || is_old()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn create_directory(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.directory)
    }
}

/// The name of a record in a store. Names of files are limited, so it is made of a hash.
#[must_use]
pub fn record_name(key: &Key) -> String {
    let (kind, parts): (_, &[&str]) = match key {
        Key::Server { server, account } => ("server", &[server, account]),
        Key::Tokens {
            issuer,
            resource,
            account,
        } => ("tokens", &[issuer, resource, account]),
        _ => ("other", &[]),
    };
    // The lengths make the text unambiguous.
    let text: String = parts
        .iter()
        .map(|part| format!("{}:{part}", part.len()))
        .collect();
    let hash = digest(&SHA256, text.as_bytes());
    let hex: String = hash.as_ref()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{kind}-{hex}")
}

/// Opens a file that only its owner can read.
fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).create(true).open(path)
}

impl Store for FileStore {
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path(key, "json")) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.named(&error)),
        }
    }

    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>> {
        self.create_directory()
            .map_err(|error| self.named(&error))?;
        let extension = match lock {
            Lock::SignIn => "sign-in.lock",
            _ => "lock",
        };
        // The lock file is never deleted. Otherwise one process could hold the lock of the deleted file while another creates and locks a new one.
        let file = open_private(
            &self.path(key, extension),
            OpenOptions::new().truncate(false),
        );
        let file = file.map_err(|error| self.named(&error))?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.named(&error)),
        }
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        let path = self.path(key, "json");
        // Processes that save at the same time, without a lock, must not write into the same file.
        let temporary = self.path(key, &format!("{}.new", std::process::id()));
        let write = || {
            self.create_directory()?;
            let mut file = open_private(&temporary, OpenOptions::new().truncate(true))?;
            file.write_all(record)?;
            // Renames the file before it is synced, because a sync takes long. If the process is killed during the sync, the record already has the
            // new tokens; the old tokens may be invalid by then. A power failure before the end of the sync can damage the record: a damaged
            // record counts as missing.
            fs::rename(&temporary, &path)?;
            file.sync_all()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            self.named(&error)
        })?;
        self.remove_leftovers(key, LEFTOVER_AGE);
        Ok(())
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        self.remove_leftovers(key, Duration::ZERO);
        match fs::remove_file(self.path(key, "json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.named(&error)),
            _ => Ok(()),
        }
    }
}

/// Keeps records in this process only.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<Key, Vec<u8>>>);

impl MemoryStore {
    fn records(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its locks are always free: a store in memory belongs to one authorizer, or the application keeps several from one account.
impl Store for MemoryStore {
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        Ok(self.records().get(key).cloned())
    }

    fn try_lock(&self, _: &Key, _: Lock) -> io::Result<Option<LockGuard>> {
        Ok(Some(Box::new(())))
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        self.records().insert(key.clone(), record.to_vec());
        Ok(())
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        self.records().remove(key);
        Ok(())
    }
}
