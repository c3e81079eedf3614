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

use crate::drive::{Driven, Driver};

/// A driver whose turns others may run. Dropping it drops everything that it drives.
pub(crate) struct Steersman<D: Craft>(Arc<Helm<D>>);

/// A machine that any thread may drive.
pub(crate) trait Craft: Driven<Left = ()> + Send + 'static {}

impl<D: Driven<Left = ()> + Send + 'static> Craft for D {}

/// The lock around a driver. As a waker, it runs a turn on the thread that wakes it if there is little to do. The transport wakes this waker.
struct Helm<D> {
    wheel: Mutex<Wheel<D>>,
    /// Whether a turn was requested since the last one began.
    is_asked: AtomicBool,
    /// Whether the transport requested it, because it has something to report.
    is_news: AtomicBool,
    /// The waker of the driver's task, for turns that nobody else runs.
    steersman: Mutex<Option<Waker>>,
}

struct Wheel<D> {
    driver: Driver<D>,
    /// The runtime, if it has one thread. Set at the first turn.
    runtime: Option<Handle>,
    /// The waker for handles that queue commands. Set at the first turn.
    bell: Option<Waker>,
}

/// The same waker for handles: it requests a turn in which the transport need not be polled.
struct Bell<D>(Arc<Helm<D>>);

impl<D: Craft> Steersman<D> {
    pub(crate) fn new(driven: D) -> Steersman<D> {
        Steersman(Arc::new(Helm {
            wheel: Mutex::new(Wheel {
                driver: Driver::new(driven),
                runtime: None,
                bell: None,
            }),
            is_asked: AtomicBool::new(false),
            is_news: AtomicBool::new(true),
            steersman: Mutex::new(None),
        }))
    }
}

#[cfg(all(test, feature = "http-client", feature = "http-server"))]
impl<D: Craft> Steersman<D> {
    /// Returns a weak reference, for tests that check that nothing is left.
    pub(crate) fn remains(&self) -> std::sync::Weak<impl Sized + use<D>> {
        Arc::downgrade(&self.0)
    }
}

impl<D: Craft> Future for Steersman<D> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Steersman(helm) = self.get_mut();
        helm.belong_to(cx.waker());
        let wakes = PostponedWakes::begin();
        let mut wheel = helm.wheel.lock().unwrap_or_else(PoisonError::into_inner);
        if wheel.runtime.is_none() {
            let runtime = Handle::try_current().ok();
            wheel.runtime =
                runtime.filter(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        }
        let Wheel { driver, bell, .. } = &mut *wheel;
        let ended = helm.turn(driver, bell);
        drop(wheel);
        drop(wakes);
        if ended.is_ready() {
            helm.end();
        } else if helm.is_asked() {
            cx.waker().wake_by_ref();
        }
        ended
    }
}

impl<D: Craft> Drop for Steersman<D> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<D: Craft> Wake for Helm<D> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_news.store(true, Ordering::Release);
        self.ask();
    }
}

impl<D: Craft> Wake for Bell<D> {
    fn wake(self: Arc<Self>) {
        self.0.ask();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ask();
    }
}

impl<D: Craft> Helm<D> {
    /// Runs a turn here, or has the driver run it.
    fn ask(self: &Arc<Self>) {
        // A swap and not a store: it joins the release sequence of earlier callers. The turn that sees this flag then also sees what they wrote.
        self.is_asked.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wakes = PostponedWakes::begin();
        // If the lock is taken, its holder reads `is_asked` after it unlocks.
        let is_left = match self.wheel.try_lock() {
            Ok(mut wheel) => self.help(&mut wheel).is_none(),
            Err(_) => return,
        };
        drop(wakes);
        if is_left || self.is_asked() {
            self.wake_steersman();
        }
    }

    /// Runs a turn on the thread that wakes the driver, if that is allowed. Returns `None` if something is left for the driver.
    fn help(self: &Arc<Self>, wheel: &mut Wheel<D>) -> Option<()> {
        let Wheel {
            driver,
            runtime,
            bell,
        } = wheel;
        driver.driven().filter(|driven| driven.is_light())?;
        // A thread outside of any runtime may be about to end and lack what a turn needs.
        let runtime = runtime.as_ref().filter(|_| Handle::try_current().is_ok())?;
        let _within = runtime.enter();
        // A turn that panics ends the link, but not the caller that only woke it.
        let turned = catch_unwind(AssertUnwindSafe(|| self.turn(driver, bell)));
        let Ok(turned) = turned else {
            driver.take().into_iter().for_each(D::end);
            return None;
        };
        turned.is_pending().then_some(())
    }

    fn turn(self: &Arc<Self>, driver: &mut Driver<D>, bell: &mut Option<Waker>) -> Poll<()> {
        // The Acquire side of these swaps sees all writes before the flags were set. A later request sets its flag again.
        self.is_asked.swap(false, Ordering::AcqRel);
        let is_news = self.is_news.swap(false, Ordering::AcqRel);
        let bell = bell.get_or_insert_with(|| Waker::from(Arc::new(Bell(Arc::clone(self)))));
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        driver.go_on(&mut cx, bell, is_news)
    }

    /// Whether a turn was requested. A caller sets the flag, passes a fence and then tries the lock. The holder unlocks, passes this fence and then
    /// loads the flag. The two `SeqCst` fences guarantee that either the caller's `try_lock` succeeds or the holder's load returns `true`.
    fn is_asked(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asked.load(Ordering::Relaxed)
    }

