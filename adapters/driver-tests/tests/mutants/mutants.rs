//! The planted faults, each with the check that must catch it.

use crate::driver::ThreadDriver;

/// A mistake that a driver can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ActivityNotReported,
    BytesDroppedWhenPipeIsFull,
    CloseWriteIgnored,
    DescriptorKept,
    EndNotReported,
    EpochsMixed,
    ExitDoesNotWake,
    ExitNotReported,
    GraceSkipped,
    KillIgnored,
    OnlyLeaderKilled,
    PartialWriteCountedAsWhole,
    ReadsWhenNotWanted,
    ReleasedLate,
    SentWhenQueued,
    SigtermNotSent,
    SpawnErrorSwallowed,
    StderrNotDrained,
    StderrReadAsOutput,
    TimerIgnored,
    UnreadBytesDroppedAtExit,
    WriteErrorSwallowed,
    ZombieKept,
}

/// A driver with one fault.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    fault: Fault,
    /// The check that must fail.
    pub(crate) caught_by: &'static str,
    /// A part of the text of the failure.
    pub(crate) problem: &'static str,
}

impl Mutant {
    const fn new(
        name: &'static str,
        fault: Fault,
        caught_by: &'static str,
        problem: &'static str,
    ) -> Mutant {
        Mutant {
            name,
            fault,
            caught_by,
            problem,
        }
    }

    pub(crate) const fn driver(&self) -> ThreadDriver {
        ThreadDriver::new(self.name, Some(self.fault))
    }
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "activity_not_reported",
        Fault::ActivityNotReported,
        "f_019_stopped_child_is_detected_and_replaced_when_a_call_waits",
        "expected: the child is seen to be stopped",
    ),
    Mutant::new(
        "bytes_dropped_when_pipe_is_full",
        Fault::BytesDroppedWhenPipeIsFull,
        "requests_up_to_4_mib_arrive_complete",
        "the call ends, with a reply or a failure. It did not happen",
    ),
    Mutant::new(
        "close_write_ignored",
        Fault::CloseWriteIgnored,
        "s_stdio_15_child_that_exits_on_eof_is_not_signalled",
        "`shutdown` completes. It did not happen",
    ),
    Mutant::new(
        "descriptor_kept",
        Fault::DescriptorKept,
        "s_stdio_15_child_that_exits_on_eof_is_not_signalled",
        "1 more descriptors: anon_inode:[pidfd]",
    ),
    Mutant::new(
        "end_not_reported",
        Fault::EndNotReported,
        "s_stdio_15_child_that_exits_on_eof_is_not_signalled",
        "`shutdown` completes. It did not happen",
    ),
    Mutant::new(
        "epochs_mixed",
        Fault::EpochsMixed,
        "late_output_of_an_old_child_does_not_reach_the_new_epoch",
        "lines of noise: expected 0",
    ),
    Mutant::new(
        "exit_does_not_wake",
        Fault::ExitDoesNotWake,
        "f_003_child_death_is_seen_while_a_grandchild_holds_stdout",
        "the call ends, with a reply or a failure. It did not happen",
    ),
    Mutant::new(
        "exit_not_reported",
        Fault::ExitNotReported,
        "f_002_killing_the_child_fails_100_calls_in_flight_once_and_replaces_it",
        "expected a text with `signal 9 (SIGKILL)`",
    ),
    Mutant::new(
        "grace_skipped",
        Fault::GraceSkipped,
        "s_stdio_15_child_that_exits_on_eof_is_not_signalled",
        "expected Some(Code(0)), found Some(Signal(9))",
    ),
    Mutant::new(
        "kill_ignored",
        Fault::KillIgnored,
        "f_011_child_that_ignores_eof_and_sigterm_is_killed",
        "`shutdown` completes. It did not happen",
    ),
    Mutant::new(
        "only_leader_killed",
        Fault::OnlyLeaderKilled,
        "f_012_descendant_in_the_group_is_killed_with_the_link",
        "expected that no process of the link is left",
    ),
    Mutant::new(
        "partial_write_counted_as_whole",
        Fault::PartialWriteCountedAsWhole,
        "requests_up_to_4_mib_arrive_complete",
        "the call ends, with a reply or a failure. It did not happen",
    ),
    Mutant::new(
        "reads_when_not_wanted",
        Fault::ReadsWhenNotWanted,
        "relay_stops_reading_the_child_while_its_host_does_not_read",
        "bytes are read for a host that does not read",
    ),
    Mutant::new(
        "released_late",
        Fault::ReleasedLate,
        "f_016_child_that_dies_after_each_ready_exhausts_the_budget",
        "children of this process, zombies included: expected",
    ),
    Mutant::new(
        "sent_when_queued",
        Fault::SentWhenQueued,
        "f_009_full_pipe_bounds_the_queue_and_reports_delivery",
        "the delivery of a call: expected NotSent, found Unknown",
    ),
    Mutant::new(
        "sigterm_not_sent",
        Fault::SigtermNotSent,
        "f_011_child_that_ignores_eof_gets_sigterm",
        "`shutdown` completes. It did not happen",
    ),
    Mutant::new(
        "spawn_error_swallowed",
        Fault::SpawnErrorSwallowed,
        "missing_program_is_named_in_the_failure",
        "the link is ready or parked. It did not happen",
    ),
    Mutant::new(
        "stderr_not_drained",
        Fault::StderrNotDrained,
        "f_005_child_that_floods_stderr_from_its_first_byte_serves_calls",
        "the call ends, with a reply or a failure. It did not happen",
    ),
    Mutant::new(
        "stderr_read_as_output",
        Fault::StderrReadAsOutput,
        "stderr_is_never_read_as_replies",
        "expected a reply to a call",
    ),
    Mutant::new(
        "timer_ignored",
        Fault::TimerIgnored,
        "f_011_child_that_ignores_eof_and_sigterm_is_killed",
        "`shutdown` completes. It did not happen",
    ),
    Mutant::new(
        "unread_bytes_dropped_at_exit",
        Fault::UnreadBytesDroppedAtExit,
        "reply_written_before_the_child_dies_is_delivered",
        "expected a reply to a call",
    ),
    Mutant::new(
        "write_error_swallowed",
        Fault::WriteErrorSwallowed,
        "f_010_child_that_closed_stdin_is_replaced",
        "the call ends, with a reply or a failure. It did not happen",
    ),
    Mutant::new(
        "zombie_kept",
        Fault::ZombieKept,
        "s_stdio_15_child_that_exits_on_eof_is_not_signalled",
        "children of this process, zombies included: expected",
    ),
];
