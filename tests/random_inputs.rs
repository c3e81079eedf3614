//! Plays random bytes against the rules that the fuzzers check: for servers, for both ends of a link, and for
//! a relay. The seeds are fixed, so every machine sees the same failure.

#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    reason = "a test has std"
)]

/// Plays this many random inputs, the same ones every time.
fn play_random_inputs(inputs: u64, play: fn(&[u8])) {
    for seed in 0..inputs {
        let mut rng = Rng(seed);
        let len = rng.next() % 400;
        let input: Vec<u8> = (0..len).map(|_| (rng.next() >> 32) as u8).collect();
        let played = std::panic::catch_unwind(|| play(&input));
        if let Err(why) = played {
            eprintln!("input {seed}: {input:?}");
            std::panic::resume_unwind(why);
        }
    }
}

/// A pseudo-random generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn server_keeps_the_rules_for_random_inputs() {
    play_random_inputs(1_500, model::server_stdio);
}

#[test]
fn pair_keeps_its_guarantees_for_random_inputs() {
    play_random_inputs(2_000, model::pair);
}

#[test]
fn relay_keeps_its_guarantees_for_random_inputs() {
    play_random_inputs(2_000, model::relay);
}

/// A finding: the server decides to cut an unread response, to make room for another exchange. Before the driver polls the
/// command, the client reads the rest. The command still comes, and that breaks no rule.
#[test]
fn response_read_after_the_decision_to_abort_it_breaks_no_rule() {
    let input = "30e141beaf93a30d832f6525b49f080320ebc91e4db74592c178842b317ca6153aba626d25cfb79f\
        19844b58c02d8efc34d18163f4ec4ec008950fbf20e7b3b9c580a5afd4c095bc2aa665d8408a5f";
    let byte = |at: usize| u8::from_str_radix(&input[at..at + 2], 16).unwrap();
    let input: Vec<u8> = (0..input.len()).step_by(2).map(byte).collect();
    model::server_http(&input);
}

#[test]
fn server_over_http_keeps_the_rules_for_random_inputs() {
    play_random_inputs(1_000, model::server_http);
}
