//! The servers behind the relay: real server ends with one application that supports every kind of exchange. Depends
//! on neither the relay nor the host.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use everlink::protocol::{Era, LogLevel, ServerCapabilities, ServerFeature, Version, Versions};
use everlink::server::{self, Cancelled, Event, Misuse, Offer, Progress, Request, Server};
use everlink::{AskId, Change, ErrorObject, Instant, List, RequestId};
use serde_json::{Value, json};

use super::{payload, seconds};

/// The behaviour of the server in one epoch.
pub(crate) enum Backend {
    /// The server cannot be opened at present.
    Unreachable,
    /// The process exits as soon as it is started.
    ExitsAtOnce,
    /// The server cannot be opened because its program does not exist.
    NoSuchProgram,
    /// The server opens and never writes anything.
    Mute,
    /// The server serves requests.
    Serving(Box<Serving>),
}

pub(crate) struct Serving {
    pub(crate) config: server::Config,
    pub(crate) service: Service,
}

impl Backend {
    /// A server that supports the versions of this era and offers everything.
    pub(crate) fn of(era: Era) -> Backend {
        Backend::with_versions(match era {
            Era::Modern => Versions::MODERN,
            _ => Versions::LEGACY,
        })
    }

    /// A server that supports only this version and offers everything.
    pub(crate) fn of_version(version: Version) -> Backend {
        Backend::with_versions(Versions::only(version))
    }

    fn with_versions(versions: Versions) -> Backend {
        let offer = Offer::new("shop", "1")
            .with_capabilities(all_capabilities())
            .with_instructions("ask for anything");
        let mut config = server::Config::new(offer, [3; 16]);
        config.versions = versions;
        config.unknown_methods = server::UnknownMethods::Delivered;
        let service = Service::default();
        Backend::Serving(Box::new(Serving { config, service }))
    }

    /// Changes the configuration or the application of the server.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Serving)) -> Backend {
        if let Backend::Serving(serving) = &mut self {
            change(serving);
        }
        self
    }

    /// Sets the tools on its list.
    pub(crate) fn listing(self, tools: &[&str]) -> Backend {
        let tools = tools.iter().map(|tool| (*tool).into()).collect();
        self.with(|serving| serving.service.tools = tools)
    }

    /// Limits its offer to these capabilities.
    pub(crate) fn offering(self, capabilities: ServerCapabilities) -> Backend {
        self.with(|serving| {
            let offer = serving.config.offer.take();
            serving.config.offer = offer.map(|offer| offer.with_capabilities(capabilities));
        })
    }
}

pub(crate) fn all_capabilities() -> ServerCapabilities {
    static ALL: LazyLock<ServerCapabilities> = LazyLock::new(|| {
        ServerCapabilities::default()
            .with_tools(true)
            .with_prompts(true)
            .with_resources(true, true)
            .with_completions()
            .with_logging()
            .with(ServerFeature::TasksToolsCall)
            .with(ServerFeature::TasksCancel)
            .with(ServerFeature::TasksList)
            .with(ServerFeature::TasksExtension)
    });
    ALL.clone()
}

/// The application of one epoch.
pub(crate) struct Service {
    /// The number of the epoch.
    pub(super) epoch: u64,
    pub(crate) tools: Vec<String>,
    /// Whether a page of the tool list has only one tool.
    pub(crate) one_tool_per_page: bool,
    pub(crate) resources: Vec<String>,
    /// The parameters of the unanswered tool calls.
    running: BTreeMap<RequestId, Value>,
    /// The request that each ask belongs to.
    open_asks: BTreeMap<AskId, RequestId>,
    /// The answers so far to the asks of a request.
    answers: BTreeMap<RequestId, Vec<Value>>,
    /// The planned actions, by time and then by the order in which they were planned.
    schedule: BTreeMap<(Instant, u64), PlannedAction>,
    scheduled_count: u64,
    /// The one-way events that the server received.
    pub(super) received: Vec<String>,
    /// Whether the server dies after its present output.
    pub(super) is_crashing: bool,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            epoch: 0,
            tools: vec!["echo".into(), "count".into()],
            one_tool_per_page: false,
            resources: vec!["file:///a".into()],
            running: BTreeMap::new(),
            open_asks: BTreeMap::new(),
            answers: BTreeMap::new(),
            schedule: BTreeMap::new(),
            scheduled_count: 0,
            received: Vec::new(),
            is_crashing: false,
        }
    }
}

