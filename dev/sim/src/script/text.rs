//! Scripts as text: one line for the setup, then one for each step.

use std::fmt;
use std::str::FromStr;

use super::{BadScript, Script, Setup, Step, StepKind};

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            seed,
            shape,
            peer,
            dialect,
            pace,
            room,
        } = &self.setup;
        writeln!(f, "seed {seed} {shape} {peer} {dialect} {pace} {room}")?;
        for act in &self.steps {
            let Step {
                after,
                kind,
                parameter,
            } = act;
            match kind {
                StepKind::Do(action) => writeln!(f, "+{after} do {action} {parameter}")?,
                StepKind::Fail(fault) => writeln!(f, "+{after} fail {fault} {parameter}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = BadScript;

    fn from_str(text: &str) -> Result<Script, BadScript> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let setup = lines.next().unwrap_or_default().parse()?;
        let steps = lines.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Script { setup, steps })
    }
}

impl FromStr for Setup {
    type Err = BadScript;

    fn from_str(line: &str) -> Result<Setup, BadScript> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["seed", seed, shape, peer, dialect, pace, room] = words[..] else {
            let wanted = "seed NUMBER SHAPE PEER DIALECT PACE ROOM";
            return Err(BadScript(format!("`{line}` is not `{wanted}`")));
        };
        Ok(Setup {
            seed: number(seed)?,
            shape: shape.parse()?,
            peer: peer.parse()?,
            dialect: dialect.parse()?,
            pace: pace.parse()?,
            room: room.parse()?,
        })
    }
}

impl FromStr for Step {
    type Err = BadScript;

    fn from_str(line: &str) -> Result<Step, BadScript> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [after, keyword, word, parameter] = words[..] else {
            let wanted = "+MILLISECONDS do|fail WORD NUMBER";
            return Err(BadScript(format!("`{line}` is not `{wanted}`")));
        };
        let kind = match keyword {
            "do" => StepKind::Do(word.parse()?),
            "fail" => StepKind::Fail(word.parse()?),
            _ => return Err(BadScript(format!("`{keyword}` is neither `do` nor `fail`"))),
        };
        let after = number(after.trim_start_matches('+'))?;
        let parameter = number(parameter)?;
        Ok(Step {
            after,
            kind,
            parameter,
        })
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, BadScript> {
    let bad_number = |_| BadScript(format!("`{word}` is no number"));
    word.parse().map_err(bad_number)
}
