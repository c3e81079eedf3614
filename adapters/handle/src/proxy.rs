//! Picks the proxy for a server from the environment, for all adapters that use HTTP. Reads no variable itself and opens no connection.

use std::net::IpAddr;

/// The proxies that the environment names, and the hosts that are reached directly.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<String>,
    https: Option<String>,
    no_proxy: String,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case, with this function, for example [`std::env::var`]. An
    /// empty variable counts as unset.
    ///
    /// In a CGI script (`REQUEST_METHOD` is set), `HTTP_PROXY` is ignored: it may come from the `Proxy` header field of a request that anyone can
    /// send.
    #[must_use]
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first_of = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(&variable);
            values.find(|value| !value.is_empty())
        };
        let all = first_of(["ALL_PROXY", "all_proxy"]);
        let http = match variable("REQUEST_METHOD") {
            Some(_) => first_of(["http_proxy"; 2]),
            None => first_of(["HTTP_PROXY", "http_proxy"]),
        };
        Proxies {
            http: http.or_else(|| all.clone()),
            https: first_of(["HTTPS_PROXY", "https_proxy"]).or(all),
            no_proxy: first_of(["NO_PROXY", "no_proxy"]).unwrap_or_default(),
        }
    }

    /// Returns the address of the proxy for a server, if there is one. The local host has none.
    ///
    /// `NO_PROXY` lists hosts, domains with their subdomains, addresses, and networks such as `10.0.0.0/8`. Each entry may have a port, and `*`
    /// matches every host. Names are compared without case and without a leading or trailing dot.
    #[must_use]
    pub fn proxy_for(&self, is_https: bool, host: &str, port: Option<u16>) -> Option<&str> {
        let proxy = if is_https { &self.https } else { &self.http };
        let port = port.unwrap_or(if is_https { 443 } else { 80 });
        let is_direct = is_local_host(host) || is_listed(&self.no_proxy, host, port);
        proxy.as_deref().filter(|_| !is_direct)
    }
}

/// Whether a host is the local host: `localhost` and names below it, loopback addresses and unspecified ones. Requests to it may carry credentials
/// and must not pass through another computer.
#[must_use]
pub fn is_local_host(host: &str) -> bool {
    let host = normalize(host);
    match parse_ip(&host) {
        Some(address) => address.is_loopback() || address.is_unspecified(),
        None => is_in_domain(&host, "localhost"),
    }
}

fn is_listed(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = normalize(host);
    let mut patterns = no_proxy.split([',', ' ']).filter(|it| !it.is_empty());
    patterns.any(|pattern| {
        let (pattern, only_port) = split_port(pattern);
        let pattern = normalize(pattern);
        let pattern = pattern.strip_prefix('*').unwrap_or(&pattern);
        let pattern = pattern.strip_prefix('.').unwrap_or(pattern);
        if only_port.is_some_and(|only| only != port) {
            return false;
        }
        match (pattern.split_once('/'), parse_ip(&host)) {
            (Some((network, bits)), Some(address)) => is_in_network(address, network, bits),
            (Some(_), None) => false,
            (None, Some(address)) => pattern.is_empty() || parse_ip(pattern) == Some(address),
            (None, None) => pattern.is_empty() || is_in_domain(&host, pattern),
        }
    })
}

/// Normalizes a host: lower case, without a trailing dot and without the brackets of an IPv6 address.
fn normalize(host: &str) -> String {
    let host = host.strip_suffix('.').unwrap_or(host);
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inside.unwrap_or(host).to_ascii_lowercase()
}

/// Parses a host as an IP address, if it is one. An IPv4-mapped IPv6 address becomes the IPv4 address.
fn parse_ip(host: &str) -> Option<IpAddr> {
    host.parse().ok().map(|it: IpAddr| it.to_canonical())
}

fn is_in_domain(host: &str, domain: &str) -> bool {
    let before = host.strip_suffix(domain);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Splits off the port: `example.com:8080` and `[::1]:8080` have one, `::1` has none.
fn split_port(pattern: &str) -> (&str, Option<u16>) {
    let has_port = |host: &str| !host.contains(':') || host.ends_with(']');
    match pattern.rsplit_once(':') {
        Some((host, port)) if has_port(host) => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (pattern, None),
        },
        _ => (pattern, None),
    }
}

