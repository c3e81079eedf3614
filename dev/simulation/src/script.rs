//! Scripts as text, and the words in them. Must not know what they mean.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use crate::Simulation;

/// Defines an enum whose variants have names in scripts.
///
/// A variant may have a weight. [`Rng::choose`](crate::Rng::choose) takes the weights.
///
/// ```
/// everlink_simulation::script_enum! {
///     /// A side of a coin.
///     pub enum Side {
///         /// More often.
///         3 Heads = "heads",
///         /// Less often.
///         1 Tails = "tails",
///     }
/// }
/// assert_eq!(Side::Tails.to_string(), "tails");
/// assert_eq!(Side::WEIGHTS, [3, 1]);
/// ```
#[macro_export]
macro_rules! script_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$of:meta])* $($weight:literal)? $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            /// All variants.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];
            /// The weights of the variants. Empty if they have none.
            pub const WEIGHTS: &'static [u64] = &[$($($weight,)?)+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(match self { $($name::$variant => $word,)+ })
            }
        }

        impl $crate::Words for $name {
            fn read(words: &mut ::std::str::SplitWhitespace<'_>) -> Option<Result<$name, $crate::BadScript>> {
                let word = words.next()?;
                Some(match word {
                    $($word => Ok($name::$variant),)+
                    _ => Err($crate::BadScript(format!("`{word}` is none of: {}", [$($word),+].join(", ")))),
                })
            }
        }
    };
}

/// The reason why a text is no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScript(pub String);

impl fmt::Display for BadScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadScript {}

/// What is read from words of a line.
pub trait Words: Sized {
    /// Reads it from the next words. `None` if there are too few.
    fn read(words: &mut SplitWhitespace<'_>) -> Option<Result<Self, BadScript>>;
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<Result<T, BadScript>> {
    let word = words.next()?;
    let bad_number = |_| BadScript(format!("`{word}` is no number"));
    Some(word.parse().map_err(bad_number))
}

impl Words for u32 {
    fn read(words: &mut SplitWhitespace<'_>) -> Option<Result<u32, BadScript>> {
        number(words)
    }
}

impl Words for u64 {
    fn read(words: &mut SplitWhitespace<'_>) -> Option<Result<u64, BadScript>> {
        number(words)
    }
}

/// Defines a struct that is a line of a script: a fixed beginning, then its fields with a space between two.
///
/// ```
/// use everlink_simulation::BadScript;
///
/// everlink_simulation::script_line! {
///     /// A pause.
///     #[derive(Debug, PartialEq)]
///     pub struct Pause: "wait ", "wait SECONDS TIMES" {
///         /// Its length.
///         pub seconds: u64,
///         /// How often.
///         pub times: u32,
///     }
/// }
/// let line = "wait 3 5";
/// assert_eq!(line.parse(), Ok(Pause { seconds: 3, times: 5 }));
/// assert_eq!(Pause { seconds: 3, times: 5 }.to_string(), line);
/// assert_eq!("wait 3".parse::<Pause>(), Err(BadScript("`wait 3` is not `wait SECONDS TIMES`".into())));
/// ```
#[macro_export]
macro_rules! script_line {
    ($(#[$meta:meta])* pub struct $name:ident: $start:literal, $wanted:literal {
        $($(#[$of:meta])* pub $field:ident: $type:ty,)+
    }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$of])* pub $field: $type,)+ }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let words = [$(self.$field.to_string()),+];
                write!(f, "{}{}", $start, words.join(" "))
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::BadScript;

            fn from_str(line: &str) -> Result<$name, $crate::BadScript> {
                let bad = || $crate::BadScript(format!("`{line}` is not `{}`", $wanted));
                let rest = line.strip_prefix($start).ok_or_else(bad)?;
                let mut words = rest.split_whitespace();
                let read = $name {
                    $($field: <$type as $crate::Words>::read(&mut words).ok_or_else(bad)??,)+
                };
                words.next().map_or(Ok(read), |_| Err(bad()))
            }
        }
    };
}

/// A run: its setup and its timed steps. As text, the setup and each step have a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script<S: Simulation> {
    /// The setup.
    pub setup: S::Setup,
    /// The steps in order.
    pub steps: Vec<S::Step>,
}

impl<S: Simulation> Script<S> {
    /// The script of this seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Script<S> {
        S::script(seed)
    }
}

impl<S: Simulation> fmt::Display for Script<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl<S: Simulation> FromStr for Script<S> {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Script<S>, BadScript> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let setup = lines.next().unwrap_or_default().parse()?;
        let steps = lines.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Script { setup, steps })
    }
}
