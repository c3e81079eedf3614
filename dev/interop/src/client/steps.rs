//! The steps of a meeting with a server, and what must come of each. Knows no particular server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everlink::client::Event;
use everlink::protocol::ClientCapabilities;
use everlink::{Change, Config, Watch};
use everlink_tokio::{Call, CallError, Link, ToolResult};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;

use super::Failure;
use super::ear::{answer_questions, hear};
use super::peer::Peer;
use super::repertoire::{Cancelled, Piece, Repertoire};

/// What a step says of itself when all is well.
type Outcome = Result<String, Failure>;

/// How long to wait before looking again.
const SOON: Duration = Duration::from_millis(20);

/// How often to look where it may be in vain.
const LOOKS: u32 = 100;

pub(super) struct Meeting {
    // Before the peer, which lets go of its process when it is dropped.
    link: Link,
    peer: Peer,
    repertoire: Repertoire,
    began: Instant,
    ready_after: Option<Duration>,
}

impl Meeting {
    pub(super) fn begin(
        peer: Peer,
        repertoire: Repertoire,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Meeting, Failure> {
        let began = Instant::now();
        let link = peer.link(|config| {
            config.capabilities = ClientCapabilities::default()
                .with_elicitation_form()
                .with_roots(false)
                .with_sampling();
            adjust(config);
        })?;
        answer_questions(&link, &repertoire.home);
        Ok(Meeting {
            link,
            peer,
            repertoire,
            began,
            ready_after: None,
        })
    }

    /// In milliseconds, how long it took from the start until the link was ready.
    pub(super) fn ready_after(&self) -> Option<u128> {
        self.ready_after.map(|after| after.as_millis())
    }

    /// What is agreed on at present.
    pub(super) fn version(&self) -> Option<String> {
        let session = self.link.session();
        session.map(|session| session.version.to_string())
    }

    pub(super) async fn step(&mut self, step: &str) -> Outcome {
        match step {
            "handshake" => self.handshake().await,
            "list" => self.list().await,
            "call" => self.call().await,
            "error" => self.error().await,
            "progress" => self.progress().await,
            "cancel" => self.cancel().await,
            "ask" => self.ask().await,
            "watch" => self.watch().await,
            "news" => self.news().await,
            "kill" => self.kill().await,
            other => Err(format!("there is no step `{other}`").into()),
        }
    }

    pub(super) async fn end(self) {
        // All that could be left of the link is gone with it.
        let _ = self.link.shutdown().await;
    }

    async fn handshake(&mut self) -> Outcome {
        self.link.ready().await??;
        self.ready_after = Some(self.began.elapsed());
        Ok(String::new())
    }

    async fn list(&self) -> Outcome {
        let tools = self.link.list_tools().await?;
        let wanted = format!("\"{}\"", self.repertoire.call.tool);
        let is_there = tools
            .items
            .iter()
            .any(|tool| tool.as_str().contains(&wanted));
        expect(is_there, || format!("{wanted} is not in the list"))
    }

    async fn call(&self) -> Outcome {
        self.good(&self.repertoire.call).await
    }

    async fn error(&self) -> Outcome {
        let piece = &self.repertoire.error;
        let text = match self.run(piece).await {
            Ok(result) if result.is_error() => result.text(),
            Ok(result) => return Err(format!("no error: {}", result.text()).into()),
            Err(CallError::Error(error)) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        expect(text.contains(piece.says), || text)
    }

    async fn progress(&self) -> Outcome {
        let piece = known(self.repertoire.progress.as_ref())?;
        let reports = Arc::<Mutex<Vec<f64>>>::default();
        let seen = Arc::clone(&reports);
        let call = self.run(piece).on_progress(move |report| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(report.progress);
        });
        says(&call.await?, piece)?;
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        expect(*reports == [1.0, 2.0, 3.0], || format!("{reports:?}"))
    }

    async fn cancel(&self) -> Outcome {
        match &self.repertoire.cancelled {
            Cancelled::Noted(piece) => {
                self.cancel_long(&self.link).await?;
                while !self.run(piece).await?.text().contains(piece.says) {
                    sleep(SOON).await;
                }
            }
            Cancelled::Unanswered(after) => {
                let says = known(self.repertoire.long.as_ref())?.says;
                let is_answered = match self.peer.tapped_link().await? {
                    // A link over HTTP does not listen any more where the answer would come.
                    Some((tap, link)) => {
                        self.cancel_long(&link).await?;
                        sleep(*after).await;
                        tap.has_heard(says)
                    }
                    None => {
                        let before = self.link.stats().await?.late_replies;
                        self.cancel_long(&self.link).await?;
                        sleep(*after).await;
                        self.link.stats().await?.late_replies != before
                    }
                };
                expect(!is_answered, || "it was answered all the same".to_owned())?;
            }
        }
        Ok(String::new())
    }

    /// Cancels a call on this link that has begun.
    async fn cancel_long(&self, link: &Link) -> Outcome {
        let (call, mut begun) = self.run_long(link)?;
        let canceller = call.canceller();
        let call = tokio::spawn(call);
        begun.recv().await.ok_or("it did not begin")?;
        canceller.cancel("enough");
        let ended = call.await?;
        expect(ended.is_err(), || "it was not cancelled".to_owned())
    }

    /// A server that asks by itself shows only after a while what it makes of the answer.
    async fn ask(&self) -> Outcome {
        let piece = known(self.repertoire.ask.as_ref())?;
        let mut outcome = self.good(piece).await;
        for _ in 0..LOOKS {
            if outcome.is_ok() {
                break;
            }
            sleep(SOON).await;
            outcome = self.good(piece).await;
        }
        outcome
    }

    async fn watch(&self) -> Outcome {
        let (watched, piece) = known(self.repertoire.watch.as_ref())?;
        let mut events = self.link.events();
        self.link.watch(Watch::lists().and_uri(*watched));
        let granted = |event: &Event| match event {
            Event::Watching { granted, .. } => granted.added.contains(*watched).then_some(()),
            _ => None,
        };
        hear(&mut events, granted).await?;
        self.good(piece).await?;
        let change = Change::Resource {
            uri: (*watched).into(),
        };
        hear(&mut events, |event| told(event, &change)).await?;
        Ok(String::new())
    }

    async fn news(&self) -> Outcome {
        let (list, name, piece) = known(self.repertoire.news.as_ref())?;
        self.link.list(*list).await?;
        let mut events = self.link.events();
        self.good(piece).await?;
        hear(&mut events, |event| told(event, &Change::List(*list))).await?;
        let listing = self.link.list(*list).await?;
        let is_there = listing
            .items
            .iter()
            .any(|item| item.as_str().contains(name));
        expect(is_there, || format!("{name} is not in the list"))
    }

    /// The server dies under a call: that is told, and the next call works.
    async fn kill(&mut self) -> Outcome {
        let call = if self.repertoire.long.is_some() {
            let (call, mut begun) = self.run_long(&self.link)?;
            let call = tokio::spawn(call);
            begun.recv().await.ok_or("it did not begin")?;
            call
        } else {
            // Whatever it is asked now, it cannot answer.
            self.peer.stop()?;
            let before = self.link.stats().await?.messages_out;
            let call = tokio::spawn(self.run(&self.repertoire.call));
            while self.link.stats().await?.messages_out == before {
                sleep(SOON).await;
            }
            call
        };
        self.peer.kill().await?;
        self.peer.revive().await?;
        let told = match call.await? {
            Ok(result) => return Err(format!("it has a result: {}", result.text()).into()),
            Err(error) => error.to_string(),
        };
        let is_told =
            told.contains("may have run") && (!self.peer.is_child() || told.contains("SIGKILL"));
        expect(is_told, || told.clone())?;
        self.call().await?;
        Ok(told)
    }

    /// A call that must go well.
    async fn good(&self, piece: &Piece) -> Outcome {
        says(&self.run(piece).await?, piece)
    }

    fn run(&self, piece: &Piece) -> Call<ToolResult> {
        self.link.call_tool(piece.tool, &piece.arguments)
    }

    /// A call that takes long, and what tells that it has begun.
    fn run_long(&self, link: &Link) -> Result<(Call<ToolResult>, UnboundedReceiver<()>), Failure> {
        let piece = known(self.repertoire.long.as_ref())?;
        let (tell, begun) = unbounded_channel();
        let call = link.call_tool(piece.tool, &piece.arguments);
        let call = call.on_progress(move |_| {
            // Nobody waits for more than the first.
            let _ = tell.send(());
        });
        Ok((call, begun))
    }
}

fn known<T>(piece: Option<&T>) -> Result<&T, Failure> {
    piece.ok_or_else(|| "there is nothing to call for it".into())
}

fn told(event: &Event, wanted: &Change) -> Option<()> {
    match event {
        Event::Changed(change) => (change == wanted).then_some(()),
        _ => None,
    }
}

fn says(result: &ToolResult, piece: &Piece) -> Outcome {
    let text = result.text();
    let is_good = !result.is_error() && text.contains(piece.says);
    expect(is_good, || text)
}

fn expect(is_so: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is_so {
        Ok(String::new())
    } else {
        Err(otherwise().into())
    }
}
