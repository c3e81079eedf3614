//! Single HTTP exchanges, for the code that gets the credentials of a client.

use std::io::Read as _;
use std::time::Duration;

use everlink::Fault;
use everlink::auth::{MAX_BODY, Request};
use everlink::http::Verb;
use everlink_handle::{Web, WebResponse};
use ureq::http::Response;
use ureq::{Agent, AsSendBody, Body};

use crate::Connector;
use crate::client_connection::connection_factory;
use crate::exchange::{head_of, unsendable};
use crate::fault::fault;

/// How long an exchange may take. The authorizer gives up before this, after its `exchange_timeout`, but cannot end an exchange.
const LIMIT: Duration = Duration::from_secs(60);

/// Does single HTTP exchanges with the certificates and the proxy of a [`Connector`]. Its credentials and header fields are not sent.
pub struct HttpWeb(Connector);

impl Connector {
    /// Does single HTTP exchanges, for the code that gets the credentials of a client.
    #[must_use]
    pub fn web(&self) -> HttpWeb {
        HttpWeb(self.clone())
    }
}

impl Web for HttpWeb {
    fn exchange(&self, request: Request) -> Result<WebResponse, Vec<Fault>> {
        self.run(&request, LIMIT).map_err(|fault| vec![fault])
    }
}

impl HttpWeb {
    fn run(&self, request: &Request, limit: Duration) -> Result<WebResponse, Fault> {
        let agent_config = self.0.agent_config(&request.url).map_err(unsendable)?;
        let agent = connection_factory(agent_config)().agent;
        let mut builder = ureq::http::Request::builder()
            .method(request.verb.as_str())
            .uri(request.url.as_str());
        for (name, value) in request.fields.iter() {
            builder = builder.header(name, value);
        }
        let response = match request.verb {
            Verb::Post => {
                let sent = builder.body(&*request.body).map_err(unsendable)?;
                send_within(&agent, sent, limit)
            }
            _ => send_within(&agent, builder.body(()).map_err(unsendable)?, limit),
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

/// Sends a request. The limit holds until the whole body of the response is read.
fn send_within(
    agent: &Agent,
    request: ureq::http::Request<impl AsSendBody>,
    limit: Duration,
) -> Result<Response<Body>, ureq::Error> {
    let request = agent.configure_request(request);
    agent.run(request.timeout_global(Some(limit)).build())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use everlink::FaultKind;
    use everlink::http::Url;

    use super::*;

    /// A server that takes a connection, sends this much of a response, and is silent.
    fn fault_of(beginning: &'static str) -> Fault {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!(
            "http://{}/token",
            listener.local_addr().expect("an address")
        );
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a connection");
            socket.write_all(beginning.as_bytes()).expect("it reads");
            // Until the client gives up.
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let web = Connector::new().web();
        let mut request = Request::get(Url::parse(&url).expect("a URL"));
        request.verb = Verb::Post;
        let done = web.run(&request, Duration::from_millis(200));
        server.join().expect("it ends");
        done.expect_err("there is no response")
    }

    #[test]
    fn exchange_with_a_silent_server_ends() {
        for beginning in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"] {
            assert_eq!(fault_of(beginning).kind(), FaultKind::TimedOut);
        }
    }
}
