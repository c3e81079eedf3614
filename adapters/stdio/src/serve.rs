//! A server on the standard streams of its own process: the one thread that owns the machine, and does nothing but carry.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use everlink::server::{Config, Request, Server};
use everlink::{ErrorObject, Input, Output, StreamId};
use everlink_handle::{Context, Response, Service, ServiceOwner};

use crate::drive::Clock;
use crate::system::Streams;
use crate::workers::Workers;

/// Serves the client at the standard streams of this process, with a function for its requests.
///
/// It returns a result ([`Payload`](everlink::Payload)), what it needs first ([`InputRequired`](everlink::server::InputRequired)), or a
/// [`Response`] where it is now one and now the other.
///
/// The function is called on a thread for each request that runs at the same time; a panic in it is answered with an error. From here on the
/// standard streams are the server's own: what else reads standard input finds it empty, what else prints to standard output prints to
/// standard error, and processes that are started inherit neither.
///
/// The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When the system has no thread or descriptor left for it, or there are no standard streams.
pub fn serve<F, R>(config: Config, function: F) -> io::Result<Service>
where
    F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    R: Into<Response>,
{
    serve_by::<Streams, _>(config, function)
}

/// Hands for the standard streams of this process.
pub(crate) trait Hands: Send + Sized + 'static {
    /// Takes them over. The waker ends a wait.
    fn take() -> io::Result<(Self, Waker)>;

    /// These are to be written, when there is room for them.
    fn write(&mut self, bytes: &mut Vec<u8>);

    /// Sleeps until something happens, or for so long at most, and tells what happened. Input is read if `reads`.
    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        tell: impl FnMut(Input<'_>),
    ) -> io::Result<()>;
}

pub(crate) fn serve_by<H: Hands, R: Into<Response>>(
    config: Config,
    function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
) -> io::Result<Service> {
    let most = config.limits.requests.max(1);
    let (service, owner) = Service::new(Server::new(config));
    let (streams, waker) = H::take()?;
    // Whatever waits already is seen at the first turn.
    let _ = owner.belongs_to(&waker);
    let workers = Workers::new(most, function);
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || drive(owner, streams, &workers))?;
    Ok(service)
}

fn drive(mut owner: ServiceOwner, mut streams: impl Hands, workers: &Workers) {
    let clock = Clock::start();
    let mut buf = Vec::new();
    loop {
        owner.serve(clock.now());
        while let Some(output) = owner.poll_output(&mut buf) {
            match output {
                Output::Event(task) => workers.run(task),
                Output::Write { .. } => streams.write(&mut buf),
                Output::Release { .. } => {}
                other => unreachable!("a server has one stream: {other:?}"),
            }
        }
        if owner.is_closed() {
            break;
        }
        let due = owner.poll_timeout().map(|due| due.at.since(clock.now()));
        let reads = owner.wants_input(StreamId::DUPLEX);
        let told = streams.wait(due, reads, |input| owner.handle(clock.now(), input));
        told.expect("the system can say what its descriptors have to tell");
    }
    // Who waits for the end finds nothing left.
    drop(streams);
    drop(owner);
}

/// Random bytes for the configuration of a server.
#[must_use]
pub fn secret() -> [u8; 16] {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    ((random() << 64) | random()).to_le_bytes()
}
