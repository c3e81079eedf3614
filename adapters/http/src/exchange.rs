//! One exchange: a request and its response, on a thread of its own. Knows not what they are about, nor what else is under way.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::{Epoch, Fault, FaultKind, Input, StreamId};
use ureq::http::{HeaderValue, Request, Response, header, request};
use ureq::{Agent, Body};

use crate::driver::News;
use crate::fault::fault;
use crate::line::Grip;
use crate::{Setup, THREAD_NAME};

/// The most that is read at once.
const CHUNK: usize = 64 << 10;

/// An exchange as the driver holds it. To drop it is to cut it.
pub(crate) struct Exchange {
    epoch: Epoch,
    grip: Arc<Grip>,
    buffers: Sender<Vec<u8>>,
}

impl Exchange {
    /// Begins one, which tells what happens to it to `post`, its end last.
    pub(crate) fn begin(
        epoch: Epoch,
        order: Order,
        agent: Agent,
        setup: &Arc<Setup>,
        post: &Sender<News>,
    ) -> io::Result<Exchange> {
        let (buffers, returned) = mpsc::channel();
        let (stream, len) = (order.stream, order.body.len());
        let teller = post.clone();
        let grip = Arc::new(Grip::new(move || {
            let _ = teller.send(News::Input(stream, Input::Sent { stream, len }));
        }));
        let thread = Carrier {
            order,
            agent,
            setup: Arc::clone(setup),
            post: post.clone(),
            returned,
            grip: Arc::clone(&grip),
        };
        thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(|| thread.run())?;
        Ok(Exchange {
            epoch,
            grip,
            buffers,
        })
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last chunk was taken; the next one may be read, into its buffer.
    pub(crate) fn read_on(&self, buffer: Vec<u8>) {
        // One that has ended reads no more.
        let _ = self.buffers.send(buffer);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.grip.cut();
    }
}

/// What is to be asked.
pub(crate) struct Order {
    pub(crate) stream: StreamId,
    pub(crate) head: Box<RequestHead<'static>>,
    pub(crate) body: Vec<u8>,
}

/// An exchange as its thread has it.
struct Carrier {
    order: Order,
    agent: Agent,
    setup: Arc<Setup>,
    post: Sender<News>,
    /// The buffers of chunks that were taken. There are no more when the exchange was cut.
    returned: Receiver<Vec<u8>>,
    grip: Arc<Grip>,
}

impl Carrier {
    fn run(self) {
        self.grip.belongs_to_this_thread();
        // Whoever gives out credentials may panic, and the machine waits for an end.
        let result = catch_unwind(AssertUnwindSafe(|| self.carry()));
        let panicked = || Fault::with_detail(FaultKind::Other, "the exchange panicked");
        let faults = match result.unwrap_or_else(|_| Err(panicked())) {
            Ok(()) => Vec::new(),
            Err(fault) => vec![fault],
        };
        // Its connection may serve another one by now.
        self.grip.let_go();
        let stream = self.order.stream;
        let faults = faults.into();
        self.tell(Input::End { stream, faults });
    }

    fn carry(&self) -> Result<(), Fault> {
        let request = self.request()?;
        let response = match self.order.head.verb {
            Verb::Post => self
                .agent
                .run(request.body(&*self.order.body).map_err(unfit)?),
            _ => self.agent.run(request.body(()).map_err(unfit)?),
        };
        let response = response.map_err(fault)?;
        let stream = self.order.stream;
        let head = Box::new(head_of(&response));
        self.tell(Input::Response { stream, head });
        self.read(response.into_body())
    }

    fn request(&self) -> Result<request::Builder, Fault> {
        let head = &self.order.head;
        let mut request = Request::builder()
            .method(head.verb.as_str())
            .uri(&*head.target);
        for (name, value) in head.fields.iter() {
            request = request.header(name, value);
        }
        for (name, value) in &self.setup.fields {
            request = request.header(name, value);
        }
        let credentials = self.setup.credentials.as_ref().and_then(|ask| ask());
        if let (Some(credentials), Some(fields)) = (credentials, request.headers_mut()) {
            let mut value = HeaderValue::try_from(credentials).map_err(unfit)?;
            value.set_sensitive(true);
            fields.insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Tells of the body as it arrives, a chunk at a time.
    fn read(&self, body: Body) -> Result<(), Fault> {
        let mut body = body.into_reader();
        let mut chunk = vec![0; CHUNK];
        loop {
            match body.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(len) => chunk.truncate(len),
                Err(error) => return Err(fault(error.into())),
            }
            let _ = self.post.send(News::Chunk(self.order.stream, chunk));
            match self.returned.recv() {
                Ok(buffer) => chunk = buffer,
                Err(_) => return Ok(()),
            }
            chunk.resize(CHUNK, 0);
        }
    }

    /// A driver that is gone need not know.
    fn tell(&self, input: Input<'static>) {
        let _ = self.post.send(News::Input(self.order.stream, input));
    }
}

fn head_of(response: &Response<Body>) -> ResponseHead<'static> {
    let fields = response.headers().iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    ResponseHead::new(response.status().as_u16()).with_fields(Fields::from_iter(fields))
}

/// What was to be sent is no HTTP. The words of these errors quote no value.
fn unfit(error: impl ToString) -> Fault {
    Fault::with_detail(FaultKind::Other, error.to_string())
}
