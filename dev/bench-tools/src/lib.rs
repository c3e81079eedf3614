//! Only benchmarks: `benches` compares a typed tool with handlers that are written by hand.
