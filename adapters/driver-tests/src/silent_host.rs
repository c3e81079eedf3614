//! A host for a relay under test: it sends requests and never reads the replies. Does not know the requests.

use std::convert::Infallible;
use std::task::{Context, Poll};

use everlink::{Epoch, Fault, FaultKind, Input, Output};
use everlink_handle::{Inbox, InboxSender, Transport};

/// The transport between a relay under test and its host. The host sends requests and never reads the replies.
#[derive(Debug)]
pub struct SilentHost {
    /// The lines that the host sends.
    requests: Inbox<Vec<u8>>,
    /// The inputs that break the connection.
    end: Inbox<Input<'static>>,
}

/// Controls a [`SilentHost`].
pub(crate) struct HostControl {
    requests: InboxSender<Vec<u8>>,
    end: InboxSender<Input<'static>>,
}

impl SilentHost {
    pub(crate) fn new() -> (SilentHost, HostControl) {
        let (requests, end) = (Inbox::new(), Inbox::new());
        let control = HostControl {
            requests: requests.sender(),
            end: end.sender(),
        };
        (SilentHost { requests, end }, control)
    }
}

impl HostControl {
    pub(crate) fn send(&self, request: &str) {
        self.requests.send(format!("{request}\n").into_bytes());
    }

    /// Breaks both directions.
    pub(crate) fn disconnect(&self) {
        let fault = Fault::with_detail(FaultKind::BrokenPipe, "the host is gone");
        self.end.send(Input::write_failed(vec![fault]));
        self.end.send(Input::end(Vec::new()));
    }
}

impl Transport for SilentHost {
    /// Ignores the output. A write is never reported as sent, as if the pipe to the host were full.
    fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        _: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        if let Poll::Ready(end) = self.end.poll_recv(cx) {
            return Poll::Ready((Epoch::FIRST, end));
        }
        if !reads {
            return Poll::Pending;
        }
        let request = self.requests.poll_recv(cx);
        request.map(|request| (Epoch::FIRST, Input::bytes(request)))
    }
}
