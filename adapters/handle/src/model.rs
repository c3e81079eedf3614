//! All interleavings of the synchronisation in this crate, tried by loom. `RUSTFLAGS="--cfg loom" cargo test --lib model` runs them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use everlink::Instant;
use everlink::server::Event;
use loom::model::Builder;
use loom::thread;

use crate::command_queue::{Command, CommandQueue};
use crate::events::Listeners;
use crate::inbox::Inbox;
use crate::park::wait;
use crate::promise::{Gone, Slot, promise};
use crate::server::CancelFlag;

/// Tries all interleavings with at most this many preemptions, which is where nearly all faults show.
const MAX_PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(MAX_PREEMPTIONS);
    builder.check(model);
}

#[test]
fn promised_value_reaches_the_waiter() {
    check(|| {
        let (promise, pending) = promise::<_, Gone>();
        let resolver = thread::spawn(move || promise.resolve(Ok(7)));
        assert_eq!(wait(pending), Ok(7));
        resolver.join().unwrap();
    });
}

#[test]
fn waiter_for_a_dropped_promise_is_told() {
    check(|| {
        let (promise, pending) = promise::<u8, Gone>();
        let dropper = thread::spawn(move || drop(promise));
        assert_eq!(wait(pending), Err(Gone));
        dropper.join().unwrap();
    });
}

#[test]
fn each_report_of_progress_before_the_end_is_seen_by_the_waiter() {
    check(|| {
        let slot = Arc::new(Slot::<u8, u8>::new(0));
        let reporter = Arc::clone(&slot);
        let reporter = thread::spawn(move || {
            reporter.update_shared(|reports| *reports += 1);
            reporter.settle(Some(9));
        });
        let mut seen = 0;
        let value = wait(poll_fn(|cx| {
            let (polled, reports) = slot.poll_with_shared(cx, |reports| std::mem::take(reports));
            seen += reports;
            polled
        }));
        assert_eq!((value, seen), (Some(9), 1));
        reporter.join().unwrap();
    });
}

#[test]
fn every_command_reaches_a_driver_that_sleeps_between_commands() {
    check(|| {
        let (queue, mut receiver) = CommandQueue::<(), u8>::new();
        let senders: Vec<_> = (1..=2)
            .map(|command| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.send(command))
            })
            .collect();
        let mut sum = 0;
        wait(poll_fn(|cx| {
            while receiver.register_waker(cx.waker()) {
                receiver.fetch();
                while let Some(command) = receiver.next_command() {
                    match command {
                        Command::ForOwner(number) => sum += number,
                        Command::ForMachine(function) => function(&mut (), Instant::ZERO),
                    }
                }
            }
            if sum == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn command_is_answered_or_refused_while_the_driver_ends() {
    check(|| {
        let (queue, receiver) = CommandQueue::<(), u8>::new();
        let driver = thread::spawn(move || drop(receiver));
        let answer = queue.query_machine(|(), _| 5);
        let closed = queue.closed();
        assert_eq!(wait(answer), Err(Gone));
        assert_eq!(wait(closed), Ok(()));
        driver.join().unwrap();
    });
}

#[test]
fn every_message_of_two_threads_reaches_the_inbox() {
    check(|| {
        let mut inbox = Inbox::new();
        let senders: Vec<_> = (1..=2)
            .map(|number| {
                let sender = inbox.sender();
                thread::spawn(move || sender.send(number))
            })
            .collect();
        let sum = wait(poll_fn(|cx| inbox.poll_recv(cx))) + wait(poll_fn(|cx| inbox.poll_recv(cx)));
        assert_eq!(sum, 3);
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn message_to_an_inbox_that_is_dropped_meanwhile_is_dropped() {
    check(|| {
        let inbox = Inbox::new();
        let sender = inbox.sender();
        let message = Arc::new(());
        let sent = Arc::clone(&message);
        let thread = thread::spawn(move || sender.send(sent));
        drop(inbox);
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 1);
    });
}

#[test]
fn listener_gets_an_event_and_then_the_end() {
    check(|| {
        let listeners = Arc::new(Listeners::<Event>::new());
        let mut events = listeners.subscribe();
        let publisher = thread::spawn(move || {
            listeners.publish(Instant::ZERO, Event::Initialized);
            listeners.close();
        });
        assert!(events.wait().is_some());
        assert!(events.wait().is_none());
        publisher.join().unwrap();
    });
}

#[test]
fn handler_learns_of_a_cancellation() {
    check(|| {
        let flag = Arc::new(CancelFlag::default());
        let raised = Arc::clone(&flag);
        let owner = thread::spawn(move || raised.raise());
        wait(flag.wait_until_raised());
        owner.join().unwrap();
    });
}
