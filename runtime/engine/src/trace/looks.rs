//! Repeats the diagnosis before a rank is reported as slow, or a circle of waits as a cycle: ranks that the system does
//! not run have published old waits, which easily form a circle.

use std::time::{Duration, Instant};

use super::diagnose::{CauseClass, PATIENCE, RankStanding, diagnose, names};
use crate::tunables::CYCLE_DIAGNOSES;

/// The time that a process has been ready to run without a core, in nanoseconds, if the system counts it.
type QueuedNanos = Option<u64>;

/// The first state of the ranks, and the number of diagnoses since.
#[derive(Default)]
pub(crate) struct RepeatedDiagnosis {
    first: Option<(Instant, Vec<RankStanding>, Vec<QueuedNanos>)>,
    looks: u32,
}

impl RepeatedDiagnosis {
    /// Returns the cause for which `asking` waits, as the end of an error text; `None` if the state has to be added
    /// again after a `DIAGNOSIS_INTERVAL`.
    pub(crate) fn add(&mut self, seen: Vec<RankStanding>, asking: u32) -> Option<String> {
        let queued = seen.iter().map(|s| s.pid.and_then(queued)).collect();
        self.add_at(seen, queued, asking, Instant::now())
    }

    fn add_at(
        &mut self,
        seen: Vec<RankStanding>,
        queued: Vec<QueuedNanos>,
        asking: u32,
        at: Instant,
    ) -> Option<String> {
        let Some(verdict) = diagnose(&seen, Some(asking)) else { return Some(String::new()) };
        if !matches!(verdict.class, CauseClass::Slow | CauseClass::Cycle) {
            return Some(format!("; {verdict}"));
        }
        self.looks += 1;
        let Some((began, before, queued_before)) = &self.first else {
            self.first = Some((at, seen, queued));
            return None;
        };
        let passed = at.duration_since(*began);
        let moved =
            seen.iter().zip(before).filter(|(now, then)| now.rank != asking && moved(now, then));
        let moved: Vec<u32> = moved.map(|(now, _)| now.rank).collect();
        let waits = queued.iter().zip(queued_before).map(|(now, then)| match (now, then) {
            (Some(now), Some(then)) => Duration::from_nanos(now.saturating_sub(*then)),
            _ => Duration::ZERO,
        });
        // A quarter of the time is more than a turn now and then.
        let coreless: Vec<(u32, Duration)> = seen.iter().map(|s| s.rank).zip(waits).collect();
        let coreless: Vec<(u32, Duration)> =
            coreless.into_iter().filter(|(_, wait)| *wait * 4 >= passed).collect();
        let cause = match verdict.class {
            CauseClass::Slow => verdict.to_string(),
            _ if moved.is_empty() && coreless.is_empty() => {
                // Nothing moves: it may be one.
                return (self.looks >= CYCLE_DIAGNOSES).then(|| format!("; {verdict}"));
            }
            _ => {
                let slow: Vec<u32> = match moved.is_empty() {
                    true => coreless.iter().map(|(rank, _)| *rank).collect(),
                    false => moved.clone(),
                };
                let are = if slow.len() == 1 { "is" } else { "are" };
                let how =
                    if moved.is_empty() { "" } else { ", and went on while this was found out" };
                format!("{} {are} slow{how}; {PATIENCE}", names(&slow))
            }
        };
        Some(format!("; {cause}{}", without(&coreless, passed)))
    }
}

/// Names the ranks that were ready to run and could not.
fn without(coreless: &[(u32, Duration)], passed: Duration) -> String {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let said: Vec<String> = coreless
        .iter()
        .take(4)
        .map(|(rank, wait)| format!("rank {rank} for {}", ms((*wait).min(passed))))
        .collect();
    match said.is_empty() {
        true => String::new(),
        false => format!(
            "; in the last {} without a core, though ready to run: {}",
            ms(passed),
            said.join(", ")
        ),
    }
}

/// Returns true if a rank went on between two looks.
fn moved(now: &RankStanding, then: &RankStanding) -> bool {
    now.calls != then.calls || now.waiting != then.waiting
}

