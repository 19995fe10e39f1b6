//! A progress bar on the terminal, for work that takes more than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work of a known number of parts.
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Instant,
    shown: bool,
}

impl Progress {
    /// Nothing is shown yet, and never where standard error is no terminal.
    pub(crate) fn new(what: &str, parts: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(parts as u64), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(what.to_owned());
        Progress { bar, began: Instant::now(), shown: false }
    }

    /// What is being done.
    pub(crate) fn now(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.show();
    }

    /// One part is done.
    pub(crate) fn step(&mut self) {
        self.bar.inc(1);
        self.show();
    }

    fn show(&mut self) {
        if !self.shown && self.began.elapsed() > Duration::from_secs(1) {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Says something without tearing the bar.
    pub(crate) fn aside(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
