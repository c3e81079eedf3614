//! One link on a runtime of one thread: who makes its only call, or the runtime itself as soon as it hears something, takes the driver's turn at
//! once. Knows not which link.
//!
//! There, to wake the driver is to have all others wait until it had its turn, and whoever it wakes in turn to look first whether the
//! system has anything to tell. What there is to do for one call is less than that. With more than one under way it is left to the driver:
//! it does it for all of them at once.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use everlink_handle::PostponedWakes;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::drive::{Driven, Driver};

/// A driver whose turns others may take. Dropped, it leaves nothing behind.
pub(crate) struct Steersman<D: Craft>(Arc<Helm<D>>);

/// What can be driven by anybody.
pub(crate) trait Craft: Driven<Left = ()> + Send + 'static {}

impl<D: Driven<Left = ()> + Send + 'static> Craft for D {}

/// As a waker, it has whoever wakes it take a turn if there is little to do. It is what hands wake.
struct Helm<D> {
    wheel: Mutex<Wheel<D>>,
    /// A turn was asked for since the last one began.
    is_asked: AtomicBool,
    /// It was hands that asked: they have something to tell.
    is_news: AtomicBool,
    /// Whom to wake for what nobody else does.
    steersman: Mutex<Option<Waker>>,
}

struct Wheel<D> {
    driver: Driver<D>,
    /// The runtime, if it has but one thread. Known from the first turn on.
    runtime: Option<Handle>,
    /// What those wake who ask for something. From the first turn on.
    bell: Option<Waker>,
}

/// The same for all but hands: these need not be listened to then.
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
    /// What there is of it, for who looks whether anything is left.
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
    /// Has a turn taken, here or by the driver.
    fn ask(self: &Arc<Self>) {
        // Not only stored: who sees that this one asked is to see all that those before it said.
        self.is_asked.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wakes = PostponedWakes::begin();
        // Where it is taken, whoever has it looks again.
        let is_left = match self.wheel.try_lock() {
            Ok(mut wheel) => self.help(&mut wheel).is_none(),
            Err(_) => return,
        };
        drop(wakes);
        if is_left || self.is_asked() {
            self.wake_steersman();
        }
    }

    /// A turn of whoever wakes the driver, if it may have one. Nothing when something is left for the driver.
    fn help(self: &Arc<Self>, wheel: &mut Wheel<D>) -> Option<()> {
        let Wheel {
            driver,
            runtime,
            bell,
        } = wheel;
        driver.driven().filter(|driven| driven.is_light())?;
        // Outside of any runtime, somebody may be about to end who has nothing left to help with.
        let runtime = runtime.as_ref().filter(|_| Handle::try_current().is_ok())?;
        let _within = runtime.enter();
        // A turn that panics is the end of what is driven, and of nobody who only wakes it.
        let turned = catch_unwind(AssertUnwindSafe(|| self.turn(driver, bell)));
        let Ok(turned) = turned else {
            driver.take().into_iter().for_each(D::end);
            return None;
        };
        turned.is_pending().then_some(())
    }

    fn turn(self: &Arc<Self>, driver: &mut Driver<D>, bell: &mut Option<Waker>) -> Poll<()> {
        // What was asked for until here is seen from here on; what is asked for later is asked again.
        self.is_asked.swap(false, Ordering::AcqRel);
        let is_news = self.is_news.swap(false, Ordering::AcqRel);
        let bell = bell.get_or_insert_with(|| Waker::from(Arc::new(Bell(Arc::clone(self)))));
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        driver.go_on(&mut cx, bell, is_news)
    }

    /// Who asks for something says so and then looks for the wheel, who has it leaves it and then looks here: one of them sees the other.
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

    /// Nothing is left of what was driven, nor of who drove it.
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

    /// Something that nothing is to be done for, for an hour; where it `fails`, its second turn does.
    #[derive(Default)]
    struct Idle {
        turns: usize,
        /// How often its hands were asked what they heard.
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

    /// Hands of which nothing is ever heard.
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

    /// Under a lock of the link's, it would wait for itself.
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