enum PlannedAction {
    Progress(RequestId, f64),
    Reply(RequestId),
    Withdraw(AskId),
}

/// The number of progress reports that `count` makes, one each second.
pub(crate) const PROGRESS_REPORTS: u32 = 3;

impl Service {
    /// The time of the next planned action.
    pub(super) fn due(&self) -> Option<Instant> {
        self.schedule.keys().next().map(|(at, _)| *at)
    }

    /// Performs the actions that are due.
    pub(super) fn perform_due(&mut self, server: &mut Server, now: Instant) {
        while let Some(entry) = self.schedule.first_entry() {
            if entry.key().0 > now {
                return;
            }
            match entry.remove() {
                PlannedAction::Progress(request, so_far) => {
                    let progress = Progress::new(so_far)
                        .of(f64::from(PROGRESS_REPORTS))
                        .with_message(format!("{so_far} of {PROGRESS_REPORTS}"));
                    allow_unknown_request(server.progress(now, request, progress));
                }
                PlannedAction::Reply(request) => self.echo(server, now, request),
                PlannedAction::Withdraw(ask) => {
                    let _ = server.withdraw(now, ask, None);
                }
            }
        }
    }

    pub(super) fn event(&mut self, server: &mut Server, now: Instant, event: Event) {
        match event {
            Event::Request(request) => self.request(server, now, request),
            Event::Cancelled { request, why } => {
                if let (Some(call), Cancelled::ByPeer { reason, .. }) =
                    (self.running.remove(&request), why)
                {
                    let reason = reason.unwrap_or_default();
                    self.received
                        .push(format!("cancelled {}: {reason}", call["name"]));
                }
            }
            Event::Answered { ask, outcome, .. } => {
                let answer = match outcome {
                    Ok(answer) => answer.parse().expect("an answer is JSON"),
                    Err(why) => json!({"unanswered": why.to_string()}),
                };
                self.record_answer(server, now, ask, answer);
            }
            Event::Notified { method, params, .. } => {
                let params = params.as_ref().map_or("", |params| params.as_str());
                self.received
                    .push(format!("{method} {params}").trim().into());
            }
            Event::Watching(_) => {
                let watch = server.watched();
                self.received.push(format!("watching {watch:?}"));
            }
            Event::Met(peer) => self.received.push(format!("met {:?}", peer.capabilities)),
            _ => {}
        }
    }

