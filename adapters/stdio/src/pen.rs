//! What is written with at either end, by whoever is at the helm. Knows not what is written.

use everlink::Input;

pub(crate) trait Pen: Send + 'static {
    /// What the driver watches to see that there is room again.
    type Room;

    /// Writes these after all that came before, as far as there is room, and says what came of it. The rest is written when there is.
    fn write(&mut self, bytes: &mut Vec<u8>) -> Option<Input<'static>>;

    /// What is to be watched, if something waits for room.
    fn room(&self) -> Option<Self::Room>;
}
