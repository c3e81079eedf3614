//! Scripts that broke a rule once, shrunk.

use everlink_fleet_sim::play;

/// A server that got its lease back served sessions that another server had taken over.
#[test]
fn a_server_that_got_its_lease_back_asks_whose_the_sessions_are() {
    play(
        "
        seed 9
        +100 cut-off 21 7844
        +587 break 43 200
        ",
    );
}
