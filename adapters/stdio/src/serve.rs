//! A server on the standard streams of its own process: one thread owns the machine and only moves bytes.

use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;

use everlink::server::{Config, Request, Server};
use everlink::{ErrorObject, Input, Instant, Output, StreamId};
use everlink_handle::{Context, Response, Service, ServiceOwner};

use crate::drive::Clock;
use crate::helm::{Craft, Helm};
use crate::pen::Pen;
use crate::system::Streams;
use crate::vigil::{Needs, Sleep, Vigil};
use crate::workers::Workers;

/// Serves the client at the standard streams of this process, with a function for its requests.
///
/// The function returns a result ([`Payload`](everlink::Payload)), the input that it needs first
/// ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] if it may return either.
///
/// The function runs on one thread per concurrent request. A panic in it becomes an error reply.
///
/// From here on the server owns the standard streams. Other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither.
///
/// The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When the system has no thread or descriptor left, or there are no standard streams.
pub fn serve<F, R>(config: Config, function: F) -> io::Result<Service>
where
    F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    R: Into<Response>,
{
    serve_by::<Streams, _>(config, function)
}

/// The transport of a server, which is the standard streams of this process.
pub(crate) trait Hands: Send + Sized + 'static {
    /// The writer to the client.
    type Pen: Pen;

    /// The readiness that a sleep returns.
    type News;

    /// Takes the streams over. The waker ends a sleep.
    fn take() -> io::Result<(Self, Self::Pen, Waker)>;

    /// Sleeps until something happens.
    fn sleep(&mut self, sleep: Sleep<<Self::Pen as Pen>::Room>) -> io::Result<Self::News>;

    /// Reports what happened. Reads input only if `reads` is true.
    fn hear(
        &mut self,
        news: Self::News,
        reads: bool,
        pen: &mut Self::Pen,
        tell: impl FnMut(Input<'_>),
    );
}

pub(crate) fn serve_by<H: Hands, R: Into<Response>>(
    config: Config,
    function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
) -> io::Result<Service> {
    let most = config.limits.requests.max(1);
    let (service, owner) = Service::new(Server::new(config));
    let (streams, pen, bell) = H::take()?;
    let helm = Arc::new_cyclic(|helm: &Weak<Helm<Counter<H::Pen>>>| {
        let helm = Weak::clone(helm);
        let write = move || helm.upgrade().iter().for_each(|helm| helm.help());
        let workers = Workers::new(most, function, write);
        let callers = workers.clone();
        let counter = Counter {
            owner,
            pen,
            workers,
            clock: Clock::start(),
            buf: Vec::new(),
            vigil: Vigil::default(),
        };
        Helm::new(counter, bell, move || callers.call())
    });
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || helm.attend(|| drive(&helm, streams)))?;
    Ok(service)
}

/// Runs the driver's loop. The streams are dropped before the owner, so a caller that waits for the end finds them closed.
fn drive<H: Hands>(helm: &Arc<Helm<Counter<H::Pen>>>, mut streams: H) {
    let waker = Waker::from(Arc::clone(helm));
    helm.steer(|counter| {
        // Commands that are already queued run in the first turn.
        let _ = counter.owner.belongs_to(&waker);
        Some(())
    });
    let mut news = None;
    while let Some(sleep) = helm.steer(|counter| counter.steer(&mut streams, news.take())) {
        let told = streams.sleep(sleep);
        news = Some(told.expect("the system can say what its descriptors have to tell"));
    }
}

/// The state of a server's driver. Callers and workers may run steps on it, too.
struct Counter<P> {
    owner: ServiceOwner,
    pen: P,
    workers: Workers,
    clock: Clock,
    buf: Vec<u8>,
    vigil: Vigil,
}

impl<P: Pen> Counter<P> {
    /// Runs one whole turn of the driver. Returns how to sleep after it, or `None` when the server is closed.
    fn steer<H: Hands<Pen = P>>(
        &mut self,
        streams: &mut H,
        news: Option<H::News>,
    ) -> Option<Sleep<P::Room>> {
        let now = self.clock.now();
        if let Some(news) = news {
            let reads = self.owner.wants_input(StreamId::DUPLEX);
            streams.hear(news, reads, &mut self.pen, |input| {
                self.owner.handle(now, input);
            });
        }
        self.carry(now);
        (!self.owner.is_closed()).then(|| self.vigil.begin(now, self.needs()))
    }

    /// Runs the queued commands, hands tasks to the workers, and writes all pending messages together.
    fn carry(&mut self, now: Instant) {
        self.owner.serve(now);
        loop {
            match self.owner.poll_output(&mut self.buf) {
                Some(Output::Event(task)) => self.workers.take(task),
                Some(Output::Write { .. } | Output::Release { .. }) => {}
                Some(other) => unreachable!("a server has one stream: {other:?}"),
                None if self.buf.is_empty() => return,
                None => {
                    if let Some(input) = self.pen.write(&mut self.buf) {
                        self.owner.handle(now, input);
                    }
                }
            }
        }
    }

    fn needs(&self) -> Needs<P::Room> {
        Needs {
            due: self.owner.poll_timeout().map(|due| due.at),
            reads: self.owner.wants_input(StreamId::DUPLEX),
            room: self.pen.room(),
        }
    }
}

impl<P: Pen> Craft for Counter<P> {
    fn turn(&mut self) -> bool {
        self.carry(self.clock.now());
        self.vigil.ends(self.owner.is_closed(), &self.needs())
    }
}

/// Stops the workers when the server ends.
impl<P> Drop for Counter<P> {
    fn drop(&mut self) {
        self.workers.close();
    }
}
