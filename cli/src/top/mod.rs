//! Implements `everlink top`: shows the servers behind several guards in a terminal. `stream` reads their status addresses, and `table` formats them.

mod stream;
mod table;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout_at};

use self::stream::{Report, follow};
use self::table::{Guards, lines};
use crate::args::Top;
use crate::output::print;
use crate::screen::Screen;
use crate::{Failure, ShutdownSignals};

/// The time between two drawings.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// How long the guards may take to report when the table is printed once.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: Top) -> Result<ExitCode, Failure> {
    let mut guards = Guards::new(&args.addresses);
    let (sender, mut reports) = mpsc::channel(64);
    for (index, address) in args.addresses.iter().enumerate() {
        tokio::spawn(follow(index, address.clone(), sender.clone()));
    }
    if args.once || args.json || !stdout().is_terminal() {
        return print_once(&args, &mut guards, reports).await;
    }
    let mut signals = ShutdownSignals::listen()?;
    let mut screen = Screen::on_stdout();
    let mut ticks = interval(DRAW_INTERVAL);
    loop {
        tokio::select! {
            Some((index, report)) = reports.recv() => guards.set(index, report),
            _ = ticks.tick() => {
                // The terminal may have another size now.
                screen.resize();
                screen.draw(&lines(&guards, screen.width(), screen.height()))?;
            }
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Prints the table as soon as every guard has reported. Fails if one did not.
async fn print_once(
    args: &Top,
    guards: &mut Guards,
    mut reports: mpsc::Receiver<(usize, Report)>,
) -> Result<ExitCode, Failure> {
    let deadline = Instant::now() + REPORT_TIMEOUT;
    while !guards.all_have_reported() {
        match timeout_at(deadline, reports.recv()).await {
            Ok(Some((index, report))) => guards.set(index, report),
            Ok(None) | Err(_) => break,
        }
        if guards.has_error() {
            // The others get a moment, because they report at the same time.
            sleep_until(Instant::now() + DRAW_INTERVAL).await;
            while let Ok((index, report)) = reports.try_recv() {
                guards.set(index, report);
            }
            break;
        }
    }
    if args.json {
        print(&json!(guards.as_json()))?;
    } else {
        let lines = lines(guards, usize::MAX, usize::MAX);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.render(usize::MAX, false))
            .collect();
        print(&lines.join("\n").trim_end())?;
    }
    Ok(match guards.all_have_reported() && !guards.has_error() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(4),
    })
}