    fn belong_to(&self, steersman: &Waker) {
        let mut known = self
            .steersman
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_known = known.as_ref().is_some_and(|it| it.will_wake(steersman));
        let replaced = (!is_known).then(|| known.replace(steersman.clone()));
        drop(known);
        drop(replaced);
    }

    fn wake_steersman(&self) {
        let known = self
            .steersman
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let steersman = known.clone();
        drop(known);
        steersman.into_iter().for_each(Waker::wake);
    }

    /// Drops the machine, its transport and all wakers.
    fn end(&self) {
        let mut wheel = self.wheel.lock().unwrap_or_else(PoisonError::into_inner);
        let (driven, bell) = (wheel.driver.take(), wheel.bell.take());
        drop(wheel);
        driven.into_iter().for_each(D::end);
        drop(bell);
        let steersman = self
            .steersman
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(steersman);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;
    use std::time::Duration;

    use everlink::{Config, Deadline, Epoch, Input, Instant, Output, Wake as Why};
    use everlink_handle::Link;
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::drive::{Hands, Linked, Now};

    /// A machine with nothing to do for an hour. If `fails` is set, its second turn panics.
    #[derive(Default)]
    struct Idle {
        turns: usize,
        /// How often its transport was polled.
        hearings: usize,
        fails: bool,
    }

    impl Driven for Idle {
        type Left = ();

        fn belongs_to(&self, _: &Waker) -> bool {
            false
        }

        fn is_light(&self) -> bool {
            true
        }

        fn turn(&mut self, _: Instant, _: &mut Vec<u8>) -> bool {
            self.turns += 1;
            assert!(!self.fails || self.turns < 2, "as it was told to");
            false
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn poll_heard(&mut self, _: &mut Context<'_>, _: &Now<'_>, _: &mut [u8]) -> Poll<usize> {
            self.hearings += 1;
            Poll::Pending
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            let at = Instant::from_origin(Duration::from_secs(3600));
            Some(Deadline { at, wake: Why::Ask })
        }

        fn end(self) {}
    }

    fn alone() -> Runtime {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime")
    }

    #[test]
    fn nothing_is_left_of_a_link_that_was_to_do_something_in_an_hour() {
        alone().block_on(async {
            let steersman = Steersman::new(Idle::default());
            let helm = Arc::downgrade(&steersman.0);
            let driver = tokio::spawn(steersman);
            tokio::task::yield_now().await;
            driver.abort();
            assert!(driver.await.is_err_and(|error| error.is_cancelled()));
            assert_eq!(helm.strong_count(), 0);
        });
    }

    /// A transport that never reports anything.
    struct Still;

    impl Hands for Still {
        fn perform(&mut self, _: Output<Infallible>, _: &[u8]) {}

        fn poll_heard<'r>(
            &mut self,
            _: &mut Context<'_>,
            _: bool,
            _: &'r mut [u8],
        ) -> Poll<(Epoch, Input<'r>)> {
            Poll::Pending
        }
    }

    struct Asks(Link, Mutex<mpsc::Sender<bool>>);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let is_there = self.0.stats().wait().is_ok();
            let _ = self.1.lock().expect("nobody panicked").send(is_there);
        }
    }

    /// If the waker ran under the link's lock, this would deadlock.
    #[test]
    fn whoever_is_woken_may_wait_for_the_link_there_and_then() {
        let (told, heard) = mpsc::channel();
        std::thread::spawn(|| {
            alone().block_on(async {
                let (link, owner) = Link::new(Config::child("helm", "1.0"));
                let driver = tokio::spawn(Steersman::new(Linked::new(owner, Still)));
                tokio::task::yield_now().await;
                let mut events = link.events();
                let mut next = Box::pin(async move { events.recv().await });
                let waker = Waker::from(Arc::new(Asks(link.clone(), Mutex::new(told))));
                let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                drop(link.ready());
                driver.abort();
            });
        });
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn who_takes_a_turn_that_panics_does_not() {
        alone().block_on(async {
            let steersman = Steersman::new(Idle {
                fails: true,
                ..Idle::default()
            });
            let waker = Waker::from(Arc::clone(&steersman.0));
            let driver = tokio::spawn(steersman);
            tokio::task::yield_now().await;
            waker.wake();
            driver.await.expect("the driver is told to end");
        });
    }

    #[test]
    fn hands_are_listened_to_when_it_is_they_who_wake() {
        alone().block_on(async {
            let steersman = Steersman::new(Idle::default());
            let helm = Arc::clone(&steersman.0);
            let counts = || {
                let wheel = helm.wheel.lock().expect("nobody panicked");
                let idle = wheel.driver.driven().expect("it goes on");
                (idle.turns, idle.hearings)
            };
            let driver = tokio::spawn(steersman);
            tokio::task::yield_now().await;
            assert_eq!(counts(), (1, 1), "at first there may be news");
            let bell = helm.wheel.lock().expect("nobody panicked").bell.clone();
            bell.expect("there was a turn").wake();
            assert_eq!(counts(), (2, 1), "something was asked for");
            Waker::from(Arc::clone(&helm)).wake();
            assert_eq!(counts(), (3, 2), "hands have something to tell");
            driver.abort();
        });
    }
}
