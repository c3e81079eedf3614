//! Reads setups and operations from bytes. Performs nothing.

use std::fmt::Debug;
use std::time::Duration;

use everlink::{FaultKind, List};

/// Longer runs find nothing that shorter ones do not.
const MOST_OPERATIONS: usize = 256;

/// Bytes that are consumed one by one. After their end, zeros follow.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    rest: &'a [u8],
    /// How deep batches may be nested.
    depth: u8,
}

/// A value that any bytes describe.
pub(crate) trait Read: Sized {
    fn read(script: &mut Script<'_>) -> Self;
}

impl<'a> Script<'a> {
    pub(crate) const fn new(rest: &'a [u8], depth: u8) -> Script<'a> {
        Script { rest, depth }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub(crate) fn read<T: Read>(&mut self) -> T {
        T::read(self)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// The rest as operations.
    pub(crate) fn operations<T: Read>(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        while !self.rest.is_empty() && all.len() < MOST_OPERATIONS {
            all.push(T::read(self));
        }
        all
    }

    /// As many values one level deeper, or none where no deeper level is allowed.
    pub(crate) fn nested<T: Read>(&mut self, count: impl FnOnce(&mut Self) -> u8) -> Vec<T> {
        let Some(deeper) = self.depth.checked_sub(1) else {
            return Vec::new();
        };
        let depth = std::mem::replace(&mut self.depth, deeper);
        let count = count(self);
        let all = (0..count).map(|_| T::read(self)).collect();
        self.depth = depth;
        all
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// Defines an enum whose variants are read from bytes: the first byte chooses one by its weight, the next ones are its fields.
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $weight:literal $variant:ident
            $(($($unnamed:ty),+))? $({ $($field:ident: $named:ty),+ })?,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, clippy::exhaustive_enums, reason = "the names say it")]
        $vis enum $name {
            $($(#[$doc])* $variant $(($($unnamed),+))? $({ $($field: $named),+ })?,)+
        }

        impl $crate::script::Read for $name {
            fn read(script: &mut $crate::script::Script<'_>) -> $name {
                let chosen = u32::from(script.byte()) % (0 $(+ $weight)+);
                let mut end = 0;
                $(
                    end += $weight;
                    if chosen < end {
                        return $name::$variant
                            $(($(script.read::<$unnamed>()),+))?
                            $({ $($field: script.read::<$named>()),+ })?;
                    }
                )+
                unreachable!("below the sum of the weights")
            }
        }
    };
}

/// Reads fields of a struct in this order: `spans` are durations, `sizes` are picked from a list.
macro_rules! read_fields {
    ($script:ident, $of:expr, spans: $($field:ident)+) => {
        $($of.$field = $script.read();)+
    };
    ($script:ident, $of:expr, $sizes:expr, sizes: $($field:ident)+) => {
        $($of.$field = $script.pick($sizes);)+
    };
}

pub(crate) use {choices, read_fields};

impl Read for u8 {
    fn read(script: &mut Script<'_>) -> u8 {
        script.byte()
    }
}

impl Read for bool {
    fn read(script: &mut Script<'_>) -> bool {
        script.byte() % 2 == 0
    }
}

impl Read for Duration {
    fn read(script: &mut Script<'_>) -> Duration {
        const SHORT: [Duration; 5] = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(1),
            Duration::from_millis(20),
            Duration::from_millis(300),
        ];
        match usize::from(script.byte() % 8) {
            5 => Duration::from_secs(4),
            6 => Duration::from_secs(60),
            7 => Duration::MAX,
            short => SHORT[short],
        }
    }
}

impl Read for List {
    fn read(script: &mut Script<'_>) -> List {
        script.pick(&List::ALL)
    }
}

impl Read for Vec<u8> {
    fn read(script: &mut Script<'_>) -> Vec<u8> {
        let len = script.byte();
        script.take(usize::from(len)).to_vec()
    }
}

impl Read for Vec<FaultKind> {
    fn read(script: &mut Script<'_>) -> Vec<FaultKind> {
        use FaultKind::{
            Aborted, BrokenPipe, Closed, NameNotFound, NotExecutable, NotFound, Other,
            PermissionDenied, Read, Refused, Reset, ResourcesExhausted, TimedOut, Tls, Unreachable,
            Write,
        };
        let first = [
            Closed,
            Aborted,
            BrokenPipe,
            Reset,
            NameNotFound,
            NotFound,
            Other,
        ];
        let then = [
            PermissionDenied,
            Read,
            Refused,
            ResourcesExhausted,
            TimedOut,
            Tls,
        ];
        let all = [&first[..], &then, &[Unreachable, Write, NotExecutable]].concat();
        // Mostly 0 to 3 faults. 20 are more than the 16 that a machine keeps.
        let count = script.byte();
        let count = if count == 255 { 20 } else { count % 4 };
        (0..count).map(|_| script.pick(&all)).collect()
    }
}

/// Bytes that mostly end a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines(pub(crate) Vec<u8>);

impl Read for Lines {
    fn read(script: &mut Script<'_>) -> Lines {
        let len = script.byte();
        let mut bytes = script.take(usize::from(len)).to_vec();
        if len % 4 != 0 {
            bytes.push(b'\n');
        }
        Lines(bytes)
    }
}

choices! {
    /// How time passes.
    #[derive(Copy)]
    pub enum Elapse {
        /// The clock jumps back, and the machine is told.
        1 Back(Duration),
        /// To just before the next deadline.
        1 Before,
        /// For this long, whatever is due.
        3 For(Duration),
        /// For this long, and the machine is not told.
        1 Untold(Duration),
        /// Exactly to the next deadline.
        10 ToDeadline,
    }
}

/// One of the words of a text.
pub(crate) fn word(of: &'static str, which: u8) -> &'static str {
    let words: Vec<&str> = of.split_whitespace().collect();
    words[usize::from(which) % words.len()]
}

/// One of these, if there are any.
pub(crate) fn nth<T: Copy>(from: &[T], which: u8) -> Option<T> {
    from.get(usize::from(which) % from.len().max(1)).copied()
}
