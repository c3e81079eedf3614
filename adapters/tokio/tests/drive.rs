//! Tests the driver of a link with an artificial transport.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use everlink::{Config, Epoch, Input, Output};
use everlink_tokio::{Hands, Link, drive};
use tokio::runtime::Builder;

/// A transport whose child floods its standard error until another task has run.
struct Flooded {
    others_had_a_turn: Arc<AtomicBool>,
    /// The number of bytes reported before that.
    heard: usize,
}

/// More bytes than a driver may read in one turn.
const FLOOD: usize = 1 << 20;

impl Hands for Flooded {
    fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

    fn poll_heard<'r>(
        &mut self,
        _: &mut Context<'_>,
        _: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        if self.others_had_a_turn.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.heard += room.len();
        assert!(self.heard < FLOOD, "nobody else has a turn");
        Poll::Ready((Epoch::FIRST, Input::stderr(&*room)))
    }
}

#[test]
fn what_is_shouted_on_standard_error_leaves_others_their_turns() {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let (link, owner) = Link::new(Config::child("patient", "1.0"));
        let others_had_a_turn = Arc::new(AtomicBool::new(false));
        let hands = Flooded {
            others_had_a_turn: Arc::clone(&others_had_a_turn),
            heard: 0,
        };
        let driven = tokio::spawn(drive(owner, hands));
        tokio::spawn(async move {
            others_had_a_turn.store(true, Ordering::Relaxed);
            drop(link);
        });
        driven.await.expect("it comes to its end");
    });
}
