//! Tests that a count fails if the allocator is not installed.

#[test]
#[should_panic(expected = "nothing is counted")]
fn count_panics_if_the_allocator_is_not_installed() {
    alloc_count::count(|| ());
}
