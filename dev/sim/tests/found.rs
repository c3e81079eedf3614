//! Worlds in which a rule was broken once, made small.

use everlink_sim::play;

/// A modern server was replaced by a legacy one, which was taken for alive and refused everything.
#[test]
fn a_server_that_changes_its_era_is_spoken_to_in_it() {
    play(
        "
        seed 21 http modern automatic brisk wide
        +0 fail other-era 0
        +0 do connect 0
        +10 fail stale 0
        ",
    );
}

/// What a server wrote to standard error was told to a client in front that had not called a tool.
#[test]
fn the_last_words_of_a_server_stay_with_its_operator() {
    play(
        "
        seed 8121 http-child legacy automatic brisk wide
        +0 do call 0
        +9 fail stderr 1
        +0 fail mute 1
        +0 do read 0
        +1276 do call 0
        +203 do notify 0
        +0 fail kill 0
        +72 do notify 0
        ",
    );
}

/// A stream of news was given up because a proxy redirected it once.
#[test]
fn a_stream_that_was_there_is_not_given_up_for_a_proxy() {
    play(
        "
        seed 18442 http-http everlink legacy-only interactive tight
        +0 do read 0
        +10 fail asks 0
        +0 fail proxy-status 300807
        +0 fail reset 1
        +112346 do notify 0
        ",
    );
}

/// A stream of news was given up because credentials were wanted for a while.
#[test]
fn a_stream_that_was_there_is_not_given_up_for_credentials() {
    play(
        "
        seed 178686 http everlink legacy-only brisk wide
        +0 do connect 0
        +0 fail clock-back 13231631
        +0 fail clock-back 16642168
        +3592 fail cut-response 0
        +678 fail reset 0
        +0 fail challenge 0
        +1026 fail latency 0
        +1509 fail reset 0
        ",
    );
}

/// The end of the handshake was refused by a proxy, and the server never said anything by itself.
#[test]
fn a_handshake_whose_end_is_refused_is_begun_anew() {
    for status in ["0", "3277141"] {
        play(&format!(
            "
            seed 97415 http everlink legacy-only brisk wide
            +0 do connect 0
            +503 fail clock-back 9934905
            +7988 fail app-error 1
            +0 do call 0
            +942 do call 0
            +5665 do call 0
            +100 do list 0
            +0 do read 0
            +10 fail stale 0
            +0 fail changes 0
            +0 fail clock-back 5722135
            +0 fail clock-back 16446416
            +0 fail down 7242890
            +1832 fail app-error 0
            +0 do call 0
            +0 fail clock-back 1992812
            +5115 do reconnect 0
            +5 fail proxy-status {status}
            +0 do call 0
            +0 do read 0
            +1 do cancel 0
            "
        ));
    }
}
