//! What can be wrong with the settings of a connector, in any adapter for HTTP.

use std::{fmt, io};

/// The reason why a setting of a connector is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// The name is not a valid field name.
    FieldName,
    /// The link or HTTP itself sets this field.
    FieldReserved,
    /// The value is not a valid field value.
    FieldValue,
    /// The config is not for HTTP.
    NotHttp,
    /// The URL is not the address of a proxy.
    Proxy,
}

impl SetupError {
    /// Refuses a header field that the link or HTTP itself sets. The name has no capital letters.
    ///
    /// # Errors
    ///
    /// [`SetupError::FieldReserved`].
    pub fn check_field(name: &str) -> Result<(), SetupError> {
        const HTTP_FIELDS: &str =
            "connection content-length expect host te transfer-encoding upgrade";
        const MCP_FIELDS: &str = "accept content-type last-event-id";
        let mut names = HTTP_FIELDS.split(' ').chain(MCP_FIELDS.split(' '));
        if name.starts_with("mcp-") || names.any(|reserved| reserved == name) {
            return Err(SetupError::FieldReserved);
        }
        Ok(())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::FieldName => "the name is not a valid header field name",
            SetupError::FieldReserved => {
                "the link or HTTP itself sets this header field, so it cannot be added"
            }
            SetupError::FieldValue => "the value is not a valid header field value",
            SetupError::NotHttp => "the config is not for HTTP: create it with `Config::http`",
            SetupError::Proxy => {
                "not the URL of a proxy: use http://, https://, socks5:// or socks5h://"
            }
        })
    }
}

impl std::error::Error for SetupError {}

impl From<SetupError> for io::Error {
    fn from(error: SetupError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}
