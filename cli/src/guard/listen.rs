//! Listens for hosts over HTTP: the address, and the accepted values of `Host`. Does not depend on the server behind the guard.

use std::net::IpAddr;
use std::time::Duration;

use everlink::server::SsePaths;
use everlink_tokio::Guard;
use everlink_tokio::http::{Endpoint, Health, ServerTransport, Store as _};
use http::Uri;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::log::LogLine;
use super::store::{self, SessionStore};

use crate::recording::EndpointSetup;
use crate::{Failure, usage_error};

/// How long open connections may take to end after the guard has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the store may take for the last messages after that.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The names of this machine that are always accepted as `Host`.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A listener for hosts.
pub(super) struct HostListener {
    http_endpoint: Endpoint,
    listener: TcpListener,
    url: String,
    path: String,
    /// The values of `Host` that are accepted in addition to the names of this machine. `None`: only the names of this machine are accepted.
    hosts: Option<Vec<String>>,
    /// The URL for hosts that speak only the transport of 2024-11-05, if it is served.
    sse: Option<String>,
    /// The origins whose web pages may connect.
    cors: Vec<String>,
    caution: Option<String>,
    health: Health,
    /// The task of the store of sessions, if there is one.
    store: Option<JoinHandle<()>>,
    /// The address of the store, and why it does not answer.
    store_problem: Option<(String, watch::Receiver<Option<String>>)>,
}

impl HostListener {
    /// Starts to listen at this URL.
    pub(super) async fn bind(
        url: &str,
        allowed: &[String],
        cors: &[String],
        store: Option<SessionStore>,
    ) -> Result<(HostListener, ServerTransport), Failure> {
        let invalid = |what: &str| usage_error(format!("--listen {url}: {what}"));
        let uri: Uri = url.parse().map_err(|_| {
            invalid("this is neither `stdio` nor an address such as http://127.0.0.1:8080/mcp")
        })?;
        let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(invalid("the address must begin with http:// and a host"));
        };
        let port = uri.port_u16();
        let port = port.ok_or_else(|| {
            invalid(
                "the address needs a port up to 65535; for port 0, the system chooses a free one",
            )
        })?;
        let listener = TcpListener::bind(format!("{host}:{port}")).await;
        let listener =
            listener.map_err(|error| format!("--listen {url}: cannot listen: {error}"))?;
        let address = listener.local_addr()?;
        let hosts = allowed_hosts(host, address.ip(), allowed).map_err(invalid)?;
        let open_to_hosts = hosts.as_ref().map(|hosts| {
            let hosts = hosts.join(", ");
            format!("anyone who can reach this address can use the server; accepted values of Host: {hosts}, and the names of this machine")
        });
        let open_to_pages = (!cors.is_empty()).then(|| {
            let pages = if cors.iter().any(|origin| origin == "*") {
                "any web page".to_owned()
            } else {
                format!("web pages of {}", cors.join(", "))
            };
            format!("{pages} can use the server, in any browser that can reach this address")
        });
        let cautions: Vec<_> = [open_to_hosts, open_to_pages]
            .into_iter()
            .flatten()
            .collect();
        let caution = (!cautions.is_empty()).then(|| cautions.join("; "));
        let paths = SsePaths::default();
        // The old transport is not served if the endpoint has one of its paths.
        let is_path_free = [&paths.stream, &paths.messages]
            .into_iter()
            .all(|path| **path != *uri.path());
        let origin = format!("http://{host}:{}", address.port());
        let sse = is_path_free.then(|| format!("{origin}{}", paths.stream));
        let mut health = Health::new();
        let store_problem = store
            .as_ref()
            .map(|store| (store.redis.address(), store.redis.problem()));
        let (http_endpoint, transport, store) = match store {
            None => {
                let (endpoint, transport) = ServerTransport::new();
                (endpoint, transport, None)
            }
            Some(store) => {
                health = health.with_store(store.redis.health());
                let (endpoint, transport, port) = ServerTransport::with_store();
                let task = tokio::spawn(store.redis.run(port));
                (endpoint, transport, Some(task))
            }
        };
        let host_listener = HostListener {
            http_endpoint: http_endpoint.with_health(health.clone()),
            health,
            store,
            store_problem,
            listener,
            url: format!("{origin}{}", uri.path()),
            path: uri.path().to_owned(),
            hosts,
            sse,
            cors: cors.to_vec(),
            caution,
        };
        Ok((host_listener, transport))
    }

    /// The URL of the endpoint.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The URL for hosts that speak only the transport of 2024-11-05, if it is served.
    pub(super) fn sse(&self) -> Option<&str> {
        self.sse.as_deref()
    }

    /// A warning about who can reach the endpoint, if there is one.
    pub(super) fn caution(&self) -> Option<&str> {
        self.caution.as_deref()
    }

    /// The settings of the HTTP endpoint, for the configuration of the relay.
    pub(super) fn endpoint(&self) -> EndpointSetup {
        EndpointSetup {
            path: self.path.clone(),
            hosts: with_loopback_names(self.hosts.as_deref()),
            sse: self.sse.is_some(),
            cors: self.cors.clone(),
        }
    }

    /// Logs when the store of sessions stops to answer, and when it answers again.
    pub(super) fn log_outages(&self, remarks: &UnboundedSender<LogLine>) {
        if let Some((address, problem)) = self.store_problem.clone() {
            tokio::spawn(store::log_outages(address, problem, remarks.clone()));
        }
    }

    /// What the endpoint answers to probes.
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Accepts connections until the guard has ended.
    pub(super) async fn serve(self, guard: Guard) {
        let _ = self
            .http_endpoint
            .listen(self.listener, guard.closed(), CLOSE_TIMEOUT)
            .await;
        if let Some(store) = self.store {
            let _ = timeout(STORE_TIMEOUT, store).await;
        }
    }
}