    fn request(&mut self, server: &mut Server, now: Instant, request: Request) {
        let id = request.request;
        let params: Value = request.params.as_ref().map_or(Value::Null, |params| {
            params.parse().expect("parameters are JSON")
        });
        let result = match &*request.method {
            "tools/call" if !params["task"].is_null() => json!({"task": task("working")}),
            "tools/call" => {
                self.running.insert(id, params.clone());
                return self.tool(server, now, id, &params);
            }
            "prompts/get" if params["name"] == "form in the second life" && self.epoch == 1 => {
                return;
            }
            "prompts/get"
                if params["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("form")) =>
            {
                self.running.insert(id, params);
                return self.ask(server, now, id, "elicitation/create");
            }
            "prompts/get" if params["name"] == "crash" => {
                self.is_crashing = true;
                return;
            }
            "prompts/get" => {
                let text = format!("{} by life {}", params["name"], self.epoch);
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
            }
            "resources/read" if params["uri"] == "file:///missing" => {
                let error = ErrorObject::new(-32_002, "there is no such resource");
                return server.fail(now, id, error).expect("the request is open");
            }
            "resources/read" => json!({"contents": [{"uri": params["uri"], "text": "so it says"}]}),
            "completion/complete" => {
                json!({"completion": {"values": [params["argument"]["value"]]}})
            }
            "tools/list" => {
                let of = |name: &String| json!({"name": name, "inputSchema": {"type": "object"}});
                let tools: Vec<Value> = self.tools.iter().map(of).collect();
                let next = params["cursor"].as_str().map_or(0, |cursor| cursor.len());
                match tools.get(next).filter(|_| self.one_tool_per_page) {
                    Some(tool) if next + 1 < tools.len() => {
                        json!({"tools": [tool], "nextCursor": "x".repeat(next + 1)})
                    }
                    Some(tool) => json!({"tools": [tool]}),
                    None => json!({"tools": tools}),
                }
            }
            "prompts/list" => json!({"prompts": [{"name": "greet"}]}),
            "resources/list" => {
                let of = |uri: &String| json!({"uri": uri, "name": uri});
                json!({"resources": self.resources.iter().map(of).collect::<Vec<_>>()})
            }
            "resources/templates/list" => {
                json!({"resourceTemplates": [{"uriTemplate": "file:///{name}", "name": "any"}]})
            }
            "tasks/get" => task("completed"),
            "tasks/list" => json!({"tasks": [task("completed")]}),
            "tasks/result" => text_result(format!("a task of life {}", self.epoch)),
            "tasks/cancel" => task("cancelled"),
            "tasks/update" => json!({}),
            _ => json!({"method": request.method, "params": params}),
        };
        server
            .respond(now, id, payload(&result))
            .expect("the result fits");
    }

    fn tool(&mut self, server: &mut Server, now: Instant, id: RequestId, call: &Value) {
        let arguments = &call["arguments"];
        let sent = match call["name"].as_str().unwrap_or_default() {
            "wait" => return,
            "nap" => {
                let span = seconds(arguments["seconds"].as_u64().unwrap_or(1));
                return self.schedule_action(now + span, PlannedAction::Reply(id));
            }
            "count" => {
                for number in 1..=PROGRESS_REPORTS {
                    let at = now + seconds(u64::from(number - 1));
                    self.schedule_action(at, PlannedAction::Progress(id, f64::from(number)));
                }
                let end = now + seconds(u64::from(PROGRESS_REPORTS));
                return self.schedule_action(end, PlannedAction::Reply(id));
            }
            "form" => return self.ask(server, now, id, "elicitation/create"),
            "sample" => return self.ask(server, now, id, "sampling/createMessage"),
            "roots" => return self.ask(server, now, id, "roots/list"),
            "both" => {
                self.ask(server, now, id, "elicitation/create");
                return self.ask(server, now, id, "sampling/createMessage");
            }
            // Like `form`, but does not wait for the answer.
            "form and go on" => {
                self.ask(server, now, id, "elicitation/create");
                return self.schedule_action(now + seconds(1), PlannedAction::Reply(id));
            }
            // Like `form`, but withdraws the ask.
            "form and withdraw" => {
                self.ask(server, now, id, "elicitation/create");
                if let Some((ask, _)) = self.open_asks.iter().find(|(_, of)| **of == id) {
                    self.schedule_action(now + seconds(1), PlannedAction::Withdraw(*ask));
                }
                return;
            }
            // Like `form`, but the ask belongs to no request.
            "blurt" => {
                let asked = server.ask_unbidden(
                    now,
                    "elicitation/create",
                    Some(payload(&ask_params("elicitation/create"))),
                );
                return self.track_ask(server, now, id, asked);
            }
            // Like `blurt`, but the call is finished before the ask.
            "blurt and go on" => {
                self.echo(server, now, id);
                let params = payload(&ask_params("elicitation/create"));
                let asked = server.ask_unbidden(now, "elicitation/create", Some(params));
                self.open_asks.extend(asked.ok().map(|ask| (ask, id)));
                return;
            }
            "sample with progress" => {
                let mut params = ask_params("sampling/createMessage");
                params["_meta"] = json!({"progressToken": "theirs"});
                let asked = server.ask(now, id, "sampling/createMessage", Some(payload(&params)));
                return self.track_ask(server, now, id, asked);
            }
            "task" => {
                let mut created = task("working");
                created["resultType"] = "task".into();
                return server
                    .respond(now, id, payload(&created))
                    .expect("the request allows a task");
            }
            "refuse" => {
                let code = arguments["code"].as_i64().unwrap_or(-32_603);
                let error = ErrorObject {
                    data: "{\"why\":\"asked to\"}".parse().ok(),
                    ..ErrorObject::new(code, "no")
                };
                return server.fail(now, id, error).expect("the request is open");
            }
            "broken" => {
                let result =
                    json!({"content": [{"type": "text", "text": "it broke"}], "isError": true});
                return server
                    .respond(now, id, payload(&result))
                    .expect("the request is open");
            }
            "big" => {
                let bytes = arguments["bytes"].as_u64().unwrap_or(0);
                let text = "x".repeat(usize::try_from(bytes).unwrap_or(0));
                return server
                    .respond(now, id, payload(&text_result(text)))
                    .expect("the request is open");
            }
            "crash" => {
                self.is_crashing = true;
                return;
            }
            "log" => {
                for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Error] {
                    let data = payload(&json!(format!("at {}", level.as_str())));
                    server
                        .log(now, Some(id), level, Some("shop"), data)
                        .expect("logging is offered");
                }
                Ok(())
            }
            "touch" => {
                let uri = arguments["uri"].as_str().unwrap_or_default().into();
                server.publish(now, Change::Resource { uri })
            }
            "learn" => {
                self.tools.push("learned".into());
                server.publish(now, Change::List(List::Tools))
            }
            "find" => {
                self.resources.push("file:///found".into());
                server.publish(now, Change::List(List::Resources))
            }
            "tell" => {
                let method = arguments["method"]
                    .as_str()
                    .unwrap_or("acme/news")
                    .to_owned();
                server.notify(now, method, Some(payload(&json!({"of": "life"}))))
            }
            _ => Ok(()),
        };
        sent.expect("the server may send it");
        self.echo(server, now, id);
    }

