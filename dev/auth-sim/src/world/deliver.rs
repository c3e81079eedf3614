//! Brings authorizers the answers to their outputs, and calls of applications to the server.

use everlink::auth::{Input, Key, Lock, Prepared, Secret, TokenPoll};
use everlink::http::{Fields, ResponseHead};
use everlink::{Fault, FaultKind};

use super::World;
use crate::fact::{Fact, Pid};
use crate::mark::{Kind as SecretKind, Mark};
use crate::process::Delivery;
use crate::rule::Rule;
use crate::script::Kind;
use crate::site::{Effect, Verdict};

impl World<'_> {
    pub(super) fn deliver(&mut self, pid: Pid, delivery: Delivery) {
        if self.processes[pid].auth.is_none() {
            return;
        }
        let now = self.now(pid);
        match delivery {
            Delivery::Response { .. } => self.respond(pid, delivery),
            Delivery::Failed { exchange } => {
                if self.processes[pid].exchange == Some(exchange) {
                    self.processes[pid].exchange = None;
                }
                let faults = &[Fault::new(FaultKind::Reset)];
                self.change(pid, |auth| {
                    auth.handle(now, Input::Failed { exchange, faults });
                });
            }
            Delivery::Loaded { record } => {
                let record = record.filter(|_| self.flaw != Some(Rule::NoNeedlessSignIn));
                let record = record.as_deref();
                self.observe(pid, &Fact::Read { lock: None, record });
                self.change(pid, |auth| auth.handle(now, Input::Loaded { record }));
            }
            Delivery::Locked { key, lock } => self.locked(pid, &key, lock),
            Delivery::Prepared { redirect_uri } => {
                self.prepared += 1;
                let mark = Mark {
                    family: self.prepared,
                    ..Mark::default()
                };
                let verifier = mark.text(SecretKind::Verifier);
                let prepared = Prepared {
                    redirect_uri,
                    state: Some(Secret::new(format!("state-{}", self.prepared))),
                    verifier: Some(Secret::new(format!("{verifier:x<43}"))),
                    challenge: format!("challenge-{}", self.prepared),
                    dpop_key: None,
                };
                self.change(pid, |auth| auth.handle(now, Input::Prepared(prepared)));
            }
            Delivery::Redirected { query } => {
                if self.processes[pid].is_redirect_open {
                    let query = &query;
                    self.change(pid, |auth| auth.handle(now, Input::Redirected { query }));
                }
            }
            Delivery::Saved => self.change(pid, |auth| auth.handle(now, Input::Saved)),
            Delivery::StoreFailed => {
                let why = "disk full";
                self.change(pid, |auth| auth.handle(now, Input::StoreFailed { why }));
            }
            Delivery::Call { token, retries } => self.judge(pid, token, retries),
        }
    }

    fn locked(&mut self, pid: Pid, key: &Key, lock: Lock) {
        let is_unguarded = self.flaw == Some(Rule::FamilyIsKept);
        if !is_unguarded && !self.store.has(pid, key, lock) {
            // It has stopped to wait meanwhile.
            return;
        }
        let now = self.now(pid);
        let record = self.store.records.get(key).cloned();
        let fact = Fact::Read {
            lock: Some(lock),
            record: record.as_deref(),
        };
        self.observe(pid, &fact);
        let is_hidden = self.flaw == Some(Rule::NoNeedlessSignIn) && lock == Lock::SignIn;
        let record = record.as_deref().filter(|_| !is_hidden);
        self.change(pid, |auth| auth.handle(now, Input::Locked { record }));
    }

    fn respond(&mut self, pid: Pid, delivery: Delivery) {
        let Delivery::Response {
            exchange,
            status,
            retry_after,
            body,
            effect,
        } = delivery
        else {
            return;
        };
        let now = self.now(pid);
        if self.processes[pid].exchange == Some(exchange) {
            self.processes[pid].exchange = None;
            let refresh = Mark::find(&body, SecretKind::Refresh);
            match effect {
                Effect::Issued(access) | Effect::Rotated { to: access, .. } => {
                    self.observe(pid, &Fact::TokensCame { access, refresh });
                }
                Effect::Ended(refresh) | Effect::Reused(refresh) => {
                    self.observe(pid, &Fact::GrantEnded { refresh });
                }
                Effect::Nothing | Effect::Revoked(_) => {}
            }
        }
        if self.flaw == Some(Rule::NothingIsForgotten) && status >= 500 {
            let records = self.store.records.keys();
            let keys: Vec<Key> = records.cloned().collect();
            for key in keys {
                self.store.records.remove(&key);
                self.observe(pid, &Fact::Deleted { key: &key });
            }
        }
        let mut head = ResponseHead::new(status);
        if let Some(seconds) = retry_after {
            head.fields.push("Retry-After", seconds.to_string());
        }
        if status == 307 {
            head.fields.push("Location", "https://evil.example/token");
        }
        self.change(pid, |auth| {
            let body = body.as_bytes();
            auth.handle(
                now,
                Input::Response {
                    exchange,
                    head,
                    body,
                },
            );
        });
    }

    /// The application calls the server. It waits if the token is being loaded or renewed.
    pub(super) fn call(&mut self, pid: Pid, retries: u8) {
        let now = self.now(pid);
        let Some(auth) = &mut self.processes[pid].auth else {
            return;
        };
        let before = auth.state();
        let token = match auth.poll_token(now) {
            TokenPoll::Ready(token) => {
                let mark = Mark::find(token.secret.expose(), SecretKind::Access);
                Some(mark.map(|mark| (token.id, mark)))
            }
            TokenPoll::Unauthenticated => Some(None),
            _ => None,
        };
        let after = auth.state();
        self.moved(pid, before, after);
        match token {
            None => self.processes[pid].waiting.push(retries),
            Some(token) => {
                let latency = self.rng.millis(10, 500);
                self.deliver_later(latency, pid, Delivery::Call { token, retries });
            }
        }
        self.drain(pid);
    }

    fn judge(&mut self, pid: Pid, token: Option<(everlink::auth::TokenId, Mark)>, retries: u8) {
        let mark = token.map(|(_, mark)| mark);
        let wants_wide = self.wide_demands > 0;
        let mut verdict = self.site.judge(mark, wants_wide, self.true_time());
        if verdict == Verdict::TooNarrow {
            self.wide_demands -= 1;
            self.report.record_fault(Kind::StepUp);
        }
        if verdict == Verdict::Fine && self.refusals > 0 {
            self.refusals -= 1;
            self.report.record_fault(Kind::Refuse);
            verdict = Verdict::Unauthorized;
        }
        if verdict == Verdict::Fine {
            self.processes[pid].successes += 1;
            return self.observe(pid, &Fact::CallSucceeded);
        }
        let is_step_up = verdict == Verdict::TooNarrow;
        self.observe(
            pid,
            &Fact::Challenged {
                token: mark,
                is_step_up,
            },
        );
        self.processes[pid].refused.push(retries);
        let (status, text) = if is_step_up {
            let text = r#"Bearer error="insufficient_scope", scope="read wide""#;
            (403, text)
        } else {
            (401, r#"Bearer error="invalid_token", scope="read""#)
        };
        let now = self.now(pid);
        let fields = Fields::new().and("WWW-Authenticate", text);
        let under = token.map(|(id, _)| id);
        if self.flaw == Some(Rule::FewSignIns) {
            self.change(pid, |auth| auth.sign_in(now));
        }
        self.change(pid, |auth| auth.challenge(now, status, &fields, under));
    }
}
