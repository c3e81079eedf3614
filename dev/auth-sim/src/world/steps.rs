//! Takes the steps of the script, and ends all faults.

use everlink::auth::State;

use super::{Event, NetworkFault, World};
use crate::fact::{Fact, Pid};
use crate::process::{CrashPlan, OutputKind, RETRIES};
use crate::script::{Kind, Step, sleep_of};

/// How long the world is left alone after the last fault, in milliseconds: longer than any pause that a server may ask for.
const SETTLE: u64 = 7_200_000;
/// How long a process may take to get a token after that.
const PATIENCE: u64 = 1_800_000;

impl World<'_> {
    pub(super) fn take_step(&mut self, index: usize) {
        let Some(step) = self.script.steps.get(index).cloned() else {
            return;
        };
        if let Some(next) = self.script.steps.get(index + 1) {
            let after = next.after;
            self.schedule(after, Event::Step(index + 1));
        }
        self.report.note(|| {
            let Step {
                kind,
                process,
                parameter,
                ..
            } = &step;
            format!("{:>12} - {kind} {process} {parameter}", self.mono)
        });
        let pid = usize::try_from(step.process).unwrap_or_default() % self.processes.len();
        match step.kind {
            Kind::Call | Kind::Burst | Kind::All | Kind::SignIn | Kind::Cancel | Kind::SignOut => {
                self.act_as_application(pid, &step);
            }
            Kind::Crash => self.plan_crash(pid, step.parameter),
            Kind::Jump | Kind::Sleep => self.move_clock(&step),
            Kind::Error
            | Kind::Busy
            | Kind::LostRequest
            | Kind::LostAnswer
            | Kind::SlowAnswer
            | Kind::Redirect => {
                let fault = NetworkFault {
                    kind: step.kind,
                    is_for_tokens: step.parameter % 3 > 0,
                    parameter: step.parameter / 12,
                };
                for _ in 0..=step.parameter / 3 % 4 / 2 {
                    self.network.push_back(fault);
                }
            }
            Kind::Outage => {
                self.outage_until = self.mono + 1_000 + step.parameter % 1_000 * 10_000;
            }
            Kind::StoreFails => self.store_faults += 1 + step.parameter % 2,
            Kind::Person => self.people.push_back(step.parameter % 6),
            Kind::Revoke => {
                if let Some(family) = self.site.revoke() {
                    self.report.record_fault(step.kind);
                    self.observe(pid, &Fact::Revoked { family });
                }
            }
            Kind::Refuse => self.refusals += 1 + step.parameter % 4,
            Kind::StepUp => self.wide_demands += 1 + step.parameter % 2,
            Kind::Forget => {
                self.report.record_fault(step.kind);
                self.oracle.clients_forgotten();
                for family in self.site.forget_clients() {
                    self.observe(pid, &Fact::Revoked { family });
                }
            }
            Kind::Move => {
                self.report.record_fault(step.kind);
                self.site.issuer = 1 - self.site.issuer;
                let issuer = self.site.issuer;
                self.observe(pid, &Fact::Moved { issuer });
            }
        }
    }

    fn act_as_application(&mut self, pid: Pid, step: &Step) {
        self.report.record_fault(step.kind);
        match step.kind {
            Kind::Call => {
                self.start(pid);
                self.call(pid, RETRIES);
            }
            Kind::Burst => {
                self.start(pid);
                for _ in 0..2 + step.parameter % 4 {
                    self.call(pid, RETRIES);
                }
            }
            Kind::All => {
                for pid in 0..self.processes.len() {
                    self.start(pid);
                    self.call(pid, RETRIES);
                }
            }
            Kind::SignIn => {
                self.start(pid);
                self.ask_for_token(pid);
            }
            Kind::Cancel => {
                let now = self.now(pid);
                self.change(pid, |auth| auth.cancel(now));
            }
            _ => {
                let state = self.processes[pid].auth.as_ref().map(|auth| auth.state());
                if state.is_some_and(|state| state != State::Loading) {
                    self.observe(pid, &Fact::SignOutWanted);
                    let now = self.now(pid);
                    self.change(pid, |auth| auth.sign_out(now));
                }
            }
        }
    }

    fn ask_for_token(&mut self, pid: Pid) {
        self.observe(pid, &Fact::SignInWanted);
        let now = self.now(pid);
        self.change(pid, |auth| auth.sign_in(now));
    }

    fn plan_crash(&mut self, pid: Pid, parameter: u64) {
        let which = usize::try_from(parameter % 10).unwrap_or_default();
        let Some(at) = OutputKind::ALL.get(which).copied() else {
            if self.processes[pid].auth.is_some() {
                self.report.record_fault(Kind::Crash);
            }
            return self.crash(pid);
        };
        let is_after = parameter / 10 % 2 == 0;
        self.processes[pid].crash = Some(CrashPlan { at, is_after });
    }

    fn move_clock(&mut self, step: &Step) {
        self.report.record_fault(step.kind);
        if step.kind == Kind::Sleep {
            self.slept += sleep_of(step.parameter);
        } else {
            // Seconds to days, forward and back.
            let size = 1_i64 << (step.parameter / 2 % 18);
            self.skew += if step.parameter % 2 == 0 { size } else { -size };
        }
        self.observe(0, &Fact::TimeJumped);
        // Nobody tells the processes. Their deadlines are by the monotonic clock.
    }

    /// Ends all faults. Then every process must get a token.
    pub(super) fn recover(&mut self) {
        self.is_recovering = true;
        self.network.clear();
        self.people.clear();
        (self.store_faults, self.refusals, self.wide_demands) = (0, 0, 0);
        for process in &mut self.processes {
            process.crash = None;
        }
        self.run_for(SETTLE);
        self.observe(0, &Fact::FaultsEnded);
        for pid in 0..self.processes.len() {
            self.start(pid);
            let mut has_token = self.try_call(pid);
            if !has_token {
                // A person may have refused before. The application asks again.
                self.ask_for_token(pid);
                self.run_while_busy(pid);
                has_token = self.try_call(pid);
            }
            self.observe(pid, &Fact::Finished { has_token });
        }
    }

    fn try_call(&mut self, pid: Pid) -> bool {
        let before = self.processes[pid].successes;
        // A token of another process, a renewal and a sign-in may follow on each other.
        self.call(pid, 3 * RETRIES);
        let end = self.mono + PATIENCE;
        self.run_until(|world| world.processes[pid].successes > before || world.mono > end);
        self.processes[pid].successes > before
    }

    fn run_while_busy(&mut self, pid: Pid) {
        let end = self.mono + PATIENCE;
        self.run_until(|world| {
            let auth = world.processes[pid].auth.as_ref();
            auth.is_none_or(|auth| auth.state().is_idle()) || world.mono > end
        });
    }
}
