//! Tests the driver of a link with an artificial transport.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use everlink::{Config, Epoch, Input, Output};
use everlink_tokio::{Link, Transport, drive};
use tokio::runtime::Builder;

/// A transport whose child floods its standard error until another task has run.
struct FloodingTransport {
    other_task_ran: Arc<AtomicBool>,
    /// The number of bytes reported before that.
    reported: usize,
}

/// More bytes than a driver may read in one turn.
const FLOOD: usize = 1 << 20;

impl Transport for FloodingTransport {
    fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

    fn poll_input<'r>(
        &mut self,
        _: &mut Context<'_>,
        _: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        if self.other_task_ran.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.reported += buffer.len();
        assert!(self.reported < FLOOD, "no other task had a turn");
        Poll::Ready((Epoch::FIRST, Input::stderr(&*buffer)))
    }
}

#[test]
fn flooded_standard_error_does_not_starve_other_tasks() {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let (link, owner) = Link::new(Config::child("patient", "1.0"));
        let other_task_ran = Arc::new(AtomicBool::new(false));
        let transport = FloodingTransport {
            other_task_ran: Arc::clone(&other_task_ran),
            reported: 0,
        };
        let driver = tokio::spawn(drive(owner, transport));
        tokio::spawn(async move {
            other_task_ran.store(true, Ordering::Relaxed);
            drop(link);
        });
        driver.await.expect("the driver ends");
    });
}
