//! The token that allows changes over HTTP. It is kept in a file that only the user can read.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use everlink_tokio::secret;

use crate::system::{is_private, private};
use crate::{Failure, usage_error};

/// The shortest token that is accepted, in bytes.
const MIN_LEN: usize = 16;

/// The longest token that is accepted, in bytes.
const MAX_LEN: usize = 1024;

/// The token that allows changes.
pub(super) struct Token(String);

impl Token {
    /// Reads the token from this file. Creates the file with a random token if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Token, Failure> {
        let failed = |what: &str| format!("--status-token {}: {what}", path.display());
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create(path).map_err(|error| failed(&format!("cannot be created: {error}")))?;
                File::open(path)
            }
            file => file,
        };
        let file = file.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        if !is_private(&file)? {
            return Err(usage_error(failed(
                "other users can read this file; make it private with chmod 600",
            )));
        }
        let mut text = String::new();
        let limit = MAX_LEN as u64 + 2;
        file.take(limit)
            .read_to_string(&mut text)
            .map_err(|error| failed(&format!("cannot be read: {error}")))?;
        let token = text.trim();
        let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        if !(MIN_LEN..=MAX_LEN).contains(&token.len()) || !is_plain {
            return Err(usage_error(failed(
                "not a token; a token has 16 to 1024 ASCII characters without spaces. Delete the file to get a random one",
            )));
        }
        Ok(Token(token.to_owned()))
    }

    /// Whether this value of `Authorization` holds the token. The time that this takes depends on the length of the value only.
    pub(super) fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked(7) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"bearer ") || given.len() != self.0.len() {
            return false;
        }
        let pairs = given.iter().zip(self.0.as_bytes());
        let difference = pairs.fold(0, |difference, (one, other)| {
            black_box(difference | (one ^ other))
        });
        difference == 0
    }
}

/// Creates the file with a random token. If another process does the same at the same time, one of the tokens is used by both: the file gets its name
/// when it is complete.
fn create(path: &Path) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let part = Path::new(&name);
    let written = private(OpenOptions::new().write(true).create_new(true))
        .open(part)
        .and_then(|mut file| writeln!(file, "{}", hex(secret())))
        .and_then(|()| match fs::hard_link(part, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    let _ = fs::remove_file(part);
    written
}

/// Writes bytes as hexadecimal digits.
pub(super) fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token("0123456789abcdef".to_owned());
        for (value, is_accepted) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer 1123456789abcdef", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("Bearer ", false),
            ("", false),
        ] {
            assert_eq!(token.is_in(value.as_bytes()), is_accepted, "{value}");
        }
    }
}
