//! Draws the state diagram in the README from the transition table. Must not contain a transition, only labels for them.

use anyhow::{Context as _, Result, bail};

use crate::step::{self, check_page};

/// The transition table, which a test compares with the machine.
const TABLE: &str = "src/client/lifecycle/table.txt";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```\n";

/// The labels: a state, a cue of the table, and the text. The first match counts; an empty state matches all.
const LABELS: &[(&str, &str, &str)] = &[
    ("idle", "Attempt", "a call or connect"),
    (
        "parked",
        "Attempt",
        "a call, connect or wake, the probe timer",
    ),
    ("waiting", "Attempt", "the pause is over"),
    ("", "Agreed", "agreed on a version"),
    ("", "Down", "down"),
    ("", "Drain", "planned end while calls are in flight"),
    ("", "Gone(Close)", "gone, shut down"),
    ("", "Gone(Park)", "gone, budget spent"),
    ("", "Gone(Wait)", "gone"),
    ("", "Opened", "open"),
    ("", "Shutdown", "shutdown"),
];

/// Draws the diagram again.
pub(crate) fn run() -> Result<()> {
    step::write("README.md", readme()?)
}

/// Fails if the diagram does not match the table.
pub(crate) fn check() -> Result<()> {
    check_page("README.md", &readme()?, "docs")
}

/// The README as it should be.
fn readme() -> Result<String> {
    let (readme, table) = (step::read("README.md")?, step::read(TABLE)?);
    let (before, rest) = readme
        .split_once(BEGIN)
        .context("the README has no picture")?;
    let (_, after) = rest.split_once(END).context("the picture has no end")?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", draw(&table)?))
}

fn draw(table: &str) -> Result<String> {
    let mut diagram = String::from("stateDiagram-v2\n    [*] --> Idle\n");
    for line in table.lines().skip(1) {
        let [from, event, to] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("{TABLE} has a line that is no transition: {line}");
        };
        let mut labels = LABELS.iter().filter(|(_, cue, _)| *cue == event);
        let label = labels.find(|(state, ..)| state.is_empty() || *state == from);
        let (_, _, label) =
            label.with_context(|| format!("there are no words for {event} in {from}"))?;
        let (from, to) = (capitalised(from), capitalised(to));
        diagram += &format!("    {from} --> {to}: {label}\n");
    }
    Ok(diagram + "    Closed --> [*]\n")
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
        assert!(
            diagram.contains("Idle --> Opening: a call or connect\n"),
            "{diagram}"
        );
        assert!(diagram.contains("Parked --> Opening: a call"), "{diagram}");
        assert!(draw("from on to\nidle Sneeze opening\n").is_err());
        assert!(draw("from on to\nidle Attempt\n").is_err());
    }
}
