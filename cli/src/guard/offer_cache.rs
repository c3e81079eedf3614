//! Stores on disk what a server offered, so that a later host need not wait while the server starts. Without the file, the host waits.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use everlink::server::Offer;

use crate::args::Target;
use crate::recording::SavedOffer;
use crate::system::{cache_directory, create_private_directory, private};

/// The file that holds the offer of one server.
#[derive(Clone, Debug)]
pub(super) struct OfferCache(PathBuf);

impl OfferCache {
    /// Returns the file for this server, in `directory` or in the user's cache directory. `None` if `directory` is `off`, or the user has no cache
    /// directory.
    pub(super) fn of(directory: Option<&Path>, target: &Target) -> Option<OfferCache> {
        let directory = match directory {
            Some(off) if off.as_os_str() == "off" => return None,
            Some(directory) => directory.to_owned(),
            None => cache_directory()?.join("everlink"),
        };
        Some(OfferCache(
            directory.join(format!("{:016x}.json", target_hash(target))),
        ))
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the last offer of the server, if it is known.
    pub(super) fn read(&self) -> Option<SavedOffer> {
        serde_json::from_slice(&fs::read(&self.0).ok()?).ok()
    }

    /// Stores the present offer of the server. Readers see either the whole old file or the whole new file.
    pub(super) fn store(&self, offer: &Offer) -> io::Result<()> {
        let text = serde_json::to_vec(&SavedOffer::from(offer))?;
        if fs::read(&self.0).is_ok_and(|stored| stored == text) {
            return Ok(());
        }
        if let Some(directory) = self.0.parent() {
            create_private_directory(directory)?;
        }
        let new = self.0.with_extension(std::process::id().to_string());
        let mut options = OpenOptions::new();
        let written = private(options.write(true).create(true).truncate(true))
            .open(&new)
            .and_then(|mut file| file.write_all(&text));
        let stored = written.and_then(|()| fs::rename(&new, &self.0));
        if stored.is_err() {
            let _ = fs::remove_file(&new);
        }
        stored
    }
}

/// Returns a hash of how the server is reached, and as whom: it may offer something else to another user. Leaves out the values of header fields and of
/// environment variables, because they are secrets.
fn target_hash(target: &Target) -> u64 {
    let mut hasher = DefaultHasher::new();
    target.url.hash(&mut hasher);
    target.command_line.hash(&mut hasher);
    let directory = target.cwd.clone().or_else(|| std::env::current_dir().ok());
    directory.filter(|_| target.url.is_none()).hash(&mut hasher);
    let name = |variable: &OsStr| {
        let bytes = variable.as_encoded_bytes();
        let end = bytes.iter().position(|byte| *byte == b'=');
        bytes[..end.unwrap_or(bytes.len())].to_vec()
    };
    for variable in &target.env {
        name(variable).hash(&mut hasher);
    }
    let header_names = target.header.iter().map(|field| field.split(':').next());
    header_names.collect::<Vec<_>>().hash(&mut hasher);
    (&target.header_env, &target.bearer_env).hash(&mut hasher);
    // Nobody signs in at a server that a command starts.
    if target.url.is_some() {
        target.auth.hash_user(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn hash_of(options: &str) -> u64 {
        let words = format!("everlink guard --url https://a.example/mcp {options}");
        let args = Args::try_parse_from(words.split_whitespace()).expect("options");
        match args.command {
            Command::Guard(guard) => target_hash(&guard.target),
            _ => panic!("another command"),
        }
    }

    /// A server may offer other tools to another user.
    #[test]
    fn offer_of_other_credentials_is_in_another_file() {
        let options = [
            "",
            "--account work",
            "--client-id a",
            "--client-id b",
            "--bearer-env A",
            "--bearer-env B",
            "--header-env A",
            "--header X-Key:1",
            "--header X-Other:1",
            "--auth-directory /a",
            "--auth-directory /b",
            "--workload-token /a",
            "--workload-token /b",
            "--idp-token-endpoint https://i.example/t --idp-client-id a --id-token /a",
            "--idp-token-endpoint https://i.example/t --idp-client-id a --id-token /b",
            "--idp-token-endpoint https://i.example/t --idp-client-id b --id-token /a",
            "--idp-token-endpoint https://j.example/t --idp-client-id a --id-token /a",
            "--client-id a --client-credentials --client-secret-env A",
            "--oauth off",
        ];
        let hashes: BTreeSet<u64> = options.iter().map(|options| hash_of(options)).collect();
        assert_eq!(hashes.len(), options.len());
        // The value may be a secret.
        assert_eq!(hash_of("--header X-Key:1"), hash_of("--header X-Key:2"));
        // Both name the same directory.
        assert_eq!(
            hash_of("--auth-directory a"),
            hash_of("--auth-directory ./a")
        );
    }
}
