//! Parses absolute `http` and `https` URLs, and resolves references that are relative to them.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// An absolute URL with the scheme `http` or `https`, without user information and fragment.
///
/// The query may hold a secret, so neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    text: Box<str>,
    /// The range of the host and the port in the text.
    authority: Range<usize>,
    /// The end of the path. The query starts here with its question mark, if there is one.
    path_end: usize,
}

/// Why a text is not a URL to which a request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUrl {
    /// The text has a space, a control character, a backslash or a character outside ASCII. Parsers disagree about those.
    #[error("the URL has a character that must be percent-encoded")]
    Character,
    /// The host is missing, or is neither a name nor an address.
    #[error("the URL names no valid host")]
    Host,
    /// The port is not a number between 1 and 65535.
    #[error("the port of the URL is no number between 1 and 65535")]
    Port,
    /// The scheme is missing, or neither `http` nor `https`.
    #[error("the URL does not begin with http:// or https://")]
    Scheme,
    /// The URL has user information. Credentials belong in a header field.
    #[error("the URL has user information before its host")]
    UserInfo,
}

impl Url {
    /// Parses an absolute URL. The fragment is dropped, because it is not part of a request.
    pub fn parse(text: &str) -> Result<Url, BadUrl> {
        let (text, _) = split_before(text, "#");
        check_characters(text)?;
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::Scheme)?;
        default_port(scheme).ok_or(BadUrl::Scheme)?;
        let (authority, rest) = split_before(rest, "/?");
        host_and_port(authority)?;
        let (_, query) = split_before(rest, "?");
        let start = scheme.len() + "://".len();
        Ok(Url {
            text: text.into(),
            authority: start..start + authority.len(),
            path_end: text.len() - query.len(),
        })
    }

    /// The URL as it was given, without the fragment.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme, host and port in a normalised spelling: `https://example.com:443`.
    pub fn origin(&self) -> String {
        let scheme = self.scheme().to_ascii_lowercase();
        // The URL was parsed, so it has a valid host and port.
        let (host, port) = host_and_port(self.authority()).unwrap_or_default();
        let port = port.or(default_port(&scheme)).unwrap_or_default();
        match in_brackets(host) {
            Some(address) => format!("{scheme}://[{address}]:{port}"),
            None => format!("{scheme}://{}:{port}", host.to_ascii_lowercase()),
        }
    }

    /// Whether both URLs have the same origin.
    pub fn is_same_origin(&self, other: &Url) -> bool {
        self.origin() == other.origin()
    }

    /// Resolves a reference relative to this URL: RFC 3986, section 5.
    pub fn resolve(&self, reference: &str) -> Result<Url, BadUrl> {
        let (reference, _) = split_before(reference, "#");
        // Before dot segments are removed: a segment before `..` would not be seen.
        check_characters(reference)?;
        if has_scheme(reference) {
            return Url::parse(reference)?.without_dot_segments();
        }
        if reference.starts_with("//") {
            return Url::parse(&format!("{}:{reference}", self.scheme()))?.without_dot_segments();
        }
        let (path, query) = split_before(reference, "?");
        if path.starts_with('/') {
            self.with_path(&without_dots(path), query)
        } else if !path.is_empty() {
            // Other parsers remove the dot segments of a base before they use it. With empty segments, that makes a difference.
            let base = without_dots(self.path());
            let (folder, _) = base.rsplit_once('/').unwrap_or_default();
            self.with_path(&without_dots(&format!("{folder}/{path}")), query)
        } else if !query.is_empty() {
            self.with_path(self.path(), query)
        } else {
            Ok(self.clone())
        }
    }

    fn scheme(&self) -> &str {
        let (scheme, _) = split_before(&self.text, ":");
        scheme
    }

    /// Whether the scheme is `https`.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme().eq_ignore_ascii_case("https")
    }

    /// The scheme, host and port as they were given.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.text[..self.authority.end]
    }

    pub(crate) fn authority(&self) -> &str {
        &self.text[self.authority.clone()]
    }

    /// The path: empty, or with a leading slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.text[self.authority.end..self.path_end]
    }

    /// The query: empty, or with a leading question mark.
    fn query(&self) -> &str {
        &self.text[self.path_end..]
    }

    /// The same URL without dot segments.
    fn without_dot_segments(&self) -> Result<Url, BadUrl> {
        self.with_path(&without_dots(self.path()), self.query())
    }

    /// A URL with another path and query on the same host.
    fn with_path(&self, path: &str, query: &str) -> Result<Url, BadUrl> {
        Url::parse(&format!("{}{path}{query}", self.base()))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text[..self.path_end])
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// Whether a host, with or without a port, is the local machine: `localhost`, `127.x.x.x` or `[::1]`.
pub(crate) fn is_loopback(authority: &str) -> bool {
    let Ok((host, _)) = host_and_port(authority) else {
        return false;
    };
    match in_brackets(host) {
        Some(address) => address.is_loopback(),
        None => {
            host.eq_ignore_ascii_case("localhost")
                || host
                    .parse()
                    .is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    }
}

/// Whether a host, with or without a port, is in a private network: the local machine, or an address that is not routed in the internet.
pub(crate) fn is_private(authority: &str) -> bool {
    let Ok((host, _)) = host_and_port(authority) else {
        return false;
    };
    let is_private_v4 = |address: Ipv4Addr| {
        let [first, second, ..] = address.octets();
        address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_unspecified()
            || (first == 100 && (64..128).contains(&second))
    };
    match in_brackets(host) {
        Some(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_private_v4(mapped),
            None => {
                let [first, ..] = address.segments();
                let is_local = matches!(first & 0xFFC0, 0xFE80) || matches!(first & 0xFE00, 0xFC00);
                address.is_loopback() || address.is_unspecified() || is_local
            }
        },
        None => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let is_local_name = host == "localhost" || host.ends_with(".localhost");
            // Resolvers take `127.1` and `0x7f000001` for addresses, and parsers disagree about which.
            let (_, last) = host.rsplit_once('.').unwrap_or(("", &host));
            let is_numeric =
                last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
            is_local_name || host.parse().map_or(is_numeric, is_private_v4)
        }
    }
}

