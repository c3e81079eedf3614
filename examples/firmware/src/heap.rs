//! A heap of fixed size, and the most that was used of it and of the stack. Must not depend on links.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use embedded_alloc::LlffHeap;

/// The size of the heap, in bytes.
pub(crate) const SIZE: usize = 48 * 1024;

/// Where the heap lies in memory.
static mut MEMORY: [MaybeUninit<u8>; SIZE] = [MaybeUninit::uninit(); SIZE];

#[global_allocator]
static HEAP: MeasuredHeap = MeasuredHeap {
    heap: LlffHeap::empty(),
    peak: AtomicUsize::new(0),
    reach: AtomicUsize::new(0),
};

/// Makes the heap usable. Call it once, before the first allocation.
pub(crate) fn init() {
    let start = &raw mut MEMORY;
    // SAFETY: the memory is used for nothing else, and `main` calls this function once.
    unsafe { HEAP.heap.init(start as usize, SIZE) };
}

/// Bytes that are allocated.
pub(crate) fn used() -> usize {
    HEAP.heap.used()
}

/// The most bytes that were allocated at one time.
pub(crate) fn peak() -> usize {
    HEAP.peak.load(Ordering::Relaxed)
}

/// The distance from the start of the heap to the end of the farthest allocation so far. It is more than the peak, because freed gaps
/// that are too small are skipped. A heap of this size would have been enough.
pub(crate) fn reach() -> usize {
    HEAP.reach.load(Ordering::Relaxed)
}

/// A heap that records its peak.
struct MeasuredHeap {
    heap: LlffHeap,
    peak: AtomicUsize,
    reach: AtomicUsize,
}

// SAFETY: every call goes to `LlffHeap`, which keeps the rules of an allocator.
unsafe impl GlobalAlloc for MeasuredHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `alloc`.
        let piece = unsafe { self.heap.alloc(layout) };
        if !piece.is_null() {
            let end = piece as usize + layout.size() - (&raw const MEMORY) as usize;
            raise(&self.peak, self.heap.used());
            raise(&self.reach, end);
        }
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { self.heap.dealloc(piece, layout) };
    }
}

/// Stores the value if it is greater. A Cortex-M0 has no `fetch_max`, and none is needed: no interrupt allocates.
fn raise(most: &AtomicUsize, value: usize) {
    if value > most.load(Ordering::Relaxed) {
        most.store(value, Ordering::Relaxed);
    }
}

// The linker script of cortex-m-rt defines these names. Only their addresses mean something.
unsafe extern "C" {
    /// The end of the static variables, which is the limit of the stack.
    static __sheap: u32;
    /// Where the stack begins. It grows down.
    static _stack_start: u32;
}

/// The most bytes of the stack that were used, and its size. cortex-m-rt fills the stack with a pattern at the start. The stack was
/// never deeper than the first word, from its limit, that has changed.
pub(crate) fn stack() -> (usize, usize) {
    let (limit, start) = (&raw const __sheap, &raw const _stack_start);
    let words = (start as usize - limit as usize) / size_of::<u32>();
    let untouched = (0..words).take_while(|word| {
        // SAFETY: the address lies in the stack, and is aligned.
        let value = unsafe { limit.wrapping_add(*word).read_volatile() };
        value == cortex_m_rt::STACK_PAINT_VALUE
    });
    let used = words - untouched.count();
    (used * size_of::<u32>(), words * size_of::<u32>())
}
