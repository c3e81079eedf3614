//! Performs random bytes against the rules that the fuzzers check: for a server, for both ends of a link, and for a
//! relay. The seeds are fixed, so every computer sees the same failure.

#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    reason = "a test has std"
)]

/// Performs this many random scripts, the same ones every time.
fn play_scripts(scripts: u64, play: fn(&[u8])) {
    for seed in 0..scripts {
        let mut random = Random(seed);
        let len = random.next() % 400;
        let script: Vec<u8> = (0..len).map(|_| (random.next() >> 32) as u8).collect();
        let played = std::panic::catch_unwind(|| play(&script));
        if let Err(why) = played {
            eprintln!("script {seed}: {script:?}");
            std::panic::resume_unwind(why);
        }
    }
}

/// A pseudo-random generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn any_server_keeps_the_rules() {
    play_scripts(1_500, model::server_stdio);
}

#[test]
fn any_two_ends_keep_their_promises() {
    play_scripts(2_000, model::pair);
}

#[test]
fn any_relay_keeps_its_promises() {
    play_scripts(2_000, model::relay);
}
