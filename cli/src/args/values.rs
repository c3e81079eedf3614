//! Parses the values of options. Does not depend on any single option.

use std::net::SocketAddr;
use std::time::Duration;

/// Parses a timeout in seconds. Zero is an error because a timeout of zero would already have expired.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        Duration::ZERO => Err("must be more than 0 seconds".to_owned()),
        timeout => Ok(timeout),
    }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds
        .filter(|seconds| !seconds.is_nan())
        .ok_or_else(|| "not a number of seconds, such as 30 or 0.5".to_owned())?;
    if seconds < 0.0 {
        return Err("must not be less than 0 seconds".to_owned());
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| "more seconds than a timer can count".to_owned())
}

pub(super) fn parse_whole_seconds(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "not a whole number of seconds, such as 15".to_owned())
}

/// Parses a number of bytes with an optional unit.
pub(super) fn parse_size(text: &str) -> Result<usize, String> {
    let end = text.find(|character: char| !character.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => {
            return Err(
                "not a size; write a number of bytes, or a number with a unit: 512K, 64M, 64MiB, 1G".to_owned(),
            );
        }
    };
    let number: usize = digits
        .parse()
        .map_err(|_| "not a size; write a number, such as 64M".to_owned())?;
    match number.checked_mul(1 << shift) {
        None => Err("more bytes than this machine can address".to_owned()),
        Some(bytes) if bytes < MIN_MESSAGE_BYTES => Err(format!(
            "too small; the minimum is {MIN_MESSAGE_BYTES} bytes"
        )),
        Some(bytes) => Ok(bytes),
    }
}

/// The smallest value of `--max-message`, enough for a handshake, and of `--record-rotate`.
const MIN_MESSAGE_BYTES: usize = 4 << 10;

/// Parses an IP address and a port to listen on. A name could stand for several addresses.
pub(super) fn parse_socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an IP address with a port, such as 127.0.0.1:9090 or [::1]:9090; names such as localhost are not accepted".to_owned()
    })
}

/// Parses a host and a port, also if they are written as a URL.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    let port = address
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(_))) if !host.is_empty() && !address.contains(['/', ' ']) => {
            Ok(address.to_owned())
        }
        _ => Err("not an address with a port, such as 127.0.0.1:9090".to_owned()),
    }
}

/// Checks the origin of web pages, as browsers write it, or `*`.
pub(super) fn parse_origin(text: &str) -> Result<String, String> {
    let is_host = |rest: &str| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*', ' ']);
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    if text == "*" || rest.is_some_and(is_host) {
        return Ok(text.to_owned());
    }
    Err("neither `*` nor an origin; an origin is a scheme and a host without a path, such as https://app.example or http://localhost:5173".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{parse_origin, parse_seconds, parse_size, parse_socket, parse_timeout};

    #[test]
    fn seconds_are_a_finite_number_that_is_not_negative() {
        for text in ["0.5", "30", "1e3", "0"] {
            assert!(parse_seconds(text).is_ok(), "{text}");
        }
        for (text, words) in [
            ("nan", "not a number of seconds"),
            ("-nan", "not a number of seconds"),
            ("", "not a number of seconds"),
            ("1m", "not a number of seconds"),
            ("inf", "more seconds than a timer"),
            ("1e400", "more seconds than a timer"),
            ("1e300", "more seconds than a timer"),
            ("-1", "must not be less than 0"),
            ("-inf", "must not be less than 0"),
        ] {
            let error = parse_seconds(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(parse_timeout("0").is_err());
    }

    #[test]
    fn socket_is_an_ip_address_with_a_port() {
        for text in ["127.0.0.1:9090", "[::1]:0"] {
            assert!(parse_socket(text).is_ok(), "{text}");
        }
        for text in ["localhost:9090", "9090", "127.0.0.1", "http://127.0.0.1:1/"] {
            let error = parse_socket(text).expect_err(text);
            assert!(error.contains("such as 127.0.0.1:9090"), "{error}");
        }
    }

    #[test]
    fn size_has_units_of_1024() {
        for (text, bytes) in [
            ("4096", 4 << 10),
            ("4096B", 4 << 10),
            ("512K", 512 << 10),
            ("512kib", 512 << 10),
            ("64M", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "64MB",
            "64X",
            "1.5M",
            "4095",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn origin_has_a_scheme_and_a_host_and_no_path() {
        for text in [
            "*",
            "https://app.example",
            "http://localhost:5173",
            "http://[::1]:1",
        ] {
            assert_eq!(parse_origin(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "null",
            "app.example",
            "https://",
            "https://app.example/",
            "https://*.example",
            "https://a@b",
        ] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }
}
