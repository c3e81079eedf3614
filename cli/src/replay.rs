//! Implements `everlink replay`: feeds a recording to a new machine and prints the events.

use std::process::ExitCode;

use crate::Failure;
use crate::args::{Log, Replay};
use crate::guard::telling::Teller;
use crate::shown::{Timeline, as_json, mood};
use crate::tape::{Played, Player};

pub(crate) fn run(args: &Replay) -> Result<ExitCode, Failure> {
    let (recipe, player) = Player::open(&args.file)?;
    if let Some(version) = recipe.other_version() {
        eprintln!(
            "everlink: recorded by everlink {version}; this is everlink {}, which may behave differently",
            env!("CARGO_PKG_VERSION")
        );
    }
    let timeline = Timeline::on_stdout();
    let log = if args.json { Log::Json } else { Log::Text };
    let mut teller = Teller::new(log, Timeline::on_stdout(), recipe.is_process());
    let verdict = player.play(|at, played| match played {
        Played::Link(event) if args.json => timeline.tell_json(at, as_json(event)),
        Played::Link(event) => timeline.tell(at, mood(event), event),
        Played::Relay(event) => teller.tell(at, event),
    })?;
    if verdict.breaks_off {
        eprintln!(
            "everlink: the recording breaks off; whatever wrote it was killed, or the disk was full"
        );
    }
    match verdict.difference {
        None => {
            eprintln!(
                "everlink: {} events, the same as when it was recorded",
                verdict.events
            );
            Ok(ExitCode::SUCCESS)
        }
        Some(difference) => {
            eprintln!("everlink: this is not what was recorded. {difference}");
            Ok(ExitCode::FAILURE)
        }
    }
}
