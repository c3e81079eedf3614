//! What a client does in each scenario.
