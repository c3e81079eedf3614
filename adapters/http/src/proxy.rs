//! Creates the proxy that the environment or the application names. Does not depend on connections.

use std::env;

use everlink::http::Url;
use everlink_handle::Proxies;
use ureq::Proxy;

use crate::SetupError;

/// Returns the proxy that the environment names for this server, if there is one; see [`Proxies`].
pub(crate) fn from_environment(server: &Url) -> Result<Option<Proxy>, SetupError> {
    let proxies = Proxies::new(|name| env::var(name).ok());
    let origin = server.origin();
    let (scheme, authority) = origin.split_once("://").unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or_default();
    let proxy = proxies.proxy_for(scheme == "https", host, port.parse().ok());
    proxy.map(at).transpose()
}

/// Creates the proxy at this address.
pub(crate) fn at(url: &str) -> Result<Proxy, SetupError> {
    Proxy::new(url).map_err(|_| SetupError::Proxy)
}
