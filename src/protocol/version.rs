//! The protocol versions, their two eras, and sets of versions.

use core::fmt;

/// The two families of versions, which differ in how a connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Era {
    /// One `initialize` handshake per connection or session: 2024-11-05 to 2025-11-25.
    Legacy,
    /// No handshake; every request names its version and capabilities: 2026-07-28.
    Modern,
}

/// A published version of the protocol, ordered from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 2024-11-05, the first one. Its HTTP transport is HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26. It introduced Streamable HTTP and, for this version alone, batches.
    V2025_03_26,
    /// 2025-06-18. It introduced elicitation and the version header.
    V2025_06_18,
    /// 2025-11-25, the last one with a handshake. Tasks are part of its core.
    V2025_11_25,
    /// 2026-07-28, the first stateless one.
    V2026_07_28,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: &'static [Self] = &[
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// The versions of the legacy era, oldest first.
    pub const LEGACY: &'static [Self] = Self::ALL.split_at(4).0;
    /// The versions of the modern era, oldest first.
    pub const MODERN: &'static [Self] = Self::ALL.split_at(4).1;
    /// The newest version of the legacy era.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest version of the modern era.
    pub const LATEST_MODERN: Self = Self::V2026_07_28;

    /// The version as it is spelled on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version spelled `text`, if it is one of [`Version::ALL`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|version| version.as_str() == text)
    }

    /// The era this version belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => {
                Era::Legacy
            }
            Self::V2026_07_28 => Era::Modern,
        }
    }

    /// Whether a JSON array of messages is legal. It is legal in 2025-03-26 alone.
    #[must_use]
    pub const fn allows_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A set of versions in one byte. It can be copied and used in constants.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Versions(u8);

impl Versions {
    /// No version.
    pub const NONE: Self = Self(0);
    /// Every version.
    pub const ALL: Self = Self::since(Version::V2024_11_05);
    /// Every version of the legacy era.
    pub const LEGACY: Self = Self::between(Version::V2024_11_05, Version::LATEST_LEGACY);
    /// Every version of the modern era.
    pub const MODERN: Self = Self::since(Version::V2026_07_28);

    /// The set of one version.
    #[must_use]
    pub const fn only(version: Version) -> Self {
        Self(version.bit())
    }

    /// `first` and every version after it.
    #[must_use]
    pub const fn since(first: Version) -> Self {
        Self::between(first, Version::LATEST_MODERN)
    }

    /// `first`, `last` and every version in between. Empty if `last` is older than `first`.
    #[must_use]
    pub const fn between(first: Version, last: Version) -> Self {
        let up_to_last = (last.bit() << 1) - 1;
        let before_first = first.bit() - 1;
        Self(up_to_last & !before_first)
    }

    /// This set with `version` added.
    #[must_use]
    pub const fn with(self, version: Version) -> Self {
        Self(self.0 | version.bit())
    }

    /// This set without `version`.
    #[must_use]
    pub const fn without(self, version: Version) -> Self {
        Self(self.0 & !version.bit())
    }

    /// Whether `version` is in the set.
    #[must_use]
    pub const fn contains(self, version: Version) -> bool {
        self.0 & version.bit() != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The newest version of `era` in the set.
    #[must_use]
    pub fn newest_of(self, era: Era) -> Option<Version> {
        self.iter().find(|version| version.era() == era)
    }

    /// The newest version of `era` that is both in the set and in `offered`, in whatever order the peer lists them.
    ///
    /// Unknown names are ignored, because a peer may speak versions that are not published yet.
    #[must_use]
    pub fn newest_common<'a>(
        self,
        offered: impl IntoIterator<Item = &'a str>,
        era: Era,
    ) -> Option<Version> {
        offered
            .into_iter()
            .filter_map(Version::parse)
            .filter(|&version| version.era() == era && self.contains(version))
            .max()
    }

