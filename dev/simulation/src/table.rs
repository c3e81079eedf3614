//! What a transition table allows: single transitions, and pairs of them, one after the other. Must not know the states.

use std::collections::BTreeSet;

use crate::Simulation;

/// A state, a cause and the next state.
type Row = [&'static str; 3];

/// The rows of the table. The first column may be `any`, or `any other`.
fn rows<S: Simulation>() -> impl Iterator<Item = Row> {
    S::TABLE.lines().skip(1).filter_map(|line| {
        let columns = line.split("  ").map(str::trim);
        let columns: Vec<&str> = columns.filter(|column| !column.is_empty()).collect();
        columns.try_into().ok()
    })
}

/// The rows that runs can take, those of `any` state excepted.
pub(crate) fn possible_rows<S: Simulation>() -> Vec<Row> {
    let is_possible =
        |[from, on, to]: &Row| !from.starts_with("any") && S::why_not_taken(from, on, to).is_none();
    rows::<S>().filter(is_possible).collect()
}

/// The rows that no run can take, each with the reason.
pub(crate) fn impossible_rows<S: Simulation>() -> Vec<(Row, &'static str)> {
    let with_reason = |row @ [from, on, to]: Row| Some((row, S::why_not_taken(from, on, to)?));
    rows::<S>().filter_map(with_reason).collect()
}

/// All pairs of transitions that the table allows, one after the other, as three states.
pub(crate) fn pairs<S: Simulation>() -> BTreeSet<Row> {
    let possible = possible_rows::<S>();
    let states = possible.iter().flat_map(|[from, _, to]| [*from, *to]);
    let states: BTreeSet<&str> = states.collect();
    let mut edges: BTreeSet<[&str; 2]> =
        possible.iter().map(|[from, _, to]| [*from, *to]).collect();
    for [_, on, to] in rows::<S>().filter(|[from, ..]| from.starts_with("any")) {
        let others = states.iter().filter(|from| **from != to);
        let others = others.filter(|from| S::why_not_taken(from, on, to).is_none());
        edges.extend(others.map(|from| [*from, to]));
    }
    let next = |[one, two]: [&'static str; 2]| {
        let next = edges.iter().filter(move |[from, _]| *from == two);
        next.map(move |[_, three]| [one, two, *three])
    };
    edges.iter().flat_map(|edge| next(*edge)).collect()
}
