//! Lets a caller, or the runtime when input arrives, run the driver's turn at once. Used for one link on a runtime with one thread. Does not know the
//! link.
//!
//! On such a runtime, waking the driver is costly. All other tasks wait for its turn, and a task that it wakes waits until the runtime has polled the
//! system. The work for one call costs less than that. With more than one call in flight, the driver runs the turn, once for all of them.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use everlink_handle::PostponedWakes;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::drive::{DrivenMachine, Driver};

/// A driver whose turns others may run. Dropping it drops everything that it drives.
pub(crate) struct InlineDriverTask<D: InlineMachine>(Arc<InlineDriver<D>>);

/// A machine that any thread may drive.
pub(crate) trait InlineMachine: DrivenMachine<EndValue = ()> + Send + 'static {}

impl<D: DrivenMachine<EndValue = ()> + Send + 'static> InlineMachine for D {}

/// The lock around a driver. As a waker, it runs a turn on the thread that wakes it if there is little to do. The transport wakes this waker.
struct InlineDriver<D> {
    inner: Mutex<Inner<D>>,
    /// Whether a turn was requested since the last one began.
    is_requested: AtomicBool,
    /// Whether the transport requested it, because it has something to report.
    must_poll: AtomicBool,
    /// The waker of the driver's task, for turns that nobody else runs.
    task_waker: Mutex<Option<Waker>>,
}

struct Inner<D> {
    driver: Driver<D>,
    /// The runtime, if it has one thread. Set at the first turn.
    runtime: Option<Handle>,
    /// The waker for handles that queue commands. Set at the first turn.
    command_waker: Option<Waker>,
}

/// The same waker for handles: it requests a turn in which the transport need not be polled.
struct CommandWaker<D>(Arc<InlineDriver<D>>);

impl<D: InlineMachine> InlineDriverTask<D> {
    pub(crate) fn new(machine: D) -> InlineDriverTask<D> {
        InlineDriverTask(Arc::new(InlineDriver {
            inner: Mutex::new(Inner {
                driver: Driver::new(machine),
                runtime: None,
                command_waker: None,
            }),
            is_requested: AtomicBool::new(false),
            must_poll: AtomicBool::new(true),
            task_waker: Mutex::new(None),
        }))
    }
}

#[cfg(all(test, feature = "http-client", feature = "http-server"))]
impl<D: InlineMachine> InlineDriverTask<D> {
    /// Returns a weak reference, for tests that check that nothing is left.
    pub(crate) fn weak(&self) -> std::sync::Weak<impl Sized + use<D>> {
        Arc::downgrade(&self.0)
    }
}

impl<D: InlineMachine> Future for InlineDriverTask<D> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let InlineDriverTask(inline) = self.get_mut();
        inline.set_task_waker(cx.waker());
        let wakes = PostponedWakes::begin();
        let mut inner = inline.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.runtime.is_none() {
            let runtime = Handle::try_current().ok();
            inner.runtime =
                runtime.filter(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        }
        let Inner {
            driver,
            command_waker,
            ..
        } = &mut *inner;
        let ended = inline.turn(driver, command_waker);
        drop(inner);
        drop(wakes);
        if ended.is_ready() {
            inline.end();
        } else if inline.is_requested() {
            cx.waker().wake_by_ref();
        }
        ended
    }
}

impl<D: InlineMachine> Drop for InlineDriverTask<D> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<D: InlineMachine> Wake for InlineDriver<D> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.must_poll.store(true, Ordering::Release);
        self.request_turn();
    }
}

impl<D: InlineMachine> Wake for CommandWaker<D> {
    fn wake(self: Arc<Self>) {
        self.0.request_turn();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.request_turn();
    }
}

impl<D: InlineMachine> InlineDriver<D> {
    /// Runs a turn here, or has the driver run it.
    fn request_turn(self: &Arc<Self>) {
        // A swap and not a store: it joins the release sequence of earlier callers. The turn that sees this flag then also sees what they wrote.
        self.is_requested.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wakes = PostponedWakes::begin();
        // If the lock is taken, its holder reads `is_requested` after it unlocks.
        let has_driver_work = match self.inner.try_lock() {
            Ok(mut inner) => self.run_inline(&mut inner).is_none(),
            Err(_) => return,
        };
        drop(wakes);
        if has_driver_work || self.is_requested() {
            self.wake_task();
        }
    }

    /// Runs a turn on the thread that wakes the driver, if that is allowed. Returns `None` if something is left for the driver.
    fn run_inline(self: &Arc<Self>, inner: &mut Inner<D>) -> Option<()> {
        let Inner {
            driver,
            runtime,
            command_waker,
        } = inner;
        driver
            .machine()
            .filter(|machine| machine.allows_inline_turn())?;
        // A thread outside of any runtime may be about to end and lack what a turn needs.
        let runtime = runtime.as_ref().filter(|_| Handle::try_current().is_ok())?;
        let _entered = runtime.enter();
        // A turn that panics ends the link, but not the caller that only woke it.
        let turned = catch_unwind(AssertUnwindSafe(|| self.turn(driver, command_waker)));
        let Ok(turned) = turned else {
            driver.take().into_iter().for_each(D::end);
            return None;
        };
        turned.is_pending().then_some(())
    }

    fn turn(
        self: &Arc<Self>,
        driver: &mut Driver<D>,
        command_waker: &mut Option<Waker>,
    ) -> Poll<()> {
        // The Acquire side of these swaps sees all writes before the flags were set. A later request sets its flag again.
        self.is_requested.swap(false, Ordering::AcqRel);
        let must_poll = self.must_poll.swap(false, Ordering::AcqRel);
        let command_waker = command_waker
            .get_or_insert_with(|| Waker::from(Arc::new(CommandWaker(Arc::clone(self)))));
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        driver.run_until_idle(&mut cx, command_waker, must_poll)
    }

