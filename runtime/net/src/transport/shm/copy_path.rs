//! Chooses the path on which private memory comes sooner: read through the kernel, or pushed through a pipe,
//! the stores staying in the caches or going past them.
//!
//! The best path depends on the size of a message, on the caches that the two cores share, and on what else
//! they do; on virtual machines it changes while a job runs. So the receiver of a connection notes how long
//! each path takes, for each order of magnitude by itself, and asks the sender in one word for the path that it
//! prefers. The path of a message changes no result.
//!
//! If messages go both ways between two ranks, one of them chooses for both: a rank that reads through the
//! kernel does not push meanwhile, so a path that is tried in one direction alone looks slower than it is.

use std::time::Duration;

use crate::tunables::{
    COPY_SAMPLE_MESSAGES, COPY_SLOW_TRIAL_FACTOR, COPY_TRIAL_SAMPLES, COPY_WARM_BYTES,
    COPY_WARM_MESSAGES,
};

/// The path on which a message of private memory comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyPath {
    /// The receiver reads it through the kernel.
    Kernel = 0,
    /// Its sender copies it into the pipe.
    Pipe = 1,
    /// Its sender copies it into the pipe with stores past the caches: cores that share none hand lines over
    /// slowly.
    Past = 2,
}

const PATHS: [CopyPath; 3] = [CopyPath::Kernel, CopyPath::Pipe, CopyPath::Past];
/// The shortest messages are of the first class, each further one has twice the length.
const FIRST: u32 = 12;
const CLASSES: usize = 10;
/// The part of the preferred path's time below which another path is preferred.
const BETTER: f32 = 0.9;
const WORSE: f32 = 2.0;

/// The statistics of the messages of a class.
#[derive(Debug, Clone, Copy)]
struct LengthClass {
    /// Times of the paths, a byte, of the last samples.
    times: [f32; 3],
    /// The path that is preferred, and the one that is sampled now.
    best: CopyPath,
    next: CopyPath,
    /// Samples taken; messages of the one at hand, the sum of their times and the longest.
    samples: u32,
    messages: u32,
    sum: f32,
    longest: f32,
}

/// The statistics of a receiver, and the paths that there are.
#[derive(Debug)]
pub(super) struct CopyPaths {
    classes: [LengthClass; CLASSES],
    from: usize,
}

/// Returns the class of a message of `len` bytes.
#[inline]
fn class(len: usize) -> usize {
    (len.max(1).ilog2().saturating_sub(FIRST) as usize).min(CLASSES - 1)
}

/// Returns the number of messages of a class that are one sample, with those that do not count.
fn burst(class: usize) -> u32 {
    (COPY_WARM_BYTES >> (FIRST as usize + class)).min(COPY_WARM_MESSAGES) as u32
        + COPY_SAMPLE_MESSAGES
}

/// Returns the path that a receiver asks for, for messages of `len` bytes.
#[inline]
pub(super) fn wanted(preferences: u64, len: usize) -> CopyPath {
    PATHS[(preferences >> (2 * class(len)) & 3).min(2) as usize]
}

impl CopyPaths {
    /// Begins without knowledge; the kernel may or may not let one process read the other's memory.
    pub(super) fn new(kernel: bool) -> CopyPaths {
        let from = usize::from(!kernel);
        let path = PATHS[from];
        let times = [0.0; 3];
        let class = LengthClass {
            times,
            best: path,
            next: path,
            samples: 0,
            messages: 0,
            sum: 0.0,
            longest: 0.0,
        };
        CopyPaths { classes: [class; CLASSES], from }
    }

    /// Returns the paths to ask for: two bits a class.
    pub(super) fn preferences(&self) -> u64 {
        let bits = self.classes.iter().enumerate().map(|(i, class)| (class.next as u64) << (2 * i));
        bits.fold(0, |all, bit| all | bit)
    }

    /// Returns the samples of all classes: while they grow, messages come.
    pub(super) fn samples(&self) -> u32 {
        self.classes.iter().fold(0, |all, class| all.wrapping_add(class.samples))
    }

    /// Notes how long a message took that came some path.
    #[inline]
    pub(super) fn note(&mut self, path: CopyPath, len: usize, took: Duration) {
        let burst = burst(class(len));
        let class = &mut self.classes[class(len)];
        // Others were under way already when this one was asked for.
        if path == class.next {
            class.messages += 1;
            if class.messages > burst - COPY_SAMPLE_MESSAGES {
                let time = took.as_nanos().max(1) as f32 / len.max(1) as f32;
                (class.sum, class.longest) = (class.sum + time, class.longest.max(time));
            }
            if class.messages == burst {
                class.sampled(&PATHS[self.from..]);
            }
        }
    }
}

