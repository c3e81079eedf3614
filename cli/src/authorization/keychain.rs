//! Keeps tokens in the keychain of the system. Where it cannot be used, they are in files. Locks are always files.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use everlink::auth::{Key, Lock};
use everlink_auth::{FileStore, LockGuard, Store, record_name};
use keyring::{Entry, Error};

/// The keychain, with files for everything that it cannot keep.
pub(super) struct Keychain<V = SystemVault> {
    files: FileStore,
    vault: V,
    /// Whether the vault has answered. From then on, a failure does not mean that there is no keychain.
    has_answered: AtomicBool,
}

impl Keychain {
    pub(super) const fn new(files: FileStore) -> Keychain {
        Keychain::with(files, SystemVault)
    }
}

impl<V> Keychain<V> {
    const fn with(files: FileStore, vault: V) -> Keychain<V> {
        Keychain {
            files,
            vault,
            has_answered: AtomicBool::new(false),
        }
    }

    /// Notes whether this is an answer of a vault that works.
    fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if matches!(answer, Ok(_) | Err(Error::NoEntry)) {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        answer
    }
}

fn vault_error(error: &Error) -> io::Error {
    io::Error::other(format!("the keychain: {error}"))
}

/// Keeps secrets by name.
pub(super) trait Vault: Send + Sync {
    fn get(&self, name: &str) -> Result<Vec<u8>, Error>;
    fn set(&self, name: &str, secret: &[u8]) -> Result<(), Error>;
    fn delete(&self, name: &str) -> Result<(), Error>;
}

/// The keychain of macOS, the Credential Manager of Windows, or the Secret Service of a desktop.
pub(super) struct SystemVault;

impl Vault for SystemVault {
    fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
        Entry::new("everlink", name)?.get_secret()
    }

    fn set(&self, name: &str, secret: &[u8]) -> Result<(), Error> {
        Entry::new("everlink", name)?.set_secret(secret)
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        Entry::new("everlink", name)?.delete_credential()
    }
}

/// A record that is in a file is newer than one in the keychain: it was saved when the keychain could not be used.
impl<V: Vault> Store for Keychain<V> {
    fn load(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        if let Some(record) = self.files.load(key)? {
            return Ok(Some(record));
        }
        let had_answered = self.has_answered.load(Ordering::Relaxed);
        match self.noted(self.vault.get(&record_name(key))) {
            Ok(record) => Ok(Some(record)),
            Err(Error::NoEntry) => Ok(None),
            // There is no keychain at all. Later, this is a failure that passes: tokens that count as missing would be forgotten.
            Err(Error::PlatformFailure(_)) if !had_answered => Ok(None),
            Err(error) => Err(vault_error(&error)),
        }
    }

    fn try_lock(&self, key: &Key, lock: Lock) -> io::Result<Option<LockGuard>> {
        self.files.try_lock(key, lock)
    }

    fn save(&self, key: &Key, record: &[u8]) -> io::Result<()> {
        match self.noted(self.vault.set(&record_name(key), record)) {
            Ok(()) => self.files.delete(key),
            // There is no keychain, it is locked, or the record is too long for it.
            Err(_) => self.files.save(key, record),
        }
    }