/// Returns the time that a process has waited for a core since it began.
fn queued(pid: i32) -> QueuedNanos {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::diagnose::RankCondition;
    use super::super::{AwaitedEvent, WaitDescription};
    use super::*;
    use crate::tunables::DIAGNOSIS_INTERVAL;

    /// Describes a rank in a call that waits for another.
    fn waits(rank: u32, peer: u32, call: u64, step: u32) -> RankStanding {
        let (site, since) = ("ring.algo:6".into(), 1);
        let what = AwaitedEvent::Message;
        let wait = WaitDescription {
            peer,
            others: vec![],
            channel: 0,
            what,
            call,
            digest: 7,
            step,
            pass: 0,
            site,
            since,
        };
        let (condition, recent) = (RankCondition::Running, vec![]);
        RankStanding { rank, pid: None, condition, calls: call, recent, waiting: Some(wait) }
    }

    fn circle(step: u32) -> Vec<RankStanding> {
        vec![waits(0, 1, 5, 3), waits(1, 2, 5, step), waits(2, 0, 5, 3)]
    }

    /// Returns the final text, and the number of diagnoses before it; one rank is without a core
    /// for `share` of the time.
    fn diagnosed(looks: impl Fn(u32) -> Vec<RankStanding>, share: f64) -> (String, u32) {
        let (mut all, began) = (RepeatedDiagnosis::default(), Instant::now());
        for look in 0..50 {
            let queued = (f64::from(look) * 1e7 * share) as u64;
            let at = began + DIAGNOSIS_INTERVAL * look;
            let seen = looks(look);
            let clocks = vec![None, Some(queued), None];
            if let Some(text) = all.add_at(seen, clocks, 0, at) {
                return (text, look);
            }
        }
        panic!("no end");
    }

    #[test]
    fn a_circle_in_which_nothing_moves_is_a_cycle() {
        let (text, look) = diagnosed(|_| circle(3), 0.1);
        assert!(text.starts_with("; a cycle: rank 0 waits for rank 1 (call 5"), "{text}");
        assert_eq!(look, CYCLE_DIAGNOSES - 1);
    }

    #[test]
    fn a_circle_that_moves_is_slow() {
        let (text, look) = diagnosed(|look| circle(3 + look / 4), 0.0);
        assert_eq!(look, 4, "{text}");
        assert_eq!(
            text,
            format!("; rank 1 is slow, and went on while this was found out; {PATIENCE}")
        );
    }

    #[test]
    fn a_rank_without_a_core_is_slow_and_for_how_long_is_said() {
        let (text, look) = diagnosed(|_| circle(3), 0.8);
        assert_eq!(look, 1, "{text}");
        assert!(text.starts_with("; rank 1 is slow; if it is only slow"), "{text}");
        let said = "; in the last 10.0 ms without a core, though ready to run: rank 1 for 8.0 ms";
        assert!(text.ends_with(said), "{text}");
    }

    /// Rank 2 waits in call 4 for rank 0, which is in call 5: it was sent, and no circle is closed.
    #[test]
    fn what_was_sent_in_an_earlier_call_is_not_owed() {
        let seen = || vec![waits(0, 1, 5, 3), waits(1, 2, 5, 0), waits(2, 0, 4, 13)];
        let (text, look) = diagnosed(|_| seen(), 0.0);
        assert_eq!(look, 1, "{text}");
        let wanted =
            "; rank 2 is slow: what it waits for in call 4 was sent, rank 0 has gone on to call 5";
        assert!(text.starts_with(wanted), "{text}");
        assert!(!text.contains("cycle"), "{text}");
    }

    #[test]
    fn graver_causes_need_no_second_look() {
        let stopped = || {
            let mut seen = circle(3);
            seen[2].condition = RankCondition::Stopped;
            seen
        };
        let (text, look) = diagnosed(|_| stopped(), 0.9);
        assert!(look == 0 && text.starts_with("; rank 2 is stopped"), "{text}");
    }

    #[test]
    fn the_system_tells_how_long_a_process_waited_for_a_core() {
        let own = std::process::id() as i32;
        // Not every kernel counts.
        let counts = std::path::Path::new("/proc/self/schedstat").exists();
        assert_eq!(queued(own).is_some(), counts);
        assert_eq!(queued(-1), None);
    }
}