impl LengthClass {
    /// Ends a sample, and chooses the path of the next.
    fn sampled(&mut self, paths: &[CopyPath]) {
        self.times[self.next as usize] =
            (self.sum - self.longest) / (COPY_SAMPLE_MESSAGES - 1) as f32;
        self.samples = self.samples.wrapping_add(1);
        (self.messages, self.sum, self.longest) = (0, 0.0, 0.0);
        if self.samples < paths.len() as u32 {
            self.next = paths[self.samples as usize % paths.len()];
            return;
        }
        let time = |path: CopyPath| self.times[path as usize];
        let fastest = paths.iter().copied().min_by(|&a, &b| time(a).total_cmp(&time(b)));
        let fastest = fastest.unwrap_or(self.best);
        if time(fastest) < BETTER * time(self.best) {
            self.best = fastest;
        }
        self.next = self.best;
        if self.samples.is_multiple_of(COPY_TRIAL_SAMPLES) {
            let trial = self.samples / COPY_TRIAL_SAMPLES;
            let others: [CopyPath; 2] = match self.best {
                CopyPath::Kernel => [CopyPath::Pipe, CopyPath::Past],
                CopyPath::Pipe => [CopyPath::Past, CopyPath::Kernel],
                CopyPath::Past => [CopyPath::Pipe, CopyPath::Kernel],
            };
            let other = others[trial as usize % 2];
            let slow = time(other) > WORSE * time(self.best);
            if paths.contains(&other)
                && (!slow || (trial / 2).is_multiple_of(COPY_SLOW_TRIAL_FACTOR / 2))
            {
                self.next = other;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates messages of a length; returns how many came on each path.
    fn simulate(paths: &mut CopyPaths, len: usize, times: [u64; 3], messages: u32) -> [u32; 3] {
        let mut came = [0; 3];
        for _ in 0..messages {
            let path = wanted(paths.preferences(), len);
            came[path as usize] += 1;
            paths.note(path, len, Duration::from_nanos(times[path as usize]));
        }
        came
    }

    #[test]
    fn the_fastest_way_is_found_and_found_again() {
        for best in PATHS {
            let mut paths = CopyPaths::new(true);
            let mut times = [6000, 5000, 7000];
            times[best as usize] = 3000;
            let came = simulate(&mut paths, 40_000, times, 4000);
            assert!((3800..4000).contains(&came[best as usize]), "{came:?}");
            // The machine has changed.
            times = [4000, 6000, 6500];
            times[best as usize] = 18_000;
            let next = if best == CopyPath::Kernel { CopyPath::Pipe } else { CopyPath::Kernel };
            let came = simulate(&mut paths, 40_000, times, 8000);
            assert!(came[next as usize] >= 6000, "{best:?}: {came:?}");
            // Other sizes are not affected.
            let came = simulate(&mut paths, 400_000, [50_000, 30_000, 40_000], 1000);
            assert!(came[CopyPath::Pipe as usize] >= 950, "{came:?}");
        }
    }

    #[test]
    fn a_way_that_was_bad_is_found_when_it_is_good() {
        let mut paths = CopyPaths::new(true);
        simulate(&mut paths, 1 << 15, [5000, 20_000, 9000], 1000);
        let came = simulate(&mut paths, 1 << 15, [5000, 3000, 9000], 10_000);
        assert!(came[CopyPath::Pipe as usize] > 5000, "{came:?}");
    }

    #[test]
    fn without_the_kernel_there_are_two_ways() {
        let mut paths = CopyPaths::new(false);
        assert_eq!(wanted(paths.preferences(), 1 << 20), CopyPath::Pipe);
        let came = simulate(&mut paths, 1 << 20, [0, 4000, 1000], 1000);
        assert!(came[0] == 0 && came[CopyPath::Past as usize] > 900, "{came:?}");
    }

    #[test]
    fn ways_that_are_alike_are_not_changed_all_the_time() {
        let mut paths = CopyPaths::new(true);
        simulate(&mut paths, 1 << 20, [1000; 3], 100);
        let first = wanted(paths.preferences(), 1 << 20);
        let mut times = [950; 3];
        times[first as usize] = 1000;
        let came = simulate(&mut paths, 1 << 20, times, 640);
        assert!(came[first as usize] >= 600, "{came:?}");
    }

    #[test]
    fn a_message_that_comes_late_the_old_way_is_no_trial() {
        let mut paths = CopyPaths::new(true);
        simulate(
            &mut paths,
            1 << 16,
            [1000, 1200, 1300],
            burst(class(1 << 16)) * COPY_TRIAL_SAMPLES - 1,
        );
        let next = |paths: &CopyPaths| wanted(paths.preferences(), 1 << 16);
        assert_eq!(next(&paths), CopyPath::Kernel);
        let note = |paths: &mut CopyPaths, path, time| {
            paths.note(path, 1 << 16, Duration::from_nanos(time));
        };
        note(&mut paths, CopyPath::Kernel, 1000);
        assert_eq!(next(&paths), CopyPath::Past);
        note(&mut paths, CopyPath::Kernel, 1000);
        assert_eq!(next(&paths), CopyPath::Past, "it was under way already");
        (0..burst(class(1 << 16))).for_each(|_| note(&mut paths, CopyPath::Past, 2000));
        assert_eq!(next(&paths), CopyPath::Kernel, "now it was tried");
    }
}
