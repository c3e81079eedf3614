//! The interface for writing to the peer, used by the driver and by callers that run its step. Does not know the content.

use everlink::Input;

pub(crate) trait Writer: Send + 'static {
    /// The stream that the driver polls for writability.
    type Stream;

    /// Appends these bytes to the output and writes as much as possible without blocking. Returns the result to report. The rest is written later.
    fn write(&mut self, bytes: &mut Vec<u8>) -> Option<Input<'static>>;

    /// Returns the stream to poll for writability, if bytes wait to be written.
    fn blocked_stream(&self) -> Option<Self::Stream>;
}
