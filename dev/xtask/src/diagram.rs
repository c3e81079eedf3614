//! Draws the state diagram in the README from the transition table. Must not contain a transition, only labels for them.

use core::fmt::Write;

use crate::step::{self, Done, Outcome};

/// The transition table, which a test compares with the machine.
const TABLE: &str = "src/client/lifecycle/table.txt";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```\n";

/// The labels: a state, a cue of the table, and the text. The first match counts; an empty state matches all.
const LABELS: &[(&str, &str, &str)] = &[
    ("idle", "Attempt", "wanted"),
    ("parked", "Attempt", "a call, a wish, a look"),
    ("waiting", "Attempt", "the pause is over"),
    ("", "Agreed", "agreed on a version"),
    ("", "Down", "down"),
    ("", "Drain", "planned end, calls have a while"),
    ("", "Gone(Close)", "gone, shut down"),
    ("", "Gone(Park)", "gone, budget spent"),
    ("", "Gone(Wait)", "gone"),
    ("", "Opened", "open"),
    ("", "Shutdown", "shutdown"),
];

/// Draws the diagram again.
pub(crate) fn run() -> Result<(), String> {
    let (readme, updated) = compare()?;
    if readme != updated {
        step::write("README.md", updated)?;
    }
    Ok(())
}

/// Fails if the diagram does not match the table.
pub(crate) fn check() -> Outcome {
    let (readme, updated) = compare()?;
    if readme == updated {
        Ok(Done::Passed)
    } else {
        Err("the picture in the README is old: run `cargo xtask docs`".into())
    }
}

/// The README as it is, and as it should be.
fn compare() -> Result<(String, String), String> {
    let read = |name: &str| step::read(name);
    let (readme, table) = (read("README.md")?, read(TABLE)?);
    let begin = readme.find(BEGIN).ok_or("the README has no picture")? + BEGIN.len();
    let end = readme[begin..].find(END).ok_or("the picture has no end")? + begin;
    let updated = format!("{}{}{}", &readme[..begin], draw(&table)?, &readme[end..]);
    Ok((readme, updated))
}

fn draw(table: &str) -> Result<String, String> {
    let mut diagram = String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for line in table.lines().skip(1) {
        let [from, event, to] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("{TABLE} has a line that is no transition: {line}"));
        };
        let label = LABELS
            .iter()
            .find(|(state, cue, _)| (state.is_empty() || *state == from) && *cue == event);
        let (_, _, label) =
            label.ok_or_else(|| format!("there are no words for {event} in {from}"))?;
        let (from, to) = (capitalised(from), capitalised(to));
        let _ = writeln!(diagram, "    {from} --> {to}: {label}");
    }
    diagram.push_str("    Closed --> [*]\n");
    Ok(diagram)
}

fn capitalised(state: &str) -> String {
    let mut letters = state.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn each_transition_becomes_a_labelled_arrow() {
        let table = "from on to\nidle Attempt opening\nparked Attempt opening\n";
        let diagram = draw(table).expect("a picture");
        assert!(diagram.contains("Idle --> Opening: wanted\n"), "{diagram}");
        assert!(diagram.contains("Parked --> Opening: a call"), "{diagram}");
        assert!(draw("from on to\nidle Sneeze opening\n").is_err());
        assert!(draw("from on to\nidle Attempt\n").is_err());
    }
}