    /// The versions in the set, newest first. This is the order of preference.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Version> {
        Version::ALL
            .iter()
            .rev()
            .copied()
            .filter(move |&version| self.contains(version))
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Self {
        versions.into_iter().fold(Self::NONE, Self::with)
    }
}

impl From<Version> for Versions {
    fn from(version: Version) -> Self {
        Self::only(version)
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Version::as_str))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn spelling_round_trips_and_follows_the_order() {
        for pair in Version::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].as_str() < pair[1].as_str());
        }
        for &version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
        }
        for wrong in ["", "2025-06-17", "2025-06-18 ", "DRAFT-2026-v1", "1.0.0"] {
            assert_eq!(Version::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_eras_divide_the_versions() {
        assert_eq!([Version::LEGACY, Version::MODERN].concat(), Version::ALL);
        assert!(Version::LEGACY.iter().all(|v| v.era() == Era::Legacy));
        assert!(Version::MODERN.iter().all(|v| v.era() == Era::Modern));
        assert_eq!(Version::LEGACY.last(), Some(&Version::LATEST_LEGACY));
        assert_eq!(Version::MODERN.last(), Some(&Version::LATEST_MODERN));
    }

    #[test]
    fn only_one_version_allows_batches() {
        let with_batches: Vec<_> = Version::ALL.iter().filter(|v| v.allows_batches()).collect();
        assert_eq!(with_batches, [&Version::V2025_03_26]);
    }

    #[test]
    fn sets_hold_what_their_constructor_says() {
        use Version::*;
        let newest_first = |set: Versions| set.iter().collect::<Vec<_>>();
        let all = [
            V2026_07_28,
            V2025_11_25,
            V2025_06_18,
            V2025_03_26,
            V2024_11_05,
        ];
        assert_eq!(newest_first(Versions::ALL), all);
        assert_eq!(newest_first(Versions::LEGACY), all[1..]);
        assert_eq!(newest_first(Versions::MODERN), all[..1]);
        assert_eq!(newest_first(Versions::NONE), []);
        assert_eq!(newest_first(Versions::only(V2025_06_18)), [V2025_06_18]);
        assert_eq!(newest_first(Versions::from(V2025_06_18)), [V2025_06_18]);
        assert_eq!(newest_first(Versions::since(V2025_11_25)), all[..2]);
        assert_eq!(
            newest_first(Versions::between(V2025_03_26, V2025_06_18)),
            all[2..4]
        );
        assert!(Versions::between(V2025_11_25, V2025_03_26).is_empty());
        assert_eq!(all.into_iter().collect::<Versions>(), Versions::ALL);
        assert_eq!(Versions::ALL.without(V2026_07_28), Versions::LEGACY);
        assert_eq!(Versions::LEGACY.with(V2026_07_28), Versions::ALL);
    }

    #[test]
    fn newest_common_version_ignores_order_other_eras_and_unknown_names() {
        let offered = [
            "2025-03-26",
            "2099-01-01",
            "2025-06-18",
            "2026-07-28",
            "2024-11-05",
        ];
        let common = |set: Versions, era| set.newest_common(offered, era);
        assert_eq!(
            common(Versions::ALL, Era::Modern),
            Some(Version::V2026_07_28)
        );
        assert_eq!(
            common(Versions::ALL, Era::Legacy),
            Some(Version::V2025_06_18)
        );
        assert_eq!(common(Versions::LEGACY, Era::Modern), None);
        let old = Versions::only(Version::V2024_11_05);
        assert_eq!(common(old, Era::Legacy), Some(Version::V2024_11_05));
        assert_eq!(
            common(Versions::only(Version::V2025_11_25), Era::Legacy),
            None
        );
        assert_eq!(Versions::ALL.newest_common([], Era::Legacy), None);
        assert_eq!(
            Versions::ALL.newest_of(Era::Legacy),
            Some(Version::V2025_11_25)
        );
        assert_eq!(old.newest_of(Era::Modern), None);
    }
}