fn is_in_network(host: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse(), bits.parse::<u32>()) else {
        return false;
    };
    match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            let difference = u32::from(host) ^ u32::from(network);
            bits <= 32 && difference.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => {
            let difference = u128::from(host) ^ u128::from(network);
            bits <= 128 && difference.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::new(|name| {
            let mut variables = variables.iter();
            variables.find_map(|(known, value)| (*known == name).then(|| (*value).to_owned()))
        })
    }

    #[test]
    fn local_host_is_reached_without_a_proxy_under_each_of_its_names() {
        let all = proxies(&[("ALL_PROXY", "http://proxy:1")]);
        for host in [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "LocalHost.",
            "api.localhost",
            "127.0.0.1",
            "127.0.0.2",
            "127.255.255.254",
            "0.0.0.0",
            "[::1]",
            "::1",
            "[::]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_local_host(host), "{host}");
            for is_https in [false, true] {
                assert_eq!(all.proxy_for(is_https, host, None), None, "{host}");
            }
        }
        for host in [
            "example.com",
            "localhost.example.com",
            "notlocalhost",
            "128.0.0.1",
            "127.0.0.1.example.com",
            "[::2]",
        ] {
            assert!(!is_local_host(host), "{host}");
            let proxy = all.proxy_for(false, host, None);
            assert_eq!(proxy, Some("http://proxy:1"), "{host}");
        }
    }

    #[test]
    fn no_proxy_entries_match_hosts_domains_addresses_networks_and_ports() {
        let is_direct = |no_proxy: &str, host: &str, port: u16| {
            let all = proxies(&[("all_proxy", "http://proxy:1"), ("NO_PROXY", no_proxy)]);
            all.proxy_for(false, host, Some(port)).is_none()
        };
        for (no_proxy, host, is_listed) in [
            ("example.com", "example.com", true),
            ("example.com", "EXAMPLE.com.", true),
            ("Example.COM.", "example.com", true),
            ("example.com", "api.example.com", true),
            (".example.com", "api.Example.com", true),
            (".example.com", "example.com", true),
            ("*.example.com", "api.example.com", true),
            ("example.com", "badexample.com", false),
            ("example.com", "example.com.evil", false),
            ("a, example.com ,b", "example.com", true),
            ("*", "anything.at.all", true),
            ("", "example.com", false),
            (",, ,", "example.com", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.30", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("fe80::/10", "[fe80::1]", true),
            ("fe80::/10", "[fe80:1::1]", true),
            ("fe80::/10", "[fd00::1]", false),
            ("fd00::1/128", "[fd00::1]", true),
            ("fd00::1/128", "[fd00::2]", false),
            ("fd00::/129", "[fd00::1]", false),
            ("[fd00::1]", "fd00::1", true),
            ("fd00:0::1", "[fd00::1]", true),
        ] {
            assert_eq!(
                is_direct(no_proxy, host, 80),
                is_listed,
                "{no_proxy}: {host}"
            );
        }
        for (no_proxy, host, port, is_listed) in [
            ("example.com:8080", "example.com", 8080, true),
            ("Example.com.:8080", "api.example.com", 8080, true),
            ("example.com:8080", "example.com", 80, false),
            ("[fd00::1]:8080", "[fd00::1]", 8080, true),
            ("[fd00::1]:8080", "[fd00::1]", 80, false),
            ("*:8080", "example.com", 8080, true),
            ("*:8080", "example.com", 80, false),
        ] {
            let listed = is_direct(no_proxy, host, port);
            assert_eq!(listed, is_listed, "{no_proxy}: {host}:{port}");
        }
    }

    #[test]
    fn proxy_of_the_scheme_takes_precedence_over_all_proxy() {
        let some = proxies(&[
            ("HTTP_PROXY", ""),
            ("http_proxy", "one"),
            ("HTTPS_PROXY", "two"),
            ("ALL_PROXY", "three"),
        ]);
        assert_eq!(some.proxy_for(false, "example.com", None), Some("one"));
        assert_eq!(some.proxy_for(true, "example.com", None), Some("two"));
        let cgi = proxies(&[("HTTP_PROXY", "stranger"), ("REQUEST_METHOD", "GET")]);
        assert_eq!(cgi.proxy_for(false, "example.com", None), None);
        assert_eq!(
            proxies(&[]).proxy_for(false, "example.com", None),
            None,
            "no variable is set"
        );
    }
}
