//! Credentials with a fixed bearer token.

use alloc::format;
use alloc::string::String;

/// A token that cannot be sent in a header field.
///
/// It is empty, or has a character that is not visible ASCII: a space, a line break, another control character, or one outside ASCII. A token that was read from
/// a file often ends with a line break. The error does not quote the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token is empty, or has a space, a line break or another character that is not visible ASCII"
)]
pub struct BadToken;

/// Returns the value of `Authorization` for a bearer token: `Bearer abc`.
///
/// ```
/// use everlink::http::bearer;
///
/// assert_eq!(bearer("abc").as_deref(), Ok("Bearer abc"));
/// assert!(bearer("abc\n").is_err());
/// ```
///
/// # Errors
///
/// When the token is empty, or has a character that is not visible ASCII.
pub fn bearer(token: &str) -> Result<String, BadToken> {
    let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid.then(|| format!("Bearer {token}")).ok_or(BadToken)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn token_with_visible_ascii_is_accepted() {
        let token = "AZaz09-._~+/=";
        assert_eq!(bearer(token), Ok(format!("Bearer {token}")));
    }

    #[test]
    fn token_that_would_break_the_field_is_refused_and_not_quoted() {
        for token in [
            "",
            " ",
            "hunter2\n",
            "hunter2\r\nx: y",
            "hunter2\0",
            "hunter 2",
            "hunter2\u{7f}",
            "h\u{fc}nter2",
        ] {
            let error = bearer(token).expect_err("it cannot be sent");
            assert!(!error.to_string().contains("hunter"), "{token:?}");
        }
    }
}
