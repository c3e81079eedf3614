//! Counts what a piece of code asks of the heap on its own thread. Must not know what it measures.
//!
//! Each thread has its own counters, so tests that run side by side do not disturb each other, and
//! a test sees exactly the work of its own code.
//!
//! ```
//! use alloc_count::{Counting, count};
//!
//! #[global_allocator]
//! static HEAP: Counting = Counting;
//!
//! let (text, counts) = count(|| String::from("abc"));
//! assert_eq!(text, "abc");
//! assert_eq!((counts.allocs, counts.bytes), (1, 3));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// The system's allocator, with every request counted for the thread that makes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// What a piece of code asked of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often memory was asked for.
    pub allocs: usize,
    /// How often a block was asked to grow or shrink.
    pub reallocs: usize,
    /// How often memory was given back.
    pub deallocs: usize,
    /// The bytes asked for, with those by which blocks grew; giving back takes nothing off.
    pub bytes: usize,
    /// The most bytes that were live at one time, above what was live at the start.
    pub peak_live: usize,
}

/// Runs `f` and counts what it asks of the heap on this thread. An outer count sees an inner one.
///
/// # Panics
///
/// If [`Counting`] is not the global allocator: every count would be a zero that proves nothing.
pub fn count<R>(f: impl FnOnce() -> R) -> (R, Counts) {
    assert_installed();

    let before = TALLY.get();
    TALLY.set(Tally {
        peak: before.live,
        ..before
    });
    let result = f();
    let after = TALLY.get();
    TALLY.set(Tally {
        peak: after.peak.max(before.peak),
        ..after
    });

    let counts = Counts {
        allocs: after.allocs - before.allocs,
        reallocs: after.reallocs - before.reallocs,
        deallocs: after.deallocs - before.deallocs,
        bytes: after.bytes - before.bytes,
        peak_live: (after.peak - before.live).unsigned_abs(),
    };
    (result, counts)
}

/// The bytes this thread took and has not given back: below zero if it freed what others took.
pub fn live() -> isize {
    TALLY.get().live
}

/// The running totals of one thread.
#[derive(Clone, Copy)]
struct Tally {
    allocs: usize,
    reallocs: usize,
    deallocs: usize,
    bytes: usize,
    live: isize,
    /// The highest `live` since the innermost running [`count`] began.
    peak: isize,
}

thread_local! {
    // Made at compile time and without a destructor: reading it allocates nothing, and works until
    // the thread is gone.
    static TALLY: Cell<Tally> = const { Cell::new(Tally::EMPTY) };
}

impl Tally {
    const EMPTY: Self = Self {
        allocs: 0,
        reallocs: 0,
        deallocs: 0,
        bytes: 0,
        live: 0,
        peak: 0,
    };

    fn took(&mut self, size: usize) {
        self.bytes += size;
        self.live += size as isize;
        self.peak = self.peak.max(self.live);
    }

    fn gave(&mut self, size: usize) {
        self.live -= size as isize;
    }
}

fn record(change: impl FnOnce(&mut Tally)) {
    let mut tally = TALLY.get();
    change(&mut tally);
    TALLY.set(tally);
}

fn assert_installed() {
    let before = TALLY.get().allocs;
    drop(black_box(Box::new(0_u8)));
    assert!(
        TALLY.get().allocs > before,
        "nothing is counted: this program does not declare \
         `#[global_allocator] static HEAP: Counting = Counting;`"
    );
}

// SAFETY: every request goes unchanged to the system's allocator; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(|tally| {
            tally.allocs += 1;
            tally.took(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(|tally| {
            tally.allocs += 1;
            tally.took(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        record(|tally| {
            tally.reallocs += 1;
            match size.checked_sub(layout.size()) {
                Some(growth) => tally.took(growth),
                None => tally.gave(layout.size() - size),
            }
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        record(|tally| {
            tally.deallocs += 1;
            tally.gave(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
