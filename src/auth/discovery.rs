//! Where metadata may be: the URLs to ask, in order.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use super::error::UrlFlaw;
use crate::http::Url;

/// The path of the metadata of a protected server.
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The path of the metadata of an authorization server.
const OAUTH: &str = "/.well-known/oauth-authorization-server";
/// The path of the metadata of an `OpenID` provider.
const OPENID: &str = "/.well-known/openid-configuration";

/// The URLs of the metadata of a protected server that did not say where it is: with its path first, then without.
pub(super) fn resource_urls(server: &Url) -> VecDeque<Url> {
    let base = server.base();
    let with_path = match server.path() {
        "" | "/" => None,
        path => Some(format!("{base}{RESOURCE}{path}")),
    };
    urls(with_path.into_iter().chain([format!("{base}{RESOURCE}")]))
}

/// The URLs of the metadata of an authorization server. If the issuer has a path, the root is never asked.
pub(super) fn issuer_urls(issuer: &str) -> Result<VecDeque<Url>, UrlFlaw> {
    let issuer = Url::parse(issuer)?;
    let base = issuer.base();
    Ok(match issuer.path().trim_end_matches('/') {
        "" => urls([format!("{base}{OAUTH}"), format!("{base}{OPENID}")]),
        path => urls([
            format!("{base}{OAUTH}{path}"),
            format!("{base}{OPENID}{path}"),
            format!("{base}{path}{OPENID}"),
        ]),
    })
}

fn urls(texts: impl IntoIterator<Item = String>) -> VecDeque<Url> {
    // They are made of URLs that were parsed, so all of them are valid.
    texts
        .into_iter()
        .filter_map(|text| Url::parse(&text).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn texts(urls: &VecDeque<Url>) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    #[test]
    fn server_metadata_is_looked_up_with_the_path_and_then_at_the_root() {
        let server = Url::parse("https://a.example:8443/v1/mcp?key=1").unwrap();
        assert_eq!(
            texts(&resource_urls(&server)),
            [
                "https://a.example:8443/.well-known/oauth-protected-resource/v1/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource",
            ]
        );
        for bare in ["https://a.example", "https://a.example/"] {
            let server = Url::parse(bare).unwrap();
            assert_eq!(
                texts(&resource_urls(&server)),
                ["https://a.example/.well-known/oauth-protected-resource"]
            );
        }
    }

    #[test]
    fn issuer_with_a_path_is_never_looked_up_at_the_root() {
        for issuer in ["https://a.example/t/1", "https://a.example/t/1/"] {
            assert_eq!(
                texts(&issuer_urls(issuer).unwrap()),
                [
                    "https://a.example/.well-known/oauth-authorization-server/t/1",
                    "https://a.example/.well-known/openid-configuration/t/1",
                    "https://a.example/t/1/.well-known/openid-configuration",
                ]
            );
        }
    }

    #[test]
    fn issuer_without_a_path_has_two_places() {
        for issuer in ["https://a.example", "https://a.example/"] {
            assert_eq!(
                texts(&issuer_urls(issuer).unwrap()),
                [
                    "https://a.example/.well-known/oauth-authorization-server",
                    "https://a.example/.well-known/openid-configuration",
                ]
            );
        }
    }
}
