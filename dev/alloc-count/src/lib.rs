//! Counts the heap requests of a closure on its own thread. Must not depend on the code that it measures.
//!
//! Each thread has its own counters, so parallel tests do not disturb each other, and a test counts only its own code.
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

/// The system allocator with counters for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// The heap requests of a closure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of allocations.
    pub allocs: usize,
    /// The number of reallocations, to grow or to shrink.
    pub reallocs: usize,
    /// The number of deallocations.
    pub deallocs: usize,
    /// The bytes requested, including the growth of blocks. A deallocation subtracts nothing.
    pub bytes: usize,
    /// The highest number of live bytes at one time, relative to the start.
    pub peak_live: usize,
}

/// Runs `f` and counts its heap requests on this thread. An outer count includes an inner one.
///
/// # Panics
///
/// If [`Counting`] is not the global allocator: every count would be zero and prove nothing.
pub fn count<R>(f: impl FnOnce() -> R) -> (R, Counts) {
    assert_installed();

    let before = TOTALS.get();
    TOTALS.set(Totals {
        peak: before.live,
        ..before
    });
    let result = f();
    let after = TOTALS.get();
    TOTALS.set(Totals {
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

/// The live bytes of this thread. Negative if it freed more bytes of other threads than it holds.
pub fn live() -> isize {
    TOTALS.get().live
}

/// The running totals of one thread.
#[derive(Clone, Copy)]
struct Totals {
    allocs: usize,
    reallocs: usize,
    deallocs: usize,
    bytes: usize,
    live: isize,
    /// The highest `live` since the innermost running [`count`] began.
    peak: isize,
}

thread_local! {
    // A constant without a destructor: reading it allocates nothing, and works until the thread is gone.
    static TOTALS: Cell<Totals> = const { Cell::new(Totals::EMPTY) };
}

impl Totals {
    const EMPTY: Self = Self {
        allocs: 0,
        reallocs: 0,
        deallocs: 0,
        bytes: 0,
        live: 0,
        peak: 0,
    };

    fn add_live(&mut self, size: usize) {
        self.bytes += size;
        self.live += size as isize;
        self.peak = self.peak.max(self.live);
    }

    fn sub_live(&mut self, size: usize) {
        self.live -= size as isize;
    }
}

fn record(change: impl FnOnce(&mut Totals)) {
    let mut totals = TOTALS.get();
    change(&mut totals);
    TOTALS.set(totals);
}

fn assert_installed() {
    let before = TOTALS.get().allocs;
    drop(black_box(Box::new(0_u8)));
    assert!(
        TOTALS.get().allocs > before,
        "nothing is counted: this program does not declare \
         `#[global_allocator] static HEAP: Counting = Counting;`"
    );
}

// SAFETY: every request goes unchanged to the system allocator, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(|totals| {
            totals.allocs += 1;
            totals.add_live(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(|totals| {
            totals.allocs += 1;
            totals.add_live(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        record(|totals| {
            totals.reallocs += 1;
            match size.checked_sub(layout.size()) {
                Some(growth) => totals.add_live(growth),
                None => totals.sub_live(layout.size() - size),
            }
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        record(|totals| {
            totals.deallocs += 1;
            totals.sub_live(layout.size());
        });
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
