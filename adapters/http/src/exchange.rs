//! One exchange, a request and its response, on its own thread. Does not depend on its content or on other exchanges.

use std::future::poll_fn;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::Poll;
use std::thread;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::{Fault, FaultKind, Input, StreamId};
use everlink_handle::{
    CredentialsFuture, InboxSender, Pending, Promise, RequestCredentials, promise, wait,
};
use ureq::http::{HeaderName, HeaderValue, Request, Response, request};
use ureq::{Agent, Body};

use crate::client_connection::ClientConnection;
use crate::fault::fault;
use crate::transport::Message;
use crate::{Setup, THREAD_NAME};

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;

/// The driver's side of an exchange.
pub(crate) struct Exchange {
    connection: ClientConnection,
    read_requests: Sender<()>,
    /// Dropped with the exchange, which ends the thread's wait for credentials.
    _wanted: Promise<()>,
}

impl Exchange {
    /// Begins an exchange on this connection. Its thread sends all inputs to `sender`, the end last.
    pub(crate) fn begin(
        stream: StreamId,
        head: Box<RequestHead<'static>>,
        body: Vec<u8>,
        connection: ClientConnection,
        setup: &Arc<Setup>,
        sender: &InboxSender<Message>,
    ) -> io::Result<Exchange> {
        let (read_requests, requested) = mpsc::channel();
        let (wanted, unwanted) = promise();
        let (len, sent_sender) = (body.len(), sender.clone());
        connection.on_sent(move || {
            sent_sender.send(Message::Input(stream, Input::Sent { stream, len }));
        });
        let thread_side = ExchangeThread {
            stream,
            head,
            body,
            agent: connection.agent.clone(),
            setup: Arc::clone(setup),
            sender: sender.clone(),
            requested,
            unwanted,
        };
        let thread = thread::Builder::new().name(THREAD_NAME.into());
        thread.spawn(|| thread_side.run())?;
        Ok(Exchange {
            connection,
            read_requests,
            _wanted: wanted,
        })
    }

    /// Reads the next chunk, after the last one was handled.
    pub(crate) fn read_next(&self) {
        // The send fails if the exchange has ended.
        let _ = self.read_requests.send(());
    }

    /// Aborts the exchange at once, whatever its thread waits for.
    pub(crate) fn abort(self) {
        self.connection.abort();
    }

    /// Takes the connection of an ended exchange, to be reused.
    pub(crate) fn into_connection(self) -> ClientConnection {
        self.connection
    }
}

/// The thread's side of an exchange.
struct ExchangeThread {
    stream: StreamId,
    head: Box<RequestHead<'static>>,
    body: Vec<u8>,
    agent: Agent,
    setup: Arc<Setup>,
    sender: InboxSender<Message>,
    /// One request for each further chunk. The channel is closed when the exchange is aborted.
    requested: Receiver<()>,
    /// Completes when the exchange is aborted.
    unwanted: Pending<()>,
}

impl ExchangeThread {
    fn run(mut self) {
        // The application's function for credentials may panic, but the machine needs an end in any case.
        let result = catch_unwind(AssertUnwindSafe(|| self.exchange()));
        let panicked = || Fault::with_detail(FaultKind::Other, "the exchange panicked");
        let fault = result.unwrap_or_else(|_| Err(panicked())).err();
        let (stream, faults) = (self.stream, Vec::from_iter(fault).into());
        self.send_input(Input::End { stream, faults });
    }

    fn exchange(&mut self) -> Result<(), Fault> {
        let (request, ticket) = self.request()?;
        let response = match self.head.verb {
            Verb::Post => self
                .agent
                .run(request.body(&*self.body).map_err(unsendable)?),
            _ => self.agent.run(request.body(()).map_err(unsendable)?),
        };
        let response = response.map_err(fault)?;
        let stream = self.stream;
        let head = Box::new(head_of(&response));
        if let Some(credentials) = &self.setup.credentials {
            credentials.on_response(ticket, &head);
        }
        self.send_input(Input::Response { stream, head });
        self.read(response.into_body())
    }

    /// Builds the request, and returns the number of its credentials.
    fn request(&mut self) -> Result<(request::Builder, u64), Fault> {
        let mut request = Request::builder()
            .method(self.head.verb.as_str())
            .uri(&*self.head.target);
        for (name, value) in self.head.fields.iter() {
            request = request.header(name, value);
        }
        for (name, value) in &self.setup.fields {
            request = request.header(name, value);
        }
        let Some(credentials) = &self.setup.credentials else {
            return Ok((request, 0));
        };
        let credentials = credentials.for_request(self.head.verb, &self.head.target);
        let credentials = self.wait_for(credentials)?;
        for (name, value) in credentials.fields {
            let name = HeaderName::try_from(&*name).map_err(unsendable)?;
            let mut value = HeaderValue::try_from(value).map_err(unsendable)?;
            value.set_sensitive(true);
            if let Some(fields) = request.headers_mut() {
                fields.insert(name, value);
            }
        }
        Ok((request, credentials.ticket))
    }

    /// Waits for the credentials, which may never come. Fails when the exchange is aborted.
    fn wait_for(
        &mut self,
        mut credentials: CredentialsFuture,
    ) -> Result<RequestCredentials, Fault> {
        wait(poll_fn(|cx| {
            if let Poll::Ready(credentials) = credentials.as_mut().poll(cx) {
                return Poll::Ready(Ok(credentials));
            }
            let aborted = Pin::new(&mut self.unwanted).poll(cx);
            aborted.map(|_| Err(FaultKind::Closed.into()))
        }))
    }

    /// Reports the body as it arrives, one chunk at a time.
    fn read(&self, body: Body) -> Result<(), Fault> {
        let mut body = body.into_reader();
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = match body.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) => return Err(fault(error.into())),
            };
            let bytes = chunk[..len].to_vec();
            self.sender.send(Message::Chunk(self.stream, bytes));
            if self.requested.recv().is_err() {
                return Ok(());
            }
        }
    }

    /// Sends an input to the driver, unless that is gone.
    fn send_input(&self, input: Input<'static>) {
        self.sender.send(Message::Input(self.stream, input));
    }
}

pub(crate) fn head_of(response: &Response<Body>) -> ResponseHead<'static> {
    let fields = response.headers().iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    ResponseHead::new(response.status().as_u16()).with_fields(Fields::from_iter(fields))
}

/// Converts the error of a request that HTTP cannot carry to a fault. The texts of these errors quote no value.
pub(crate) fn unsendable(error: impl ToString) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}
