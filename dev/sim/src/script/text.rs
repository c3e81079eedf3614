//! The lines of a script as text: the setup, and each step.

use std::fmt;
use std::str::FromStr;

use everlink_simulation::{BadScript, number};

use super::{Setup, Step, StepKind};

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            seed,
            shape,
            peer,
            dialect,
            pace,
            room,
        } = self;
        write!(f, "seed {seed} {shape} {peer} {dialect} {pace} {room}")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step {
            after,
            kind,
            parameter,
        } = self;
        match kind {
            StepKind::Do(action) => write!(f, "+{after} do {action} {parameter}"),
            StepKind::Fail(fault) => write!(f, "+{after} fail {fault} {parameter}"),
        }
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
