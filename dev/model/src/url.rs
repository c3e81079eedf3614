//! URLs: our parser and resolver beside the crate `url`, which follows the WHATWG standard. Ours follows RFC 3986 and refuses more.
//!
//! These differences are meant:
//! - Ours refuses what parsers disagree about: characters that must be encoded, backslashes, user information, port 0, an empty host, and hosts
//!   with other characters than those of names. [`is_refused_for`] says when.
//! - Ours keeps every text as it is. The standard reads `127.1` and `0x7f.1` as addresses and decodes names of other alphabets, and refuses the host
//!   if that fails. So [`has_plain_host`] decides whether hosts are compared.
//! - The standard reads `%2e` as a dot in a path.
//! - The crate keeps a segment such as `h:` when `..` follows it, as the standard says for `file` only.
//! - The standard takes `http:b` for `http://b`, or for a relative reference. RFC 3986 (5.2.2) allows to refuse it.

use everlink::http::{BadUrl, Url};
use url::{Host, Url as Peer};

use crate::auth;

/// Parses the first line as a URL, and resolves the second relative to it.
///
/// # Panics
///
/// When the two parsers disagree in a way that is not meant, or a private host passes as a public one.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (base, reference) = text.split_once('\n').unwrap_or((text, ""));
    let (ours, peers) = (Url::parse(base), Peer::parse(base));
    let ours = match (ours, &peers) {
        (Ok(ours), _) => ours,
        (Err(why), Ok(peer)) => return assert!(is_refused_for(why, base, peer), "{base}: {why}"),
        (Err(_), Err(_)) => return,
    };
    agree(&ours, peers.as_ref(), base);
    auth::authorization_server(ours.as_str());
    let Ok(peer) = peers else {
        return;
    };
    let (resolved, peers) = (ours.resolve(reference), peer.join(reference));
    let resolved = match (resolved, &peers) {
        (Ok(resolved), _) => resolved,
        (Err(why), Ok(peer)) => {
            return assert!(is_refused_for(why, reference, peer), "{reference}: {why}");
        }
        (Err(_), Err(_)) => return,
    };
    let path = reference.split(['?', '#']).next().unwrap_or_default();
    if !path.is_empty() {
        let mut segments = resolved.path().split('/');
        let has_dots = segments.any(|segment| matches!(segment, "." | ".."));
        assert!(!has_dots, "{reference} at {base} is {}", resolved.as_str());
    }
    agree(&resolved, peers.as_ref(), resolved.as_str());
    let has_encoded_dots = text.to_ascii_lowercase().contains("%2e");
    let is_compared = !has_encoded_dots && !has_drive(text);
    if let (Ok(mut peer), true) = (peers, is_compared) {
        peer.set_fragment(None);
        let again = Peer::parse(resolved.as_str());
        assert_eq!(again.as_ref(), Ok(&peer), "{reference} at {base}");
    }
}

/// Both name the same scheme, host and port.
fn agree<E: std::fmt::Debug>(ours: &Url, peer: Result<&Peer, E>, text: &str) {
    let origin = ours.origin();
    let (scheme, rest) = origin.split_once("://").expect("an origin");
    let (host, port) = rest.rsplit_once(':').expect("a port");
    let peer = match peer {
        Ok(peer) => peer,
        Err(error) => return assert!(!has_plain_host(host), "{text}: {error:?}"),
    };
    assert_eq!(scheme, peer.scheme(), "{text}");
    assert_eq!(port.parse().ok(), peer.port_or_known_default(), "{text}");
    match peer.host().expect("a host") {
        // An address has several spellings.
        Host::Ipv6(address) => assert_eq!(host.trim_matches(['[', ']']).parse(), Ok(address)),
        peer if has_plain_host(host) => assert_eq!(host, peer.to_string(), "{text}"),
        _ => {}
    }
    // A program that reads our text with the other parser sends the request to the same place.
    let again = Peer::parse(ours.as_str());
    assert_eq!(again.map(|again| again.origin()).ok(), Some(peer.origin()));
}

/// Whether a host means the same to both: its last label is no number, and no label is encoded.
fn has_plain_host(host: &str) -> bool {
    let labels: Vec<&str> = host.trim_end_matches('.').split('.').collect();
    let last = labels.last().copied().unwrap_or_default();
    let is_number = last.starts_with(|first: char| first.is_ascii_digit());
    !is_number && !last.is_empty() && labels.iter().all(|label| !label.starts_with("xn--"))
}

/// Whether a segment of a path looks like a drive of Windows.
fn has_drive(text: &str) -> bool {
    let mut segments = text.split(['/', '?', '#', '\n']);
    segments.any(|segment| {
        matches!(segment.as_bytes(), [letter, b':' | b'|'] if letter.is_ascii_alphabetic())
    })
}

/// Whether our reason to refuse a text is true of it.
fn is_refused_for(why: BadUrl, text: &str, peer: &Peer) -> bool {
    let text = text.split('#').next().unwrap_or_default();
    let after = text.split_once("//").map_or(text, |(_, after)| after);
    let authority = after.split(['/', '?']).next().unwrap_or_default();
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    match why {
        BadUrl::Character => text.bytes().any(|b| !b.is_ascii_graphic() || b == b'\\'),
        BadUrl::Host => authority.is_empty() || !authority.bytes().all(is_named),
        BadUrl::Port => peer.port() == Some(0),
        BadUrl::Scheme => {
            let (scheme, _) = text.split_once("://").unwrap_or_default();
            !matches!(&*scheme.to_ascii_lowercase(), "http" | "https")
        }
        BadUrl::UserInfo => authority.contains('@'),
        _ => false,
    }
}
