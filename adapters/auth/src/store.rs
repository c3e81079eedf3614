//! Where tokens are kept: in files that processes share, or in memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of a record. Names of files are limited, so they are made of a hash.
    fn path(&self, key: &Key, extension: &str) -> PathBuf {
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
        self.directory.join(format!("{kind}-{hex}.{extension}"))
    }

    fn create_directory(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.directory)
    }
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
            Err(error) => Err(error),
        }
    }

    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>> {
        self.create_directory()?;
        let extension = match lock {
            Lock::SignIn => "sign-in.lock",
            _ => "lock",
        };
        // The file stays: if it were deleted, two processes could hold locks of two files with the same name.
        let file = open_private(
            &self.path(key, extension),
            OpenOptions::new().truncate(false),
        )?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        self.create_directory()?;
        let path = self.path(key, "json");
        // Processes that save at the same time, without a lock, must not write into the same file.
        let temporary = self.path(key, &format!("{}.new", std::process::id()));
        let write = || {
            let mut file = open_private(&temporary, OpenOptions::new().truncate(true))?;
            file.write_all(record)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        match fs::remove_file(self.path(key, "json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
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
