//! What hosts watch and the present server does not announce yet. Sends nothing itself.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::protocol::watch::{Change, Watch, WatchUpdate};

#[derive(Debug, Default)]
pub(super) struct WatchState {
    /// The URIs that hosts watched before the present epoch and that the present server has not granted yet. Changes between the two epochs
    /// were not seen, so each URI is announced as changed when it is granted.
    unannounced: BTreeSet<Box<str>>,
    /// Whether a legacy host was ever in front. It gets the changes of lists unasked.
    has_legacy_host: bool,
}

impl WatchState {
    /// Records that a legacy host is in front. Returns whether it is the first.
    pub(super) const fn add_legacy_host(&mut self) -> bool {
        !core::mem::replace(&mut self.has_legacy_host, true)
    }

    /// Adds the lists, whose changes legacy hosts get unasked.
    pub(super) const fn with_lists(mut watch: Watch) -> Watch {
        (watch.tools, watch.prompts, watch.resources) = (true, true, true);
        watch
    }

    /// Returns the change of the watch that the server is told of.
    pub(super) fn change(&mut self, mut update: WatchUpdate) -> WatchUpdate {
        for uri in &update.removed {
            self.unannounced.remove(uri);
        }
        if self.has_legacy_host {
            (update.tools, update.prompts, update.resources) = (true, true, true);
        }
        update
    }

    /// Records that a new server is there, and what hosts watch.
    pub(super) fn begin_epoch(&mut self, watched: Watch) {
        self.unannounced = watched.uris;
    }

    /// Returns the resources that may have changed before the server granted this.
    pub(super) fn granted(&mut self, granted: &WatchUpdate) -> Vec<Change> {
        let unannounced = granted
            .added
            .iter()
            .filter_map(|uri| self.unannounced.take(uri));
        unannounced.map(|uri| Change::Resource { uri }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_watched_from_the_first_legacy_host_on() {
        let mut state = WatchState::default();
        let lists_watched = |state: &mut WatchState| {
            let update = state.change(WatchUpdate::default());
            [update.tools, update.prompts, update.resources]
        };
        assert_eq!(lists_watched(&mut state), [false; 3]);
        assert!(state.add_legacy_host());
        assert!(!state.add_legacy_host(), "it is the second");
        assert_eq!(lists_watched(&mut state), [true; 3]);
    }

    #[test]
    fn resource_watched_before_the_epoch_is_announced_once_unless_nobody_watches_it_any_more() {
        let uris = |uris: &[&str]| uris.iter().copied().map(Box::from).collect();
        let mut state = WatchState::default();
        state.begin_epoch(Watch::none().and_uri("a:").and_uri("b:"));
        state.change(WatchUpdate {
            removed: uris(&["b:"]),
            ..WatchUpdate::default()
        });
        let granted = WatchUpdate {
            added: uris(&["a:", "b:", "c:"]),
            ..WatchUpdate::default()
        };
        let announced = Change::Resource { uri: "a:".into() };
        assert_eq!(state.granted(&granted), [announced]);
        assert_eq!(state.granted(&granted), []);
    }
}
