//! What stands where `std` would: memory, and an end for panics. Knows nothing of links.
//!
//! What is taken of the system is the C runtime, which starts the program and has the functions on memory that compilers
//! take for granted.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

#[link(name = "c")]
unsafe extern "C" {}

/// Far more than a handshake and a call take, though nothing is ever given back.
const ARENA: usize = 1 << 20;

#[global_allocator]
static HEAP: Bump = Bump {
    arena: UnsafeCell::new([0; ARENA]),
    used: AtomicUsize::new(0),
};

/// Hands out one piece of a static array after the other.
struct Bump {
    arena: UnsafeCell<[u8; ARENA]>,
    used: AtomicUsize,
}

// SAFETY: `used` only grows, and in one atomic step, so no two callers are given the same piece.
unsafe impl Sync for Bump {}

// SAFETY: a piece lies in the arena, is aligned, is given out once and is never taken back.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.arena.get().cast::<u8>();
        let piece = |used: usize| {
            let padding = base.wrapping_add(used).align_offset(layout.align());
            let start = used.checked_add(padding)?;
            let end = start.checked_add(layout.size())?;
            (end <= ARENA).then_some((start, end))
        };
        let end = |used| piece(used).map(|(_, end)| end);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
        match taken.ok().and_then(piece) {
            Some((start, _)) => base.wrapping_add(start),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// There is nobody to tell, so the process is made to fail at once.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    trap()
}

/// `alloc` comes compiled for unwinding and names an unwinder. Where a panic aborts, it is never called.
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    trap()
}

/// As above.
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    trap()
}

fn trap() -> ! {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    // SAFETY: an illegal instruction ends the process.
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack));
    }
    #[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
    // SAFETY: an illegal instruction ends the process.
    unsafe {
        core::arch::asm!("udf #0", options(noreturn, nomem, nostack));
    }
    #[cfg(not(any(
        target_arch = "arm",
        target_arch = "aarch64",
        target_arch = "x86",
        target_arch = "x86_64",
    )))]
    loop {
        core::hint::spin_loop();
    }
}