    fn delete(&self, key: &Key) -> io::Result<()> {
        self.files.delete(key)?;
        match self.noted(self.vault.delete(&record_name(key))) {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            // After any failure, the keychain may still have a record.
            Err(error) => Err(vault_error(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::{env, fs, process};

    use super::*;

    /// A keychain in memory, which can be locked or unreachable.
    #[derive(Default)]
    struct Memory {
        secrets: Mutex<BTreeMap<String, Vec<u8>>>,
        is_locked: AtomicBool,
        is_unreachable: AtomicBool,
    }

    impl Memory {
        fn open(&self) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>>, Error> {
            if self.is_unreachable.load(Ordering::Relaxed) {
                return Err(Error::PlatformFailure("no answer".into()));
            }
            match self.is_locked.load(Ordering::Relaxed) {
                true => Err(Error::NoStorageAccess("it is locked".into())),
                false => Ok(self.secrets.lock().expect("no panic")),
            }
        }
    }

    impl Vault for Memory {
        fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
            self.open()?.get(name).cloned().ok_or(Error::NoEntry)
        }

        fn set(&self, name: &str, secret: &[u8]) -> Result<(), Error> {
            self.open()?.insert(name.into(), secret.into());
            Ok(())
        }

        fn delete(&self, name: &str) -> Result<(), Error> {
            let deleted = self.open()?.remove(name);
            deleted.map(drop).ok_or(Error::NoEntry)
        }
    }

    /// A keychain whose files are in an empty directory. Dropping this removes them.
    struct Fixture {
        keychain: Keychain<Memory>,
        directory: PathBuf,
    }

    impl Fixture {
        fn new(name: &str) -> Fixture {
            let directory = format!("everlink-keychain-{name}-{}", process::id());
            let directory = env::temp_dir().join(directory);
            let _ = fs::remove_dir_all(&directory);
            let keychain = Keychain::with(FileStore::new(&directory), Memory::default());
            Fixture {
                keychain,
                directory,
            }
        }

        fn lock(&self, is_locked: bool) {
            let flag = &self.keychain.vault.is_locked;
            flag.store(is_locked, Ordering::Relaxed);
        }

        fn disconnect(&self, is_unreachable: bool) {
            let flag = &self.keychain.vault.is_unreachable;
            flag.store(is_unreachable, Ordering::Relaxed);
        }

        fn load(&self) -> io::Result<Option<Vec<u8>>> {
            self.keychain.load(&key())
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    fn key() -> Key {
        Key::Server {
            server: "https://a.example".into(),
            account: "".into(),
        }
    }

    fn records_in(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let is_record = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
        entries.map(|entry| entry.path()).filter(is_record).count()
    }

    #[test]
    fn record_is_kept_in_the_keychain_and_not_in_a_file() {
        let fixture = Fixture::new("kept");
        assert_eq!(fixture.load().expect("it can be read"), None);
        fixture.keychain.save(&key(), b"one").expect("it is saved");
        assert_eq!(records_in(&fixture.directory), 0);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"one"[..]));
        fixture.keychain.delete(&key()).expect("it is deleted");
        assert_eq!(fixture.load().expect("it can be read"), None);
    }

    /// A refresh token in the keychain may be invalid, because a process without the keychain has used it.
    #[test]
    fn record_that_was_saved_while_the_keychain_was_locked_wins_until_the_next_save() {
        let fixture = Fixture::new("locked");
        fixture.keychain.save(&key(), b"old").expect("it is saved");
        fixture.lock(true);
        assert!(fixture.load().is_err(), "nobody knows what it has");
        fixture.keychain.save(&key(), b"new").expect("it is saved");
        assert_eq!(records_in(&fixture.directory), 1);
        fixture.lock(false);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"new"[..]));
        fixture
            .keychain
            .save(&key(), b"newest")
            .expect("it is saved");
        assert_eq!(records_in(&fixture.directory), 0);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"newest"[..]));
    }

    #[test]
    fn record_that_cannot_be_deleted_is_an_error() {
        let fixture = Fixture::new("undeleted");
        fixture.keychain.save(&key(), b"one").expect("it is saved");
        fixture.lock(true);
        assert!(fixture.keychain.delete(&key()).is_err());
        fixture.lock(false);
        fixture.disconnect(true);
        assert!(fixture.keychain.delete(&key()).is_err());
        fixture.disconnect(false);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"one"[..]));
    }

    /// A process that found tokens must not take a passing failure for a sign-out of another process.
    #[test]
    fn failure_of_a_keychain_that_has_answered_is_not_a_missing_record() {
        let fixture = Fixture::new("passing");
        fixture.keychain.save(&key(), b"one").expect("it is saved");
        fixture.disconnect(true);
        let error = fixture.load().expect_err("nobody knows what it has");
        assert!(error.to_string().contains("no answer"), "{error}");
        fixture.disconnect(false);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn system_without_a_keychain_has_its_records_in_files() {
        let fixture = Fixture::new("missing");
        fixture.disconnect(true);
        assert_eq!(fixture.load().expect("it can be read"), None);
        fixture.keychain.save(&key(), b"one").expect("it is saved");
        assert_eq!(records_in(&fixture.directory), 1);
        let loaded = fixture.load().expect("it can be read");
        assert_eq!(loaded.as_deref(), Some(&b"one"[..]));
    }
}