    fn ask(&mut self, server: &mut Server, now: Instant, id: RequestId, method: &'static str) {
        let params = Some(ask_params(method)).filter(|params| !params.is_null());
        let asked = server.ask(now, id, method, params.as_ref().map(payload));
        self.track_ask(server, now, id, asked);
    }

    fn track_ask(
        &mut self,
        server: &mut Server,
        now: Instant,
        id: RequestId,
        asked: Result<AskId, Misuse>,
    ) {
        match asked {
            Ok(ask) => {
                self.open_asks.insert(ask, id);
            }
            Err(misuse) => {
                let error = ErrorObject::new(-32_603, format!("cannot ask: {misuse}"));
                server.fail(now, id, error).expect("the request is open");
            }
        }
    }

    /// Records an answer, and replies to the request if no ask of it is open.
    fn record_answer(&mut self, server: &mut Server, now: Instant, ask: AskId, answer: Value) {
        let Some(id) = self.open_asks.remove(&ask) else {
            return;
        };
        self.received.push(format!("answered {answer}"));
        self.answers.entry(id).or_default().push(answer);
        if !self.open_asks.values().any(|other| *other == id) {
            self.echo(server, now, id);
        }
    }

    /// Replies with the name and mark of the call, the number of the epoch, and the answers of the client.
    fn echo(&mut self, server: &mut Server, now: Instant, id: RequestId) {
        let Some(call) = self.running.remove(&id) else {
            return;
        };
        let answers = self.answers.remove(&id).unwrap_or_default();
        let text = format!(
            "{} {} by life {}",
            call["name"].as_str().unwrap_or_default(),
            call["arguments"]["mark"],
            self.epoch
        );
        let mut result = text_result(text);
        if call["arguments"].is_null() {
            result = json!({"messages": [], "description": "a prompt"});
        }
        result["structuredContent"] = json!({"answers": answers});
        allow_unknown_request(server.respond(now, id, payload(&result)));
    }

    fn schedule_action(&mut self, at: Instant, action: PlannedAction) {
        self.scheduled_count += 1;
        self.schedule.insert((at, self.scheduled_count), action);
    }
}

/// Accepts that a request is unknown: it was cancelled before the application was told.
fn allow_unknown_request(done: Result<(), Misuse>) {
    assert!(
        matches!(done, Ok(()) | Err(Misuse::UnknownRequest)),
        "{done:?}"
    );
}

fn text_result(text: String) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn task(status: &str) -> Value {
    let at = "2026-07-28T00:00:00Z";
    json!({"taskId": "t1", "status": status, "createdAt": at, "lastUpdatedAt": at, "ttl": 60_000, "ttlMs": 60_000})
}

/// The parameters of an ask.
fn ask_params(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({
            "message": "Who are you?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }),
        "sampling/createMessage" => json!({
            "messages": [{"role": "user", "content": {"type": "text", "text": "Say a word."}}],
            "maxTokens": 10,
        }),
        _ => Value::Null,
    }
}
