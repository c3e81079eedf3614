//! What a network does to exchanges, drawn from a seed. Knows neither ends nor messages.

use std::time::Duration;

use crate::pair::well_spread;

/// What happens between two ends over HTTP. By default nothing: everything arrives, at once and whole.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Weather {
    /// How long the way takes at least and at most, drawn for each exchange. So exchanges overtake each other; the parts of one never do.
    pub latency: (Duration, Duration),
    /// How many of 1,000 requests are cut.
    pub request_cuts: u64,
    /// How many of 1,000 responses are cut.
    pub response_cuts: u64,
    /// After how many bytes at least and at most a cut comes.
    pub cut_after: (u64, u64),
    /// Whether bodies arrive in pieces.
    pub chops: bool,
    /// Whether somebody in between passes a response on only when all of it is there.
    pub buffers: bool,
    /// After how much silence somebody in between cuts an exchange.
    pub cuts_idle: Option<Duration>,
}

impl Weather {
    /// Nothing happens.
    #[must_use]
    pub fn calm() -> Weather {
        Weather::default()
    }

    /// Exchanges take a while, overtake each other and arrive in pieces.
    #[must_use]
    pub fn windy() -> Weather {
        Weather {
            latency: (Duration::from_millis(1), Duration::from_millis(80)),
            chops: true,
            ..Weather::calm()
        }
    }

    /// And so many of 1,000 responses are cut, after so many bytes at least and at most.
    #[must_use]
    pub fn cutting(mut self, responses: u64, after: (u64, u64)) -> Weather {
        (self.response_cuts, self.cut_after) = (responses, after);
        self
    }

    /// And so many of 1,000 requests.
    #[must_use]
    pub fn cutting_requests(mut self, requests: u64) -> Weather {
        self.request_cuts = requests;
        self
    }

    /// What will befall one exchange.
    pub(super) fn draw(&self, dice: &mut Dice) -> Fate {
        let (least, most) = self.latency;
        let spread = u64::try_from((most - least).as_nanos()).expect("a short while");
        let latency = least + Duration::from_nanos(dice.below(spread + 1));
        let mut cut = |of_1000: u64| {
            let comes = dice.below(1_000) < of_1000;
            let (least, most) = self.cut_after;
            let at = least + dice.below(most - least + 1);
            comes.then(|| usize::try_from(at).expect("a few bytes"))
        };
        Fate {
            latency,
            request_cut: cut(self.request_cuts),
            response_cut: cut(self.response_cuts),
        }
    }
}

/// What befalls one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) latency: Duration,
    /// After how many bytes of its body.
    pub(super) request_cut: Option<usize>,
    pub(super) response_cut: Option<usize>,
}

/// The same seed throws the same numbers.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    pub(super) const fn new(seed: u64) -> Dice {
        Dice { seed, thrown: 0 }
    }

    /// A number below this one, or zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.thrown += 1;
        let drawn = well_spread(self.seed.wrapping_add(well_spread(self.thrown)));
        drawn % end.max(1)
    }
}
