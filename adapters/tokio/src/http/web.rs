//! Single HTTP exchanges, for whatever gets the credentials of a client.

use bytes::Bytes;
use everlink::auth::{MAX_BODY, Request};
use everlink::http::{Fields, ResponseHead};
use everlink::{Epoch, Fault, StreamId};
use everlink_handle::{Inbox, Web, WebResponse};
use http::Uri;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;

use super::client::{Connector, complete_fields, header_map};
use super::client_connections::{ClientConnections, RequestBody, unsendable};
use super::fault::fault;
use super::proxy_connector::ProxyConnector;

/// Does single HTTP exchanges with the certificates and the proxy of a [`Connector`]. Its credentials and header fields are not sent.
pub struct HttpWeb {
    connections: ClientConnections,
    proxy_connector: ProxyConnector,
    runtime: Handle,
}

impl Connector {
    /// Does single HTTP exchanges on the present runtime, for whatever gets the credentials of a client.
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
        let exchanged = self.runtime.block_on(self.send(request));
        exchanged.map_err(|fault| vec![fault])
    }
}

impl HttpWeb {
    /// Sends a request, and returns the response with its body.
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
