//! `everlink guard`: a relay between a host and a server.
//!
//! `front` is where the host is if not at the standard streams, `status` what is shown to whoever looks after it, `telling` how it is told what
//! happens.

mod front;
mod status;
mod telling;

use std::process::ExitCode;

use everlink::relay::Config;
use everlink_tokio::stdio::Streams;
use everlink_tokio::{Guard as Handle, Hands, relay, secret};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;
use crate::args::Guard;
use crate::target;

use front::Door;
use status::Window;
use telling::Notice;

pub(crate) async fn run(args: Guard) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut config = Config::new(args.target.config()?, secret());
    let window = match args.status {
        Some(address) => Some(Window::open(address).await?),
        None => None,
    };
    let (guard, door) = match args.listen.as_str() {
        "stdio" => (with_back(config, Streams::take()?, &args)?, None),
        url => {
            let (door, front) = Door::open(url, &args.allow_host).await?;
            config.downstream = config.downstream.with_http(door.http());
            (with_back(config, front, &args)?, Some(door))
        }
    };
    let notices = [
        window
            .as_ref()
            .map(|window| Notice::new("status", window.url())),
        door.as_ref()
            .map(|door| Notice::new("listening", door.url()).with_caution(door.caution())),
    ];
    let notices = notices.into_iter().flatten().collect();
    let told = telling::start(args.log, notices, guard.events())?;
    if let Some(window) = window {
        tokio::spawn(window.show(guard.clone()));
    }
    let listening = door.map(|door| tokio::spawn(door.listen(guard.clone())));
    tokio::select! {
        _ = guard.closed() => {}
        () = asked_to_end(&mut terminate) => tokio::select! {
            ended = guard.shutdown() => ended?,
            // Whoever asks twice does not want to wait for what is in flight.
            () = asked_to_end(&mut terminate) => return Ok(ExitCode::from(4)),
        },
    }
    if let Some(listening) = listening {
        listening.await?;
    }
    told.end().await;
    Ok(ExitCode::SUCCESS)
}

fn with_back(config: Config, front: impl Hands + 'static, args: &Guard) -> Result<Handle, Failure> {
    Ok(match args.target.hands()? {
        target::Hands::Child(back) => relay(config, front, *back)?,
        target::Hands::Http(back) => relay(config, front, *back)?,
    })
}

async fn asked_to_end(terminate: &mut Signal) {
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
