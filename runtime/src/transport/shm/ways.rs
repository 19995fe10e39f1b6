//! Which way private memory comes sooner: read through the kernel, or pushed through cells.
//!
//! That depends on the size of a message, on the caches that the two cores share, and on what else they do; on virtual
//! machines it changes while a job runs. So the receiver of a connection notes how long each way takes,
//! for each order of magnitude by itself, and tells the sender in one word what it wishes for. Which way a
//! message comes changes no result.

use std::time::Duration;

/// The shortest messages are of the first class, each further one has twice the length.
const FIRST: u32 = 13;
const CLASSES: usize = 9;
/// So many messages come one way and the other by turns at first.
const TURNS: u32 = 8;
/// Then one of so many comes the other way; fewer where that was much slower.
const TRIAL: u32 = 64;
const RARE: u32 = 512;
/// The other way must be so much faster to be preferred.
const BETTER: f32 = 0.9;
const WORSE: f32 = 1.5;

/// What is known of the messages of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    /// Times of the ways, by the kernel and by cells, a byte; 0 while unknown.
    times: [f32; 2],
    noted: u32,
    /// The way that is preferred, and whether the other one is to be tried.
    cells: bool,
    tries: bool,
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Ways([Class; CLASSES]);

/// The class of a message, of so many bytes.
#[inline]
fn class(len: usize) -> usize {
    (len.max(1).ilog2().saturating_sub(FIRST) as usize).min(CLASSES - 1)
}

/// Whether messages of so many bytes are to be pushed through cells, by what the receiver wishes for.
#[inline]
pub(super) fn wanted(wishes: u64, len: usize) -> bool {
    wishes >> class(len) & 1 != 0
}

impl Ways {
    /// What to wish for if the kernel does not let one process read the other's memory.
    pub(super) const CELLS: u64 = (1 << CLASSES) - 1;

    /// Notes how long a message took that came through cells or by the kernel; gives what is to be wished for
    /// now: a bit a class.
    pub(super) fn note(&mut self, cells: bool, len: usize, took: Duration) -> u64 {
        let class = &mut self.0[class(len)];
        let time = took.as_nanos() as f32 / len.max(1) as f32;
        let known = &mut class.times[usize::from(cells)];
        // A rank that was not running says nothing of the way.
        *known =
            if *known == 0.0 { time } else { *known + (time.min(4.0 * *known) - *known) / 4.0 };
        class.noted = class.noted.wrapping_add(1);
        if class.noted <= TURNS {
            class.cells = !cells;
        }
        if class.noted >= TURNS {
            let [kernel, through] = class.times;
            let (now, other) = if class.cells { (through, kernel) } else { (kernel, through) };
            class.cells ^= other != 0.0 && other < BETTER * now;
            let every = if other > WORSE * now { RARE } else { TRIAL };
            class.tries = match class.tries {
                true => cells == class.cells,
                false => class.noted.is_multiple_of(every),
            };
        }
        let bits = self.0.iter().enumerate().map(|(i, c)| u64::from(c.cells ^ c.tries) << i);
        bits.fold(0, |all, bit| all | bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays so many messages of a length; says how many came through cells.
    fn play(ways: &mut Ways, wishes: &mut u64, len: usize, times: [u64; 2], messages: u32) -> u32 {
        let mut through = 0;
        for _ in 0..messages {
            let cells = wanted(*wishes, len);
            through += u32::from(cells);
            *wishes = ways.note(cells, len, Duration::from_nanos(times[usize::from(cells)]));
        }
        through
    }

    #[test]
    fn the_faster_way_is_found_and_found_again() {
        let (mut ways, mut wishes) = (Ways::default(), 0);
        let through = play(&mut ways, &mut wishes, 40_000, [5000, 3000], 1000);
        assert!((970..1000).contains(&through), "{through} of 1000");
        // The machine has changed.
        let through = play(&mut ways, &mut wishes, 40_000, [5000, 9000], 1000);
        assert!((1..100).contains(&through), "{through}");
        // Other sizes know nothing of it.
        let through = play(&mut ways, &mut wishes, 400_000, [50_000, 30_000], 1000);
        assert!(through >= 970, "{through}");
    }

    #[test]
    fn ways_that_are_alike_are_not_changed_all_the_time() {
        let (mut ways, mut wishes) = (Ways::default(), 0);
        play(&mut ways, &mut wishes, 1 << 20, [1000, 1000], 100);
        let first = wanted(wishes, 1 << 20);
        let through = play(&mut ways, &mut wishes, 1 << 20, [1000, 950], 640);
        let rare = if first { 640 - through } else { through };
        assert!(rare <= 20, "{rare} of 640 came the other way");
    }

    #[test]
    fn a_message_that_comes_late_the_old_way_is_no_trial() {
        let (mut ways, mut wishes) = (Ways::default(), 0);
        play(&mut ways, &mut wishes, 1 << 16, [1000, 1200], 63);
        let tries = |wishes| wanted(wishes, 1 << 16);
        assert!(!tries(wishes));
        wishes = ways.note(false, 1 << 16, Duration::from_nanos(1000));
        assert!(tries(wishes));
        wishes = ways.note(false, 1 << 16, Duration::from_nanos(1000));
        assert!(tries(wishes), "it was under way already");
        wishes = ways.note(true, 1 << 16, Duration::from_nanos(2000));
        assert!(!tries(wishes), "now it was tried");
    }
}
