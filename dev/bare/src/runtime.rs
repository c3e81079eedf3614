//! Replaces `std`: an allocator and a panic handler. Must not depend on links.
//!
//! The C runtime starts the program and has the memory functions that compilers emit calls to.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

#[link(name = "c")]
unsafe extern "C" {}

/// Far more than a handshake and a call need, though nothing is ever freed.
const ARENA_BYTES: usize = 1 << 20;

#[global_allocator]
static HEAP: Bump = Bump {
    arena: UnsafeCell::new([0; ARENA_BYTES]),
    used: AtomicUsize::new(0),
};

/// Allocates consecutive pieces of a static array.
struct Bump {
    arena: UnsafeCell<[u8; ARENA_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: `used` only grows, in one atomic step, so no two callers get the same piece.
unsafe impl Sync for Bump {}

// SAFETY: a piece lies in the arena, is aligned, is handed out once and never reused.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.arena.get().cast::<u8>();
        let piece = |used: usize| {
            let padding = base.wrapping_add(used).align_offset(layout.align());
            let start = used.checked_add(padding)?;
            let end = start.checked_add(layout.size())?;
            (end <= ARENA_BYTES).then_some((start, end))
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

/// Without a standard error, the only report is the failure of the process.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    trap()
}

/// `alloc` is compiled for unwinding and refers to an unwinder. With `panic = "abort"` it is never called.
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    trap()
}

/// As above: referred to, never called.
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
