//! Tests the counters with the allocator installed.

use std::hint::black_box;
use std::thread;

use alloc_count::{Counting, Counts, count, live};

#[global_allocator]
static HEAP: Counting = Counting;

#[test]
fn code_without_allocations_counts_zero() {
    let (sum, counts) = count(|| black_box([1, 2, 3]).iter().sum::<i32>());
    assert_eq!(sum, 6);
    assert_eq!(counts, Counts::default());
}

#[test]
fn each_kind_of_request_is_counted_once() {
    let ((), counts) = count(|| {
        let mut bytes: Vec<u8> = black_box(Vec::with_capacity(10));
        bytes.extend([0; 4]);
        bytes.reserve_exact(26);
        bytes.shrink_to_fit();
        drop(black_box(bytes));
        drop(black_box(vec![0_u8; 100]));
    });
    let expected = Counts {
        allocs: 2,
        reallocs: 2,
        deallocs: 2,
        bytes: 10 + 20 + 100,
        peak_live: 100,
    };
    assert_eq!(counts, expected);
}

#[test]
fn peak_counts_blocks_that_live_at_the_same_time() {
    let ((), one_by_one) = count(|| (0..8).for_each(|_| drop(black_box(vec![0_u8; 50]))));
    let ((), together) = count(|| drop(black_box([0; 8].map(|_| vec![0_u8; 50]))));
    assert_eq!(one_by_one.bytes, together.bytes);
    assert_eq!((one_by_one.peak_live, together.peak_live), (50, 400));
}

#[test]
fn peak_is_relative_to_the_start_of_the_count() {
    let before = black_box(vec![0_u8; 1_000]);
    let ((), counts) = count(|| {
        drop(before);
        drop(black_box(vec![0_u8; 10]));
    });
    assert_eq!(
        (counts.allocs, counts.deallocs, counts.peak_live),
        (1, 2, 0)
    );
}

#[test]
fn outer_count_includes_the_inner_one() {
    let (inner, outer) = count(|| {
        drop(black_box(vec![0_u8; 300]));
        let (_, inner) = count(|| drop(black_box(vec![0_u8; 20])));
        inner
    });
    assert_eq!((inner.allocs, inner.peak_live), (1, 20));
    assert_eq!(outer.peak_live, 300);
    assert!(outer.allocs > inner.allocs);
}

#[test]
fn other_threads_are_not_counted() {
    let ((), counts) = count(|| {
        thread::scope(|scope| {
            scope.spawn(|| drop(black_box(vec![0_u8; 1 << 20])));
        });
    });
    assert!(counts.bytes < 1 << 20, "{counts:?}");
}

#[test]
fn live_bytes_rise_with_allocation_and_fall_with_drop() {
    let before = live();
    let held = black_box(vec![0_u8; 70]);
    assert_eq!(live() - before, 70);
    drop(held);
    assert_eq!(live(), before);
}
