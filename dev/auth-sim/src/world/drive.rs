//! Carries out the outputs of authorizers.

use everlink::auth::{Event, Key, Lock, Output, Preparation, Request, State};

use super::World;
use crate::fact::{Access, Fact, Pid};
use crate::mark::{Kind as Secret, Mark};
use crate::process::{Delivery, OutputKind};
use crate::rule::Rule;
use crate::script::Kind;
use crate::site::{Answer, Effect};

impl World<'_> {
    /// Carries out all outputs of a process.
    pub(super) fn drain(&mut self, pid: Pid) {
        while let Some(auth) = &mut self.processes[pid].auth {
            let Some(output) = auth.poll_output() else {
                break;
            };
            let kind = OutputKind::of(&output);
            let process = &mut self.processes[pid];
            let plan = process.crash.take_if(|plan| plan.at == kind);
            if plan.is_some() {
                self.report.record_fault(Kind::Crash);
            }
            if plan.is_none_or(|plan| plan.is_after) {
                self.carry_out(pid, output);
            }
            if plan.is_some() {
                self.crash(pid);
            }
        }
        self.rest(pid);
    }

    /// The process has nothing to do until its deadline.
    fn rest(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        let Some(auth) = &process.auth else {
            return;
        };
        let (is_idle, timeout) = (auth.state().is_idle(), auth.poll_timeout());
        let since = |nanos: u64| nanos.div_ceil(1_000_000).saturating_sub(super::ORIGIN);
        process.deadline = timeout.map(|at| since(at.as_nanos()).saturating_add(process.born));
        let can_ask = !matches!(
            auth.state(),
            State::Loading | State::Locking | State::Refreshing | State::Storing | State::Saving
        );
        let fact = Fact::Rested {
            is_idle,
            has_deadline: timeout.is_some(),
            spins: process.spins,
            locks: self.store.lock_count(pid),
            is_redirect_open: process.is_redirect_open,
        };
        self.observe(pid, &fact);
        if can_ask {
            for retries in core::mem::take(&mut self.processes[pid].waiting) {
                self.call(pid, retries);
            }
        }
    }

    #[allow(
        clippy::collapsible_match,
        reason = "a guard would hide that a store which fails answers by itself"
    )]
    fn carry_out(&mut self, pid: Pid, output: Output) {
        match output {
            Output::Abort { .. } => {
                self.processes[pid].exchange = None;
                self.observe(pid, &Fact::Aborted);
            }
            Output::CloseRedirect => self.processes[pid].is_redirect_open = false,
            Output::Delete { key } => {
                if !self.store_fails(pid, Access::Save) {
                    self.store.records.remove(&key);
                    self.observe(pid, &Fact::Deleted { key: &key });
                    self.answer_of_store(pid, Delivery::Saved);
                }
            }
            Output::Event(event) => self.told(pid, &event),
            Output::Load { key } => {
                if !self.store_fails(pid, Access::Load) {
                    let record = self.store.records.get(&key).cloned();
                    self.answer_of_store(pid, Delivery::Loaded { record });
                }
            }
            Output::Lock { key, lock } => self.lock(pid, key, lock),
            Output::Prepare(preparation) => self.prepare(pid, &preparation),
            Output::Request(request) => self.send(pid, &request),
            Output::Save { key, record } => {
                if !self.store_fails(pid, Access::Save) {
                    let fact = Fact::Saved {
                        key: &key,
                        record: &record,
                    };
                    self.observe(pid, &fact);
                    self.store.records.insert(key, record);
                    self.answer_of_store(pid, Delivery::Saved);
                }
            }
            Output::Unlock { key, lock } => {
                if self.flaw != Some(Rule::NoEndlessWait) {
                    let next = self.store.unlock(pid, &key, lock);
                    self.grant(next, key, lock);
                }
            }
            Output::Visit { url } => self.visit(pid, url.as_str()),
            _ => {}
        }
    }

    fn told(&mut self, pid: Pid, event: &Event) {
        match event {
            Event::Authorized(_) if self.flaw == Some(Rule::OneFlow) => {}
            Event::Authorized(_) => {
                self.observe(pid, &Fact::Authorized);
                // The application repeats its calls when all outputs are carried out.
                let refused = core::mem::take(&mut self.processes[pid].refused);
                let again = refused.iter().filter_map(|left| left.checked_sub(1));
                self.processes[pid].waiting.extend(again);
            }
            Event::Refused(_) => {
                self.observe(pid, &Fact::Refused);
                self.processes[pid].refused.clear();
            }
            _ => {}
        }
    }

    /// The delay of an answer of the store. Answers arrive in order.
    fn answer_of_store(&mut self, pid: Pid, delivery: Delivery) {
        let at = (self.mono + self.rng.below(30)).max(self.processes[pid].store_at);
        self.processes[pid].store_at = at;
        self.deliver_later(at - self.mono, pid, delivery);
    }

    /// Whether the store fails now. The process is told.
    fn store_fails(&mut self, pid: Pid, access: Access) -> bool {
        if self.store_faults == 0 {
            return false;
        }
        self.store_faults -= 1;
        self.report.record_fault(Kind::StoreFails);
        self.observe(pid, &Fact::StoreFailed { access });
        self.answer_of_store(pid, Delivery::StoreFailed);
        true
    }

    fn lock(&mut self, pid: Pid, key: Key, lock: Lock) {
        if self.store_fails(pid, Access::Lock) {
            return;
        }
        let is_free = self.flaw == Some(Rule::FamilyIsKept) || self.store.lock(pid, &key, lock);
        self.grant(is_free.then_some(pid), key, lock);
    }

    /// A process has the lock now.
    pub(super) fn grant(&mut self, pid: Option<Pid>, key: Key, lock: Lock) {
        if let Some(pid) = pid {
            self.answer_of_store(pid, Delivery::Locked { key, lock });
        }
    }

    fn prepare(&mut self, pid: Pid, preparation: &Preparation) {
        self.processes[pid].is_redirect_open = true;
        // The port may be taken.
        let registered = preparation.registered_uri.as_deref();
        let registered = registered.filter(|_| !self.rng.one_in(4));
        let port = 10_000 + self.rng.below(20_000);
        let redirect_uri = match registered {
            Some(uri) => uri.to_owned(),
            None => format!("http://127.0.0.1:{port}/callback"),
        };
        let after = self.rng.below(100);
        self.deliver_later(after, pid, Delivery::Prepared { redirect_uri });
    }

    fn visit(&mut self, pid: Pid, url: &str) {
        self.observe(pid, &Fact::Visited { url });
        let is_absent = self.flaw == Some(Rule::FewSignIns) && !self.is_recovering;
        let manner = if is_absent {
            4
        } else if self.is_recovering {
            0
        } else {
            self.people.pop_front().unwrap_or_default()
        };
        if manner > 0 {
            self.report.record_fault(Kind::Person);
        }
        let after = match manner {
            2 => self.rng.millis(30_000, 700_000),
            _ => self.rng.millis(2_000, 60_000),
        };
        if manner == 4 || (self.is_recovering && self.flaw == Some(Rule::Recovers)) {
            return;
        }
        if manner == 5 {
            // Somebody else sends the browser to the redirect URI.
            let query = "?code=zCDz1z0z0z&state=forged".into();
            self.deliver_later(after / 2, pid, Delivery::Redirected { query });
        }
        let query = self.site.sign_in(url, manner != 3);
        self.deliver_later(after, pid, Delivery::Redirected { query });
    }

    fn send(&mut self, pid: Pid, request: &Request) {
        let exchange = request.exchange;
        self.processes[pid].exchange = Some(exchange);
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let mut url = request.url.as_str().to_owned();
        let body = self.spoil(&mut url, body);
        let fields: Vec<String> = request
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect();
        let text = format!("{}\n{body}", fields.join("\n"));
        let copies = if self.flaw == Some(Rule::NoHotLoop) {
            50
        } else {
            1
        };
        for _ in 0..copies {
            let fact = Fact::Sent {
                url: &url,
                text: &text,
            };
            self.observe(pid, &fact);
        }
        self.exchange(pid, exchange, &url, &body);
    }

    /// Changes a request, to break a rule on purpose.
    fn spoil(&self, url: &mut String, body: String) -> String {
        let token = Mark::find(&body, Secret::Refresh);
        match (self.flaw, token) {
            (Some(Rule::SecretsStayHome), Some(_)) => "https://evil.example/token".clone_into(url),
            (Some(Rule::TokenIsSpentOnce), Some(token)) if token.serial > 0 => {
                let older = Mark {
                    serial: token.serial - 1,
                    ..token
                };
                return body.replace(&token.text(Secret::Refresh), &older.text(Secret::Refresh));
            }
            _ => {}
        }
        body
    }

    fn exchange(&mut self, pid: Pid, exchange: everlink::auth::ExchangeId, url: &str, body: &str) {
        let latency = self.rng.millis(20, 1_000);
        let fault = self.network_fault(url);
        let kind = fault.map(|(kind, _)| kind);
        let parameter = fault.map_or(0, |(_, parameter)| parameter);
        let is_lost_on_the_way = matches!(
            kind,
            Some(Kind::Busy | Kind::Redirect | Kind::LostRequest | Kind::Outage)
        ) || (kind == Some(Kind::Error) && parameter % 2 == 0);
        let answer = if is_lost_on_the_way {
            Answer {
                status: 0,
                body: String::new(),
                effect: Effect::Nothing,
            }
        } else {
            self.act(pid, url, body)
        };
        let response = |status: u16, retry_after| {
            let is_real = status == answer.status;
            Delivery::Response {
                exchange,
                status,
                retry_after,
                body: if is_real {
                    answer.body.clone()
                } else {
                    String::new()
                },
                effect: if is_real {
                    answer.effect
                } else {
                    Effect::Nothing
                },
            }
        };
        let (after, delivery) = match kind {
            None => (latency, response(answer.status, None)),
            Some(Kind::SlowAnswer) => (10_000 + parameter % 50_000, response(answer.status, None)),
            Some(Kind::Busy) => (latency, response(429, Some(parameter % 5_000))),
            Some(Kind::Redirect) => (latency, response(307, None)),
            Some(Kind::LostRequest | Kind::LostAnswer) if parameter % 3 == 0 => return,
            Some(Kind::LostRequest | Kind::LostAnswer) => {
                (parameter % 29_000, Delivery::Failed { exchange })
            }
            Some(_) => {
                let status = [500, 502, 503, 504][(parameter / 2 % 4) as usize];
                (latency, response(status, None))
            }
        };
        if matches!(delivery, Delivery::Failed { .. })
            || matches!(&delivery, Delivery::Response { status, .. } if *status != answer.status)
        {
            // Whatever the server did, the process will not learn it.
            if answer.effect != Effect::Nothing {
                self.observe(pid, &Fact::Aborted);
            }
        }
        self.deliver_later(after, pid, delivery);
    }

    /// The fault of the next exchange, if there is one.
    fn network_fault(&mut self, url: &str) -> Option<(Kind, u64)> {
        if self.is_recovering {
            return None;
        }
        if self.mono < self.outage_until && !url.starts_with("https://mcp.") {
            self.report.record_fault(Kind::Outage);
            return Some((Kind::Outage, 0));
        }
        let is_for_tokens = url.ends_with("/token");
        let mut network = self.network.iter();
        let found = network.position(|fault| is_for_tokens || !fault.is_for_tokens)?;
        let fault = self.network.remove(found)?;
        self.report.record_fault(fault.kind);
        Some((fault.kind, fault.parameter))
    }

    /// The server receives a request.
    fn act(&mut self, pid: Pid, url: &str, body: &str) -> Answer {
        let now = self.true_time();
        let answer = self.site.answer(url, body, now);
        match answer.effect {
            Effect::Nothing | Effect::Ended(_) => {}
            Effect::Issued(mark) => self.observe(
                pid,
                &Fact::Issued {
                    family: mark.family,
                },
            ),
            Effect::Rotated { from, .. } => self.observe(pid, &Fact::Rotated { from }),
            Effect::Reused(token) => self.observe(pid, &Fact::Reused { token }),
            Effect::Revoked(mark) => self.observe(
                pid,
                &Fact::Revoked {
                    family: mark.family,
                },
            ),
        }
        answer
    }
}
