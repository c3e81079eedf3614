//! The progress reports of a request that wait to be written. Does not depend on requests.

use alloc::collections::VecDeque;

use crate::server::requests::reply::Progress;

/// The progress of a request, and the reports that its client has still to get.
#[derive(Debug, Default)]
pub(crate) struct ProgressReports {
    last: Option<f64>,
    /// A frame is queued for each.
    unwritten: VecDeque<Progress>,
}

impl ProgressReports {
    /// The maximum number of queued reports for a client that reads. The oldest one is dropped for a new one.
    const MOST: usize = 16;

    /// Adds a report if the progress grew. While the client does not read, each report replaces the one before. Returns whether a frame must be
    /// queued for it.
    pub(crate) fn add(&mut self, progress: Progress, is_read: bool) -> bool {
        if self.last.is_some_and(|last| progress.progress <= last) {
            return false;
        }
        self.last = Some(progress.progress);
        let replaced = if !is_read {
            self.unwritten.pop_back()
        } else if self.unwritten.len() == ProgressReports::MOST {
            self.unwritten.pop_front()
        } else {
            None
        };
        self.unwritten.push_back(progress);
        replaced.is_none()
    }

    /// Returns the report for a frame that is being written.
    pub(crate) fn next(&mut self) -> Option<Progress> {
        self.unwritten.pop_front()
    }
}
