//! The processes of a job under faults, as the process that starts them sees them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::notes::NoteFolder;

/// The looks of a turn of a rank that is slow: it runs from the last but one to the last.
const TURNS: u32 = 5;

/// The orders of a rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RankOrder {
    /// The process that starts ranks, with which they end.
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) folder: String,
    /// The attempt that it comes with.
    pub(super) attempt: u64,
    pub(super) hints: String,
    /// The machine that it believes to be on, if it is to believe something.
    pub(super) host: Option<String>,
    pub(super) timeout_ms: u64,
    /// Elements of the calls, in turn.
    pub(super) counts: Vec<u64>,
}

/// The state of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessState {
    Runs,
    Stopped,
    /// It is stopped and goes on by turns.
    Slow,
}

/// A process of the job, which ends with this.
pub(super) struct RankProcess {
    pub(super) name: String,
    pub(super) child: Child,
    pub(super) state: ProcessState,
    /// The time at which it runs again as it should.
    until: Instant,
    looks: u32,
    /// The number of times that it began or ended to be disturbed: odd while it is.
    disturbed: u64,
}

/// Returns the name of the note of how often a rank was disturbed.
pub(super) fn disturbed(name: &str) -> String {
    format!("disturbed-{name}")
}

/// Returns the name of the note by which a rank comes late, by a number of milliseconds.
pub(super) fn late(name: &str) -> String {
    format!("late-{name}")
}

impl RankProcess {
    /// Starts a process that follows the orders.
    pub(super) fn start(order: &RankOrder) -> Result<Self, String> {
        let text = serde_json::to_string(order).map_err(|e| e.to_string())?;
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let child = Command::new(program)
            .args(["chaos-rank", &text])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("a rank cannot be started: {e}"))?;
        let (state, until) = (ProcessState::Runs, Instant::now());
        Ok(RankProcess { name: order.name.clone(), child, state, until, looks: 0, disturbed: 0 })
    }

    fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Lets it go on, if it was stopped.
    pub(super) fn go(&self) {
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(&mut self) {
        // It may have ended a moment ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn late(&self) -> String {
        late(&self.name)
    }

    /// Notes that its state changes, before it does: so the rank itself finds out that its time was not its own.
    fn note(&mut self, notes: &NoteFolder) {
        self.disturbed += 1;
        notes.put(&disturbed(&self.name), &self.disturbed.to_string());
    }

    /// Stops it, or makes it slow, for so long.
    pub(super) fn disturb(&mut self, state: ProcessState, time: Duration, notes: &NoteFolder) {
        self.note(notes);
        (self.state, self.until, self.looks) = (state, Instant::now() + time, 0);
        self.signal(Signal::STOP);
    }

    /// Lets it go on if its time has come, or its turn if it is slow.
    pub(super) fn go_on(&mut self, now: Instant, notes: &NoteFolder) {
        if self.state == ProcessState::Runs {
            return;
        }
        if now >= self.until {
            self.note(notes);
            self.state = ProcessState::Runs;
            return self.go();
        }
        self.looks += 1;
        match self.looks % TURNS {
            4 if self.state == ProcessState::Slow => self.go(),
            0 if self.state == ProcessState::Slow => self.signal(Signal::STOP),
            _ => {}
        }
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