/// The host of an `Origin`, with its port if it has one. `None` for `null` and for an invalid origin.
pub(crate) fn host_of_origin(origin: &str) -> Option<&str> {
    let (scheme, authority) = origin.split_once("://")?;
    let is_origin = is_scheme(scheme) && host_and_port(authority).is_ok();
    is_origin.then_some(authority)
}

fn check_characters(text: &str) -> Result<(), BadUrl> {
    let is_valid = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'\\';
    let is_text = text.bytes().all(is_valid);
    is_text.then_some(()).ok_or(BadUrl::Character)
}

/// Splits an authority into the host and the optional port. A host is a name of letters, digits, `-`, `.`, `_` and `~`, or an address.
fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), BadUrl> {
    if authority.contains('@') {
        return Err(BadUrl::UserInfo);
    }
    let host_end = match authority.find(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_host = in_brackets(host).is_some() || (!host.is_empty() && host.bytes().all(is_named));
    if !is_host {
        return Err(BadUrl::Host);
    }
    match port.strip_prefix(':') {
        // A colon without a number is the same as no colon.
        Some("") => Ok((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => Err(BadUrl::Port),
            Ok(port) => Ok((host, Some(port))),
        },
        None if port.is_empty() => Ok((host, None)),
        Some(_) => Err(BadUrl::Port),
        None => Err(BadUrl::Host),
    }
}

/// Parses an IPv6 address in brackets.
fn in_brackets(host: &str) -> Option<Ipv6Addr> {
    let address = host.strip_prefix('[')?.strip_suffix(']')?;
    address.parse().ok()
}

/// The default port of a supported scheme.
fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        scheme.eq_ignore_ascii_case("http").then_some(80)
    }
}

/// Whether a reference is absolute: it begins with a scheme and a colon.
fn has_scheme(reference: &str) -> bool {
    reference
        .split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn is_scheme(text: &str) -> bool {
    let is_first_a_letter = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_rest_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    is_first_a_letter && text.bytes().all(is_rest_fit)
}

/// Splits a text before the first of these characters.
fn split_before<'t>(text: &'t str, at_any_of: &str) -> (&'t str, &'t str) {
    let at = text.find(|found| at_any_of.contains(found));
    text.split_at(at.unwrap_or(text.len()))
}

