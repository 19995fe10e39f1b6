//! Shows a progress bar on the terminal, for work that takes more than a second.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::tunables::{PROGRESS_BAR_DELAY, PROGRESS_BAR_INTERVAL};

/// Work of a known number of parts. The bar appears and goes on by itself, also within a part that takes long.
pub(crate) struct WorkProgress {
    bar: ProgressBar,
    /// Dropped to end what shows it, and that.
    over: Option<Sender<()>>,
    shows: Option<JoinHandle<()>>,
}

impl WorkProgress {
    /// Starts a bar. It is not shown at once, and never where standard error is no terminal.
    pub(crate) fn new(what: &str, parts: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(parts as u64), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(what.to_owned());
        let ((over, ended), later) = (channel(), bar.clone());
        // Without a thread there is no bar.
        let shows = Builder::new().spawn(move || {
            if ended.recv_timeout(PROGRESS_BAR_DELAY) == Err(RecvTimeoutError::Timeout) {
                later.set_draw_target(ProgressDrawTarget::stderr());
                later.enable_steady_tick(PROGRESS_BAR_INTERVAL);
            }
        });
        WorkProgress { bar, over: Some(over), shows: shows.ok() }
    }

    /// Shows the current activity.
    pub(crate) fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Advances the bar: one part is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Says something without tearing the bar.
    pub(crate) fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        drop(self.over.take());
        self.shows.take().map(JoinHandle::join);
        self.bar.finish_and_clear();
    }
}
