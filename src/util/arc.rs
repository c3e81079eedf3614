//! The shared pointer of both ends. `Rc` takes the place of `Arc` on targets without atomic compare-and-swap.

#[cfg(all(not(target_has_atomic = "ptr"), not(feature = "portable-atomic")))]
pub use alloc::rc::Rc as Arc;
#[cfg(target_has_atomic = "ptr")]
pub use alloc::sync::Arc;
#[cfg(all(not(target_has_atomic = "ptr"), feature = "portable-atomic"))]
pub use portable_atomic_util::Arc;
