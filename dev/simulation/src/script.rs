//! Scripts as text, and the words in them. Must not know what they mean.

use std::fmt;
use std::str::FromStr;

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
/// assert_eq!("tails".parse(), Ok(Side::Tails));
/// assert_eq!("edge".parse::<Side>().unwrap_err().to_string(), "`edge` is none of: heads, tails");
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

        impl ::std::str::FromStr for $name {
            type Err = $crate::BadScript;

            fn from_str(word: &str) -> Result<$name, $crate::BadScript> {
                match word {
                    $($word => Ok($name::$variant),)+
                    _ => Err($crate::BadScript(format!("`{word}` is none of: {}", [$($word),+].join(", ")))),
                }
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

/// Parses a number in a script.
///
/// # Errors
///
/// If the word is no number of this type.
pub fn number<T: FromStr>(word: &str) -> Result<T, BadScript> {
    let bad_number = |_| BadScript(format!("`{word}` is no number"));
    word.parse().map_err(bad_number)
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
