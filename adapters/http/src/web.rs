//! Single HTTP exchanges, for whatever gets the credentials of a client.

use std::io::Read as _;

use everlink::Fault;
use everlink::auth::{MAX_BODY, Request};
use everlink::http::Verb;
use everlink_handle::{Web, WebResponse};

use crate::Connector;
use crate::client_connection::connection_factory;
use crate::exchange::{head_of, unsendable};
use crate::fault::fault;

/// Does single HTTP exchanges with the certificates and the proxy of a [`Connector`]. Its credentials and header fields are not sent.
pub struct HttpWeb(Connector);

impl Connector {
    /// Does single HTTP exchanges, for whatever gets the credentials of a client.
    #[must_use]
    pub fn web(&self) -> HttpWeb {
        HttpWeb(self.clone())
    }
}

impl Web for HttpWeb {
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>> {
        self.run(&request).map_err(|fault| vec![fault])
    }
}

impl HttpWeb {
    fn run(&self, request: &Request) -> Result<WebResponse, Fault> {
        let agent_config = self.0.agent_config(&request.url).map_err(unsendable)?;
        let agent = connection_factory(agent_config)().agent;
        let mut builder = ureq::http::Request::builder()
            .method(request.verb.as_str())
            .uri(request.url.as_str());
        for (name, value) in request.fields.iter() {
            builder = builder.header(name, value);
        }
        let response = match request.verb {
            Verb::Post => agent.run(builder.body(&*request.body).map_err(unsendable)?),
            _ => agent.run(builder.body(()).map_err(unsendable)?),
        };
        let response = response.map_err(fault)?;
        let head = head_of(&response);
        let limit = MAX_BODY as u64 + 1;
        let mut body = Vec::new();
        let read = response
            .into_body()
            .into_reader()
            .take(limit)
            .read_to_end(&mut body);
        read.map_err(|error| fault(error.into()))?;
        Ok(WebResponse { head, body })
    }
}