/// Adds the names of this machine to these hosts. Returns `None` if only the names of this machine are accepted.
pub(super) fn with_loopback_names(hosts: Option<&[String]>) -> Option<Vec<String>> {
    let loopback_names = LOOPBACK_NAMES.map(str::to_owned);
    hosts.map(|hosts| hosts.iter().cloned().chain(loopback_names).collect())
}

/// Returns the additional values of `Host` that are accepted at this address. `None`: only the names of this machine are accepted.
///
/// Any other name is refused. Otherwise a web page could make its own domain resolve to this address and send requests (DNS rebinding).
pub(super) fn allowed_hosts(
    host: &str,
    ip: IpAddr,
    allowed: &[String],
) -> Result<Option<Vec<String>>, &'static str> {
    let mut hosts = allowed.to_vec();
    if ip.is_unspecified() && hosts.is_empty() {
        return Err(
            "this listens on every address of the machine; give the names or addresses that clients connect to with --allow-host",
        );
    }
    // A name of the operator's own may lead to this machine, too.
    let is_loopback_name = LOOPBACK_NAMES
        .iter()
        .any(|name| name.eq_ignore_ascii_case(host));
    if !is_loopback_name && !ip.is_unspecified() {
        hosts.push(host.to_owned());
    }
    Ok((!hosts.is_empty()).then_some(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_are_the_given_names_and_a_bound_address_that_is_not_loopback() {
        let allowed = |host: &str, ip: &str, names: &[&str]| {
            let ip = ip.parse().expect("an address");
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            allowed_hosts(host, ip, &names).map(|hosts| hosts.map(|hosts| hosts.join(" ")))
        };
        assert_eq!(allowed("localhost", "127.0.0.1", &[]), Ok(None));
        assert_eq!(allowed("[::1]", "::1", &[]), Ok(None));
        let shop = Some("shop".to_owned());
        assert_eq!(
            allowed("127.0.0.1", "127.0.0.1", &["shop"]),
            Ok(shop.clone())
        );
        assert_eq!(allowed("shop", "10.0.0.7", &[]), Ok(shop.clone()));
        // The operator chose this name, although it leads to this machine.
        assert_eq!(allowed("shop", "127.0.0.1", &[]), Ok(shop.clone()));
        assert_eq!(allowed("LocalHost", "127.0.0.1", &[]), Ok(None));
        assert_eq!(allowed("0.0.0.0", "0.0.0.0", &["shop"]), Ok(shop));
        assert!(allowed("0.0.0.0", "0.0.0.0", &[]).is_err());
        assert!(allowed("[::]", "::", &[]).is_err());
    }
}
