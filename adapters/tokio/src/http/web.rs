//! Single HTTP exchanges, for the code that gets the credentials of a client.

use std::time::Duration;

use bytes::Bytes;
use everlink::auth::{MAX_BODY, Request};
use everlink::http::{Fields, ResponseHead};
use everlink::{Epoch, Fault, FaultKind, StreamId};
use everlink_handle::{Inbox, Web, WebResponse};
use http::Uri;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::client::{Connector, complete_fields, header_map};
use super::client_connections::{ClientConnections, RequestBody, unsendable};
use super::fault::fault;
use super::proxy_connector::ProxyConnector;

/// How long an exchange may take that a thread waits for. The authorizer gives up before this, after its `exchange_timeout`, but cannot end an exchange.
const LIMIT: Duration = Duration::from_secs(60);

/// Does single HTTP exchanges with the certificates and the proxy of a [`Connector`]. Its credentials and header fields are not sent.
pub struct HttpWeb {
    connections: ClientConnections,
    proxy_connector: ProxyConnector,
    runtime: Handle,
}

impl Connector {
    /// Does single HTTP exchanges on the present runtime, for the code that gets the credentials of a client.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[must_use]
    pub fn web(&self) -> HttpWeb {
        let (connections, proxy_connector) = self.connections();
        HttpWeb {
            connections,
            proxy_connector,
            runtime: Handle::current(),
        }
    }
}

impl Web for HttpWeb {
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>> {
        let exchanged = self.runtime.block_on(self.send_within(request, LIMIT));
        exchanged.map_err(|fault| vec![fault])
    }
}

impl HttpWeb {
    async fn send_within(&self, request: Request, limit: Duration) -> Result<WebResponse, Fault> {
        let sent = timeout(limit, self.send(request)).await;
        sent.unwrap_or_else(|_| {
            let detail = format!("no whole response within {} s", limit.as_secs());
            Err(Fault::with_detail(FaultKind::TimedOut, detail))
        })
    }

    /// Sends a request, and returns the response with its body. Waits without a limit: drop the future to end the exchange.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or its response breaks off.
    pub async fn send(&self, mut request: Request) -> Result<WebResponse, Fault> {
        let body = Bytes::from(std::mem::take(&mut request.body));
        self.send_body(request, body).await
    }

    /// The same with another body, which the caller can keep without a copy.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or its response breaks off.
    pub async fn send_body(&self, request: Request, body: Bytes) -> Result<WebResponse, Fault> {
        let url: Uri = request.url.as_str().parse().map_err(unsendable)?;
        let mut sent = http::Request::new(RequestBody {
            bytes: body,
            epoch: Epoch::FIRST,
            stream: StreamId::DUPLEX,
            // Nobody counts the bytes.
            results: Inbox::new().sender(),
        });
        *sent.method_mut() = request.verb.as_str().parse().map_err(unsendable)?;
        *sent.headers_mut() = header_map(&request.fields)?;
        complete_fields(sent.headers_mut(), &url, &self.proxy_connector)?;
        *sent.uri_mut() = url;
        let (response, _connection) = self.connections.send(sent).await?;
        let (head, mut body) = response.into_parts();
        let fields = head.headers.iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let response_head = ResponseHead::new(head.status.as_u16());
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Ok(bytes) = frame.map_err(|error| fault(&error))?.into_data() {
                whole.extend_from_slice(&bytes);
            }
            if whole.len() > MAX_BODY {
                whole.truncate(MAX_BODY + 1);
                break;
            }
        }
        Ok(WebResponse {
            head: response_head.with_fields(Fields::from_iter(fields)),
            body: whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use everlink::http::Url;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn exchange_with_a_silent_server_ends() {
        for beginning in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let server = tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let read = socket.read(&mut [0; 4096]).await;
                assert!(read.is_ok_and(|length| length > 0));
                let sent = socket.write_all(beginning.as_bytes()).await;
                sent.expect("it reads");
                // Until the client gives up.
                let _ = socket.read_to_end(&mut Vec::new()).await;
            });
            let web = Connector::new().web();
            let url = Url::parse(&format!("http://{address}/token")).expect("a URL");
            let limit = Duration::from_millis(200);
            let exchanged = timeout(
                Duration::from_secs(20),
                web.send_within(Request::get(url), limit),
            );
            let fault = exchanged.await.expect("it ends").expect_err("no response");
            assert_eq!(fault.kind(), FaultKind::TimedOut);
            server.await.expect("it sees the end");
        }
    }
}