/// Removes `.` and `..` segments from a path that is empty or begins with a slash: RFC 3986, section 5.2.4.
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/').skip(1) {
        is_folder = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    if is_folder {
        kept.push("");
    }
    kept.iter().flat_map(|segment| ["/", segment]).collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn error_text_names_the_flaw() {
        for (text, word) in [
            ("http://a/b c", "character"),
            ("http://", "host"),
            ("http://a:0", "port"),
            ("ftp://a", "http://"),
            ("http://me@a", "user"),
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn url_is_kept_unchanged_without_its_fragment() {
        for (text, kept) in [
            ("http://a", "http://a"),
            ("HTTPS://A.example/B?c=d#e", "HTTPS://A.example/B?c=d"),
            ("http://a#b?c", "http://a"),
            ("http://a?b/c:d@e", "http://a?b/c:d@e"),
            ("http://a:8080/b/../c", "http://a:8080/b/../c"),
            ("http://a:/", "http://a:/"),
            ("http://[::1]:3000/mcp", "http://[::1]:3000/mcp"),
            ("http://my_host-1.local/mcp", "http://my_host-1.local/mcp"),
            ("http://a/b@c:d//e", "http://a/b@c:d//e"),
        ] {
            assert_eq!(url(text).as_str(), kept);
        }
    }

    #[test]
    fn invalid_urls_are_refused_with_the_reason() {
        for (text, why) in [
            ("", BadUrl::Scheme),
            ("/mcp", BadUrl::Scheme),
            ("a.example/mcp", BadUrl::Scheme),
            ("ftp://a", BadUrl::Scheme),
            ("file:///a", BadUrl::Scheme),
            ("http:/a", BadUrl::Scheme),
            ("http:a", BadUrl::Scheme),
            ("://a", BadUrl::Scheme),
            ("http://", BadUrl::Host),
            ("http:///a", BadUrl::Host),
            ("http://:80", BadUrl::Host),
            ("http://?a", BadUrl::Host),
            ("http://[::1", BadUrl::Host),
            ("http://::1]", BadUrl::Host),
            ("http://[]", BadUrl::Host),
            ("http://[127.0.0.1]", BadUrl::Host),
            ("http://[fe80::1%25eth0]", BadUrl::Host),
            ("http://[::1]80", BadUrl::Host),
            ("http://a%2eb", BadUrl::Host),
            ("http://a]b", BadUrl::Host),
            ("http://::1", BadUrl::Host),
            ("http://a:b", BadUrl::Port),
            ("http://a:80:80", BadUrl::Port),
            ("http://a:+80", BadUrl::Port),
            ("http://a:-1", BadUrl::Port),
            ("http://a:0", BadUrl::Port),
            ("http://a:65536", BadUrl::Port),
            ("http://a:99999999999999999999", BadUrl::Port),
            ("http://user@a", BadUrl::UserInfo),
            ("http://user:hunter2@a", BadUrl::UserInfo),
            ("http://@a", BadUrl::UserInfo),
            ("http://a b", BadUrl::Character),
            (" http://a", BadUrl::Character),
            ("http://a\n", BadUrl::Character),
            ("http://a/\u{7f}", BadUrl::Character),
            ("http://b\u{fc}cher.example", BadUrl::Character),
            ("http://a\\@b", BadUrl::Character),
            ("http://a/\\..", BadUrl::Character),
        ] {
            assert_eq!(Url::parse(text), Err(why), "{text:?}");
            assert!(why.to_string().contains("URL"), "{why:?}");
        }
    }

    #[test]
    fn origins_are_normalised() {
        for (text, origin) in [
            ("http://a", "http://a:80"),
            ("https://a", "https://a:443"),
            ("HTTPS://A.Example:/b?c", "https://a.example:443"),
            ("https://a:0443", "https://a:443"),
            ("https://a:80", "https://a:80"),
            ("http://[::1]/", "http://[::1]:80"),
            ("http://[0:0::0:1]:80", "http://[::1]:80"),
            ("http://[FE80::A]:1", "http://[fe80::a]:1"),
        ] {
            assert_eq!(url(text).origin(), origin);
        }
        let home = url("https://a.example/mcp");
        assert!(home.is_same_origin(&url("https://A.example:443/other?x")));
        for other in [
            "http://a.example/mcp",
            "https://a.example:444/mcp",
            "https://b.a.example/mcp",
            "https://a.example.evil/mcp",
        ] {
            assert!(!home.is_same_origin(&url(other)), "{other}");
        }
    }

    #[test]
    fn references_resolve_as_in_the_rfc() {
        // RFC 3986, sections 5.4.1 and 5.4.2, without the fragments.
        let base = url("http://a/b/c/d;p?q");
        for (reference, target) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            ("g?y#s", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("g;x", "http://a/b/c/g;x"),
            ("g;x?y#s", "http://a/b/c/g;x?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            (".g", "http://a/b/c/.g"),
            ("g..", "http://a/b/c/g.."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/./x", "http://a/b/c/g?y/./x"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("g#s/./x", "http://a/b/c/g"),
            ("?", "http://a/b/c/d;p?"),
            ("https://h/x/../y?z#f", "https://h/y?z"),
            ("//h:81/./x", "http://h:81/x"),
            ("/messages?to=http://x:1", "http://a/messages?to=http://x:1"),
            ("1:2", "http://a/b/c/1:2"),
            ("//g?y=..", "http://g?y=.."),
        ] {
            assert_eq!(base.resolve(reference), Ok(url(target)), "{reference}");
        }
        assert_eq!(url("http://a").resolve("g"), Ok(url("http://a/g")));
        assert_eq!(url("http://a?q").resolve(""), Ok(url("http://a?q")));
        assert_eq!(url("http://a").resolve("?y"), Ok(url("http://a?y")));
        assert_eq!(
            url("http://a/b//c").resolve("../g"),
            Ok(url("http://a/b/g"))
        );
        // Dot segments of the base are removed first.
        let dotted = url("http://a//b/..");
        assert_eq!(dotted.resolve("../g"), Ok(url("http://a/g")));
        for (reference, why) in [
            ("g:h", BadUrl::Scheme),
            ("http:g", BadUrl::Scheme),
            ("mailto:a@b", BadUrl::Scheme),
            ("//", BadUrl::Host),
            ("///g", BadUrl::Host),
            ("//user@h", BadUrl::UserInfo),
            ("a b", BadUrl::Character),
            ("/\\evil.example", BadUrl::Character),
            // Even in a segment that is removed.
            ("\u{2}/../g", BadUrl::Character),
            ("\\evil.example/../g", BadUrl::Character),
        ] {
            assert_eq!(base.resolve(reference), Err(why), "{reference}");
        }
    }

    #[test]
    fn path_of_a_reference_cannot_change_the_host() {
        let base = url("http://a/b");
        for reference in ["/..//evil.example", ".//evil.example", "/.//evil.example/"] {
            let target = base.resolve(reference).unwrap();
            assert!(target.is_same_origin(&base), "{target}");
        }
    }

    #[test]
    fn query_is_not_shown() {
        let url = url("https://a/b?token=hunter2");
        assert_eq!(url.to_string(), "https://a/b");
        assert_eq!(format!("{url:?}"), "Url(https://a/b)");
    }

    #[test]
    fn loopback_hosts_are_recognised() {
        for authority in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.255.3.4:1",
            "[::1]",
            "[::1]:65535",
            "[0:0:0:0:0:0:0:1]",
        ] {
            assert!(is_loopback(authority), "{authority}");
        }
        for authority in [
            "",
            "localhost.evil.example",
            "evil.localhost.example",
            "127.0.0.1.evil.example",
            "127.1",
            "128.0.0.1",
            "0.0.0.0",
            "::1",
            "[::]",
            "[::2]",
            "[::1",
            "localhost:x",
            "localhost:99999",
            "localhost@evil.example",
            "localhost:80@evil.example",
            "localhost/",
            "localhost ",
        ] {
            assert!(!is_loopback(authority), "{authority}");
        }
    }

    #[test]
    fn host_of_origin_returns_the_host_and_port() {
        for (origin, host) in [
            ("https://a.example", Some("a.example")),
            ("http://localhost:3000", Some("localhost:3000")),
            ("http://[::1]:3000", Some("[::1]:3000")),
            ("vscode-webview://1a2b", Some("1a2b")),
            ("null", None),
            ("", None),
            ("a.example", None),
            ("https://", None),
            ("://a", None),
            ("https://a/", None),
            ("https://a?b", None),
            ("https://u@a", None),
            ("https://a https://b", None),
            ("https://a:b", None),
        ] {
            assert_eq!(host_of_origin(origin), host, "{origin}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri too long")]
    fn random_texts_do_not_panic_and_parsed_urls_round_trip() {
        let letters = [
            "http://", "a", ":", "/", "..", "?", "#", "@", "[", "]", "é", "1",
        ];
        let base = url("http://a/b/c?d");
        for number in 0..12_usize.pow(4) {
            let text: String = (0..4_u32)
                .map(|place| letters[number / 12_usize.pow(place) % 12])
                .collect();
            is_loopback(&text);
            host_of_origin(&text);
            for read in [Url::parse(&text), base.resolve(&text)] {
                let Ok(read) = read else { continue };
                assert_eq!(Url::parse(read.as_str()), Ok(read.clone()));
                assert_eq!(url(&read.origin()).origin(), read.origin());
                assert!(read.as_str().starts_with(&read.to_string()));
            }
        }
    }
}