    /// Whether a turn was requested. A caller sets the flag, passes a fence and then tries the lock. The holder unlocks, passes this fence and then
    /// loads the flag. The two `SeqCst` fences guarantee that either the caller's `try_lock` succeeds or the holder's load returns `true`.
    fn is_requested(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_requested.load(Ordering::Relaxed)
    }

    fn set_task_waker(&self, task_waker: &Waker) {
        let mut known = self
            .task_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_known = known.as_ref().is_some_and(|it| it.will_wake(task_waker));
        let replaced = (!is_known).then(|| known.replace(task_waker.clone()));
        drop(known);
        drop(replaced);
    }

    fn wake_task(&self) {
        let known = self
            .task_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let task_waker = known.clone();
        drop(known);
        task_waker.into_iter().for_each(Waker::wake);
    }

    /// Drops the machine, its transport and all wakers.
    fn end(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (machine, command_waker) = (inner.driver.take(), inner.command_waker.take());
        drop(inner);
        machine.into_iter().for_each(D::end);
        drop(command_waker);
        let task_waker = self
            .task_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(task_waker);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;
    use std::time::Duration;

    use everlink::{Config, Deadline, Epoch, Input, Instant, Output, Wake as WakeReason};
    use everlink_handle::Link;
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::drive::{ClientLoop, Now, Transport};

    /// A machine with nothing to do for an hour. If `panics` is set, its second turn panics.
    #[derive(Default)]
    struct Idle {
        turns: usize,
        /// How often its transport was polled.
        polls: usize,
        panics: bool,
    }

    impl DrivenMachine for Idle {
        type EndValue = ();

        fn register_waker(&self, _: &Waker) -> bool {
            false
        }

        fn allows_inline_turn(&self) -> bool {
            true
        }

        fn turn(&mut self, _: Instant, _: &mut Vec<u8>) -> bool {
            self.turns += 1;
            assert!(!self.panics || self.turns < 2, "intentional panic");
            false
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn poll_input(&mut self, _: &mut Context<'_>, _: &Now<'_>, _: &mut [u8]) -> Poll<usize> {
            self.polls += 1;
            Poll::Pending
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            let at = Instant::from_origin(Duration::from_secs(3600));
            Some(Deadline {
                at,
                wake: WakeReason::Ask,
            })
        }

        fn end(self) {}
    }

    fn single_threaded_runtime() -> Runtime {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime")
    }

    #[test]
    fn aborted_driver_with_a_pending_timer_is_freed() {
        single_threaded_runtime().block_on(async {
            let task = InlineDriverTask::new(Idle::default());
            let inline = Arc::downgrade(&task.0);
            let driver = tokio::spawn(task);
            tokio::task::yield_now().await;
            driver.abort();
            assert!(driver.await.is_err_and(|error| error.is_cancelled()));
            assert_eq!(inline.strong_count(), 0);
        });
    }

    /// A transport that never reports anything.
    struct SilentTransport;

    impl Transport for SilentTransport {
        fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

        fn poll_input<'r>(
            &mut self,
            _: &mut Context<'_>,
            _: bool,
            _: &'r mut [u8],
        ) -> Poll<(Epoch, Input<'r>)> {
            Poll::Pending
        }
    }

    struct WaitingWaker(Link, Mutex<mpsc::Sender<bool>>);

    impl Wake for WaitingWaker {
        fn wake(self: Arc<Self>) {
            let has_stats = self.0.stats().wait().is_ok();
            let _ = self.1.lock().expect("nobody panicked").send(has_stats);
        }
    }

    /// If the waker ran under the link's lock, this would deadlock.
    #[test]
    fn waker_may_block_on_the_link() {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(|| {
            single_threaded_runtime().block_on(async {
                let (link, owner) = Link::new(Config::child("inline-driver", "1.0"));
                let driver = tokio::spawn(InlineDriverTask::new(ClientLoop::new(
                    owner,
                    SilentTransport,
                )));
                tokio::task::yield_now().await;
                let mut events = link.events();
                let mut next = Box::pin(async move { events.recv().await });
                let waker = Waker::from(Arc::new(WaitingWaker(link.clone(), Mutex::new(sender))));
                let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                drop(link.ready());
                driver.abort();
            });
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn panic_in_an_inline_turn_ends_the_driver_but_not_the_caller() {
        single_threaded_runtime().block_on(async {
            let task = InlineDriverTask::new(Idle {
                panics: true,
                ..Idle::default()
            });
            let waker = Waker::from(Arc::clone(&task.0));
            let driver = tokio::spawn(task);
            tokio::task::yield_now().await;
            waker.wake();
            driver.await.expect("the driver ends without a panic");
        });
    }

    #[test]
    fn transport_is_polled_only_when_the_transport_wakes_the_driver() {
        single_threaded_runtime().block_on(async {
            let task = InlineDriverTask::new(Idle::default());
            let inline = Arc::clone(&task.0);
            let counts = || {
                let inner = inline.inner.lock().expect("nobody panicked");
                let idle = inner.driver.machine().expect("it goes on");
                (idle.turns, idle.polls)
            };
            let driver = tokio::spawn(task);
            tokio::task::yield_now().await;
            assert_eq!(counts(), (1, 1), "the first turn polls the transport");
            let command_waker = inline
                .inner
                .lock()
                .expect("nobody panicked")
                .command_waker
                .clone();
            command_waker.expect("there was a turn").wake();
            assert_eq!(counts(), (2, 1), "a command does not poll the transport");
            Waker::from(Arc::clone(&inline)).wake();
            assert_eq!(counts(), (3, 2), "a wake-up of the transport polls it");
            driver.abort();
        });
    }
}
