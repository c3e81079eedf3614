//! The texts of tokens, codes and verifiers in the simulated world. Each says what it is and where it belongs, so that the oracle can find it
//! in any request and in any record.

use std::fmt;

/// The kind of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Access,
    Refresh,
    Code,
    Verifier,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Access, Kind::Refresh, Kind::Code, Kind::Verifier];

    /// How its text begins. Nothing else in the world contains this.
    const fn prefix(self) -> &'static str {
        match self {
            Kind::Access => "zATz",
            Kind::Refresh => "zRTz",
            Kind::Code => "zCDz",
            Kind::Verifier => "zVFz",
        }
    }
}

/// The identity of a secret.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    /// The authorization server.
    pub(crate) issuer: usize,
    /// The family of tokens, or the number of a code or a verifier.
    pub(crate) family: usize,
    /// The position in the family.
    pub(crate) serial: usize,
}

impl Mark {
    pub(crate) fn text(self, kind: Kind) -> String {
        let Mark {
            issuer,
            family,
            serial,
        } = self;
        format!("{}{issuer}z{family}z{serial}z", kind.prefix())
    }

    /// The first secret of this kind in a text.
    pub(crate) fn find(text: &str, kind: Kind) -> Option<Mark> {
        let at = text.find(kind.prefix())? + kind.prefix().len();
        let mut numbers = text[at..].split('z').map(|number| number.parse().ok());
        Some(Mark {
            issuer: numbers.next()??,
            family: numbers.next()??,
            serial: numbers.next()??,
        })
    }

    /// The same in a record.
    pub(crate) fn find_in(record: Option<&[u8]>, kind: Kind) -> Option<Mark> {
        Mark::find(core::str::from_utf8(record?).ok()?, kind)
    }
}

/// The authorization server, the family and the position.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.issuer, self.family, self.serial)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
