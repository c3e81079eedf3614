//! The progress reports of a request that wait to be written. Does not depend on requests.

use alloc::collections::VecDeque;

use crate::server::requests::reply::Progress;

/// The progress of a request, and the reports that its client has still to get.
#[derive(Debug, Default)]
pub(crate) struct ProgressReports {
    last: Option<f64>,
    unwritten: VecDeque<Progress>,
    /// The number of queued frames, each for one report. If newer reports replaced older ones, the last frames write nothing.
    frames: usize,
}

impl ProgressReports {
    /// The maximum number of queued reports for a client that reads. The oldest one is dropped for a new one.
    const MOST: usize = 16;

    /// Adds a report if the progress grew. A client that does not read gets only the newest report. Returns whether a frame must be queued
    /// for it.
    pub(crate) fn add(&mut self, progress: Progress, is_read: bool) -> bool {
        if self.last.is_some_and(|last| progress.progress <= last) {
            return false;
        }
        self.last = Some(progress.progress);
        if !is_read {
            self.unwritten.clear();
        } else if self.unwritten.len() == ProgressReports::MOST {
            self.unwritten.pop_front();
        }
        self.unwritten.push_back(progress);
        let needs_frame = self.frames < self.unwritten.len();
        self.frames += usize::from(needs_frame);
        needs_frame
    }

    /// Returns the report for a frame that is being written, if one is left.
    pub(crate) fn next(&mut self) -> Option<Progress> {
        self.frames = self.frames.saturating_sub(1);
        self.unwritten.pop_front()
    }
}
