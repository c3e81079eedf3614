//! The faults of a network, drawn from a seed. Knows neither ends nor messages.

use std::time::Duration;

use crate::pipe::mix;

/// What a network does to exchanges. By default nothing: everything arrives, at once and whole.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NetworkFaults {
    /// The shortest and the longest latency, drawn for each exchange. So exchanges overtake each other; the parts of one never do.
    pub latency: (Duration, Duration),
    /// How many of 1,000 requests are cut.
    pub request_cuts: u64,
    /// How many of 1,000 responses are cut.
    pub response_cuts: u64,
    /// After how many bytes, at least and at most, a cut comes.
    pub cut_after: (u64, u64),
    /// Whether bodies arrive in pieces.
    pub chops: bool,
    /// Whether a proxy passes a response on only when all of it is there.
    pub buffers: bool,
    /// After how much silence a proxy cuts an exchange.
    pub cuts_idle: Option<Duration>,
}

impl NetworkFaults {
    /// No faults.
    #[must_use]
    pub fn none() -> NetworkFaults {
        NetworkFaults::default()
    }

    /// Exchanges take time, overtake each other and arrive in pieces.
    #[must_use]
    pub fn slow() -> NetworkFaults {
        NetworkFaults {
            latency: (Duration::from_millis(1), Duration::from_millis(80)),
            chops: true,
            ..NetworkFaults::none()
        }
    }

    /// And so many of 1,000 responses are cut, after so many bytes at least and at most.
    #[must_use]
    pub fn cutting(mut self, responses: u64, after: (u64, u64)) -> NetworkFaults {
        (self.response_cuts, self.cut_after) = (responses, after);
        self
    }

    /// And so many of 1,000 requests.
    #[must_use]
    pub fn cutting_requests(mut self, requests: u64) -> NetworkFaults {
        self.request_cuts = requests;
        self
    }

    /// The faults of one exchange.
    pub(super) fn draw(&self, random: &mut Random) -> Plan {
        let (least, most) = self.latency;
        let spread = u64::try_from((most - least).as_nanos()).expect("a short while");
        let latency = least + Duration::from_nanos(random.below(spread + 1));
        let mut cut = |of_1000: u64| {
            let comes = random.below(1_000) < of_1000;
            let (least, most) = self.cut_after;
            let at = least + random.below(most - least + 1);
            comes.then(|| usize::try_from(at).expect("a few bytes"))
        };
        Plan {
            latency,
            request_cut: cut(self.request_cuts),
            response_cut: cut(self.response_cuts),
        }
    }
}

/// The faults of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) latency: Duration,
    /// After how many bytes of its body.
    pub(super) request_cut: Option<usize>,
    pub(super) response_cut: Option<usize>,
}

/// A generator of random numbers from a seed.
#[derive(Clone, Debug)]
pub(super) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(super) const fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    /// A number below this one, or zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.drawn += 1;
        let number = mix(self.seed.wrapping_add(mix(self.drawn)));
        number % end.max(1)
    }
}
