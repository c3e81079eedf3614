//! Without the allocator a count must not pass for a zero.

#[test]
#[should_panic(expected = "nothing is counted")]
fn counting_refuses_to_start() {
    alloc_count::count(|| ());
}
