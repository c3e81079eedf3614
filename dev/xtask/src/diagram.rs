//! The picture of a link's life in the README, made from the table of its transitions. Knows no transition itself, only words for them.

use core::fmt::Write;
use std::fs;

use crate::step::{Done, Outcome, root};

/// The table, which a test of the machine holds against the machine.
const TABLE: &str = "src/client/lifecycle.txt";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```\n";

/// What happens, for people: from which state, and what the table calls it. The first that fits; an empty state is any.
const WORDS: &[(&str, &str, &str)] = &[
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

/// Draws it anew.
pub(crate) fn run() -> Result<(), String> {
    let (readme, drawn) = compare()?;
    if readme != drawn {
        fs::write(root().join("README.md"), drawn)
            .map_err(|error| format!("the README cannot be written: {error}"))?;
    }
    Ok(())
}

/// Fails where the picture is not that of the table.
pub(crate) fn check() -> Outcome {
    let (readme, drawn) = compare()?;
    if readme == drawn {
        Ok(Done::Passed)
    } else {
        Err("the picture in the README is old: run `cargo xtask docs`".into())
    }
}

/// The README as it is, and as it should be.
fn compare() -> Result<(String, String), String> {
    let read = |name: &str| {
        fs::read_to_string(root().join(name))
            .map_err(|error| format!("{name} cannot be read: {error}"))
    };
    let (readme, table) = (read("README.md")?, read(TABLE)?);
    let begin = readme.find(BEGIN).ok_or("the README has no picture")? + BEGIN.len();
    let end = readme[begin..].find(END).ok_or("the picture has no end")? + begin;
    let drawn = format!("{}{}{}", &readme[..begin], draw(&table)?, &readme[end..]);
    Ok((readme, drawn))
}

fn draw(table: &str) -> Result<String, String> {
    let mut picture = String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for line in table.lines().skip(1) {
        let [from, on, to] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("{TABLE} has a line that is no transition: {line}"));
        };
        let words = WORDS
            .iter()
            .find(|(state, cue, _)| (state.is_empty() || *state == from) && *cue == on);
        let (_, _, words) =
            words.ok_or_else(|| format!("there are no words for {on} in {from}"))?;
        let (from, to) = (capitalised(from), capitalised(to));
        let _ = writeln!(picture, "    {from} --> {to}: {words}");
    }
    picture.push_str("    Closed --> [*]\n");
    Ok(picture)
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
    fn each_transition_is_an_arrow_with_words() {
        let table = "from on to\nidle Attempt opening\nparked Attempt opening\n";
        let picture = draw(table).expect("a picture");
        assert!(picture.contains("Idle --> Opening: wanted\n"), "{picture}");
        assert!(picture.contains("Parked --> Opening: a call"), "{picture}");
        assert!(draw("from on to\nidle Sneeze opening\n").is_err());
        assert!(draw("from on to\nidle Attempt\n").is_err());
    }
}
