//! The steps with a server, and the check of each. Must not depend on a particular server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use everlink::client::Event;
use everlink::protocol::ClientCapabilities;
use everlink::{Change, Config, Watch};
use everlink_tokio::{Call, CallBuilder, CallError, Link, ToolResult};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;

use super::Failure;
use super::events::{answer_questions, wait_for};
use super::peer::Peer;
use super::tools::{Cancelled, ToolCall, Tools};

/// The note of a step that passed, or its error.
type Outcome = Result<String, Failure>;

/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The number of polls for a result that may never come.
const MAX_POLLS: u32 = 100;

pub(super) struct StepRunner {
    // Declared before the peer: the link must be dropped first, because the peer kills its process when dropped.
    link: Link,
    peer: Peer,
    tools: Tools,
    began: Instant,
    ready_after: Option<Duration>,
}

impl StepRunner {
    pub(super) fn begin(
        peer: Peer,
        tools: Tools,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<StepRunner, Failure> {
        let began = Instant::now();
        let link = peer.link(|config| {
            config.capabilities = ClientCapabilities::default()
                .with_elicitation_form()
                .with_roots(false)
                .with_sampling();
            adjust(config);
        })?;
        answer_questions(&link, &tools.home);
        Ok(StepRunner {
            link,
            peer,
            tools,
            began,
            ready_after: None,
        })
    }

    /// The time from the start until the link was ready, in milliseconds.
    pub(super) fn ready_after(&self) -> Option<u128> {
        self.ready_after.map(|after| after.as_millis())
    }

    /// The version of the current session.
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
            "news" => self.list_change().await,
            "kill" => self.kill().await,
            other => Err(format!("there is no step `{other}`").into()),
        }
    }

    pub(super) async fn end(self) {
        // A link that fails to shut down is gone, too.
        let _ = self.link.shutdown().await;
    }

    async fn handshake(&mut self) -> Outcome {
        self.link.ready().await?;
        self.ready_after = Some(self.began.elapsed());
        Ok(String::new())
    }

    async fn list(&self) -> Outcome {
        let tools = self.link.list_tools().await?;
        let wanted = format!("\"{}\"", self.tools.call.tool);
        let is_there = tools
            .items
            .iter()
            .any(|tool| tool.as_str().contains(&wanted));
        ensure(is_there, || format!("{wanted} is not in the list"))
    }

    async fn call(&self) -> Outcome {
        self.call_ok(&self.tools.call).await
    }

    async fn error(&self) -> Outcome {
        let tool_call = &self.tools.error;
        let text = match self.run(tool_call).await {
            Ok(result) if result.is_error() => result.text(),
            Ok(result) => return Err(format!("no error: {}", result.text()).into()),
            Err(CallError::Error(error)) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        ensure(text.contains(tool_call.expected_text), || text)
    }

    async fn progress(&self) -> Outcome {
        let tool_call = required(self.tools.progress.as_ref())?;
        let reports = Arc::<Mutex<Vec<f64>>>::default();
        let seen = Arc::clone(&reports);
        let call = self.run(tool_call).on_progress(move |report| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(report.progress);
        });
        expect_text(&call.await?, tool_call)?;
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(*reports == [1.0, 2.0, 3.0], || format!("{reports:?}"))
    }

    async fn cancel(&self) -> Outcome {
        match &self.tools.cancelled {
            Cancelled::Noted(tool_call) => {
                self.cancel_long(&self.link).await?;
                while !self
                    .run(tool_call)
                    .await?
                    .text()
                    .contains(tool_call.expected_text)
                {
                    sleep(POLL_INTERVAL).await;
                }
            }
            Cancelled::Unanswered(after) => {
                let expected_text = required(self.tools.long.as_ref())?.expected_text;
                let is_answered = match self.peer.recorded_link().await? {
                    // Over HTTP, the link closes the stream on which the answer would come.
                    Some((recording_proxy, link)) => {
                        self.cancel_long(&link).await?;
                        sleep(*after).await;
                        recording_proxy.has_received(expected_text)
                    }
                    None => {
                        let before = self.link.stats().await?.late_replies;
                        self.cancel_long(&self.link).await?;
                        sleep(*after).await;
                        self.link.stats().await?.late_replies != before
                    }
                };
                ensure(!is_answered, || "it was answered all the same".to_owned())?;
            }
        }
        Ok(String::new())
    }

    /// Cancels a call on this link after it has started.
    async fn cancel_long(&self, link: &Link) -> Outcome {
        let (call, mut started) = self.run_long(link)?;
        let canceller = call.canceller();
        let call = tokio::spawn(call);
        started.recv().await.ok_or("it did not begin")?;
        canceller.cancel("enough");
        let ended = call.await?;
        ensure(ended.is_err(), || "it was not cancelled".to_owned())
    }

    /// Polls, because a server that asks on its own needs a moment to apply the answer.
    async fn ask(&self) -> Outcome {
        let tool_call = required(self.tools.ask.as_ref())?;
        let mut outcome = self.call_ok(tool_call).await;
        for _ in 0..MAX_POLLS {
            if outcome.is_ok() {
                break;
            }
            sleep(POLL_INTERVAL).await;
            outcome = self.call_ok(tool_call).await;
        }
        outcome
    }

    async fn watch(&self) -> Outcome {
        let (watched, tool_call) = required(self.tools.watch.as_ref())?;
        let mut events = self.link.events();
        self.link.watch(Watch::lists().and_uri(*watched));
        let granted = |event: &Event| match event {
            Event::Watching { granted, .. } => granted.added.contains(*watched).then_some(()),
            _ => None,
        };
        wait_for(&mut events, granted).await?;
        self.call_ok(tool_call).await?;
        let change = Change::Resource {
            uri: (*watched).into(),
        };
        wait_for(&mut events, |event| is_change(event, &change)).await?;
        Ok(String::new())
    }

    async fn list_change(&self) -> Outcome {
        let (list, name, tool_call) = required(self.tools.list_change.as_ref())?;
        self.link.list(*list).await?;
        let mut events = self.link.events();
        self.call_ok(tool_call).await?;
        wait_for(&mut events, |event| is_change(event, &Change::List(*list))).await?;
        let listing = self.link.list(*list).await?;
        let is_there = listing
            .items
            .iter()
            .any(|item| item.as_str().contains(name));
        ensure(is_there, || format!("{name} is not in the list"))
    }

    /// Kills the server during a call: the call must fail, and the next call must work.
    async fn kill(&mut self) -> Outcome {
        let call = if self.tools.long.is_some() {
            let (call, mut started) = self.run_long(&self.link)?;
            let call = tokio::spawn(call);
            started.recv().await.ok_or("it did not begin")?;
            call
        } else {
            // A stopped server cannot answer.
            self.peer.stop()?;
            let before = self.link.stats().await?.messages_out;
            let call = tokio::spawn(self.run(&self.tools.call).start());
            while self.link.stats().await?.messages_out == before {
                sleep(POLL_INTERVAL).await;
            }
            call
        };
        self.peer.kill().await?;
        self.peer.restart().await?;
        let failure = match call.await? {
            Ok(result) => return Err(format!("it has a result: {}", result.text()).into()),
            Err(error) => error.to_string(),
        };
        let is_reported = failure.contains("may have run")
            && (!self.peer.is_child() || failure.contains("SIGKILL"));
        ensure(is_reported, || failure.clone())?;
        self.call().await?;
        Ok(failure)
    }

    /// Makes a call that must succeed.
    async fn call_ok(&self, tool_call: &ToolCall) -> Outcome {
        expect_text(&self.run(tool_call).await?, tool_call)
    }

    fn run(&self, tool_call: &ToolCall) -> CallBuilder<ToolResult> {
        self.link.call_tool(tool_call.tool, &tool_call.arguments)
    }

    /// Makes a call that takes long, and returns a receiver for its start.
    fn run_long(&self, link: &Link) -> Result<(Call<ToolResult>, UnboundedReceiver<()>), Failure> {
        let tool_call = required(self.tools.long.as_ref())?;
        let (report_start, started) = unbounded_channel();
        let call = link.call_tool(tool_call.tool, &tool_call.arguments);
        let call = call.on_progress(move |_| {
            // Only the first report counts; the receiver may be gone.
            let _ = report_start.send(());
        });
        Ok((call.start(), started))
    }
}

fn required<T>(tool_call: Option<&T>) -> Result<&T, Failure> {
    tool_call.ok_or_else(|| "there is nothing to call for it".into())
}

fn is_change(event: &Event, wanted: &Change) -> Option<()> {
    match event {
        Event::Changed(change) => (change == wanted).then_some(()),
        _ => None,
    }
}

fn expect_text(result: &ToolResult, tool_call: &ToolCall) -> Outcome {
    let text = result.text();
    let is_good = !result.is_error() && text.contains(tool_call.expected_text);
    ensure(is_good, || text)
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if condition {
        Ok(String::new())
    } else {
        Err(otherwise().into())
    }
}
