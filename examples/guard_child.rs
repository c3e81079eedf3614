//! A relay between its own standard streams and a child process, with std alone:
//! `cargo run --example guard_child -- COMMAND [ARGUMENT]...`
//!
//! Put it before the command of a server in the configuration of a host: the server may crash, and the host keeps its
//! connection.

#![allow(clippy::std_instead_of_core, reason = "a program with std")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the rest is only told")]

use std::sync::mpsc::channel;

use everlink::relay::{Config, Relay, Side};
use everlink::{Arc, Epoch, Input, Instant, Output, StreamId};

mod pipes;

/// What a thread reports: something of the host, or of one epoch of the server.
enum News {
    Host(Input<'static>),
    Server(Epoch, Input<'static>),
}

impl From<(Epoch, Input<'static>)> for News {
    fn from((epoch, input): (Epoch, Input<'static>)) -> News {
        News::Server(epoch, input)
    }
}

fn main() {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let start = std::time::Instant::now();
    let clock = || Instant::from_origin(start.elapsed());
    let upstream = everlink::Config::child("guard_child", "1.0");
    let mut relay = Relay::new(Config::new(upstream, pipes::secret()));
    let (sender, news) = channel();
    let host = sender.clone();
    let (host_gate, server_gate) = (Arc::<pipes::Gate>::default(), Arc::default());
    pipes::listen(&host_gate, move |input| drop(host.send(News::Host(input))));

    let (mut to_server, mut pid, mut buf) = (None, 0, Vec::new());
    while !relay.is_closed() {
        let wait = relay.poll_timeout().map(|due| due.at.since(clock()));
        let heard = match wait {
            Some(wait) => news.recv_timeout(wait).ok(),
            None => news.recv().ok(),
        };
        for news in heard.into_iter().chain(news.try_iter()) {
            match news {
                News::Host(input) => relay.handle_downstream(clock(), input),
                News::Server(epoch, input) => relay.handle_upstream(clock(), epoch, input),
            }
        }
        relay.handle_timeout(clock());
        while let Some((side, output)) = relay.poll_output(&mut buf) {
            match (side, output) {
                (Side::Downstream, Output::Write { len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    relay.handle_downstream(clock(), pipes::say(&line));
                }
                (Side::Upstream, Output::Open { epoch }) => {
                    let input = match pipes::open(&command, epoch, &server_gate, &sender) {
                        Ok((stdin, id)) => {
                            (to_server, pid) = (Some(stdin), id);
                            Input::Opened
                        }
                        Err(error) => Input::open_failed(vec![error.into()]),
                    };
                    relay.handle_upstream(clock(), epoch, input);
                }
                (Side::Upstream, Output::Write { len, .. }) => {
                    let line = buf.split_off(buf.len() - len);
                    let _ = to_server.as_ref().map(|stdin| stdin.send(line));
                }
                (Side::Upstream, Output::CloseWrite { .. } | Output::Release { .. }) => {
                    to_server = None;
                }
                (Side::Upstream, Output::Terminate { .. }) => pipes::signal("-TERM", pid),
                (Side::Upstream, Output::Kill { .. }) => pipes::signal("-KILL", pid),
                (_, Output::Event(event)) => eprintln!("{:?} {event:?}", clock()),
                (_, _) => {}
            }
        }
        host_gate.set(relay.wants_input(Side::Downstream, StreamId::DUPLEX));
        server_gate.set(relay.wants_input(Side::Upstream, StreamId::DUPLEX));
    }
}
