//! By way of whom a server is reached, as the environment says. Knows no connection.

use std::env;

use everlink::http::Url;
use ureq::Proxy;

use crate::SetupError;

/// The proxy for this server: `HTTP_PROXY` or `HTTPS_PROXY`, as its address says, else `ALL_PROXY`, in capitals or not; `NO_PROXY` lists
/// the hosts for which there is none.
pub(crate) fn from_environment(server: &Url) -> Result<Option<Proxy>, SetupError> {
    let own = if server.as_str().starts_with("https:") {
        ["HTTPS_PROXY", "https_proxy"]
    } else {
        ["HTTP_PROXY", "http_proxy"]
    };
    let Some(url) = first_of(&own).or_else(|| first_of(&["ALL_PROXY", "all_proxy"])) else {
        return Ok(None);
    };
    let except = first_of(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
    at(&url, &except).map(Some)
}

/// The proxy at this address, for all but these hosts.
pub(crate) fn at(url: &str, except: &str) -> Result<Proxy, SetupError> {
    let all = Proxy::new(url).map_err(|_| SetupError::Proxy)?;
    let mut some = Proxy::builder(all.protocol())
        .host(all.host())
        .port(all.port());
    if let Some(name) = all.username() {
        some = some.username(name);
    }
    if let Some(password) = all.password() {
        some = some.password(password);
    }
    for host in except
        .split(',')
        .map(str::trim)
        .filter(|host| !host.is_empty())
    {
        // As everywhere, a domain stands for all that is in it.
        some = some.no_proxy(host).no_proxy(&format!(".{host}"));
    }
    some.build().map_err(|_| SetupError::Proxy)
}

fn first_of(names: &[&str]) -> Option<String> {
    let mut values = names.iter().filter_map(|name| env::var(name).ok());
    values.find(|value| !value.is_empty())
}
