//! Finds the ranks to blame when nothing moves, by a pure function of what is known of each rank.
//!
//! Ranks that wait form a graph, rank to peer (several peers where lanes wait for different ones). Its
//! ends are ranks that wait for no other, and those are the causes: dead, stopped, absent, gone, late or
//! slow. A rank is slow too that waits in one call for ranks which have gone on to a later one: what they owed it they
//! have sent. Only if the graph has no such end is it a cycle. A call that differs between ranks is the cause
//! before all of these: the digest of a call covers all calls before, so that it never differs by chance.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::tunables::{CHAIN_LINKS_MAX, NAMED_RANKS_MAX};
use roundelay_net::transport::shm::CALLS;
use roundelay_support::waiting::WaitDescription;

/// The remedy if nothing else helps.
pub(super) const PATIENCE: &str = "if it is only slow, allow more time (`--timeout`)";

/// The condition of a rank: running, or the reason for which it takes no part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankCondition {
    /// It ended, in words.
    Died(String),
    /// A signal or a debugger stopped it.
    Stopped,
    /// It has not joined.
    Absent,
    /// It left the job.
    Left,
    /// It is there.
    Running,
    /// Nothing is known.
    Unknown,
}

impl RankCondition {
    /// Returns the gravity of the condition: 0 for the worst.
    pub(super) fn rank(&self) -> u8 {
        match self {
            RankCondition::Died(_) => 0,
            RankCondition::Stopped => 1,
            RankCondition::Absent => 2,
            RankCondition::Running => 3,
            RankCondition::Left => 4,
            RankCondition::Unknown => 5,
        }
    }
}

/// A call that a rank made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenCall {
    /// Its number, from 1.
    pub call: u64,
    /// A digest of it and all calls before.
    pub digest: u32,
    /// The call, if it is known.
    pub what: Option<String>,
}

impl SeenCall {
    /// Returns the calls of a rank up to the latest that others can still compare: those that have a digest.
    pub(crate) fn recent(latest: u64, digest: impl Fn(u64) -> Option<u32>) -> Vec<SeenCall> {
        let first = latest.saturating_sub(CALLS - 1).max(1);
        let seen = |call| Some(SeenCall { call, digest: digest(call)?, what: None });
        (first..=latest).filter_map(seen).collect()
    }
}

/// The state of a rank, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStanding {
    /// The rank.
    pub rank: u32,
    /// Its process.
    pub pid: Option<i32>,
    /// The condition of the rank.
    pub condition: RankCondition,
    /// Calls that it made.
    pub calls: u64,
    /// The latest of them, oldest first.
    pub recent: Vec<SeenCall>,
    /// The wait it is in.
    pub waiting: Option<WaitDescription>,
}

/// The kinds of causes, the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseClass {
    /// Ranks make different calls.
    Mismatch,
    /// A process ended.
    Died,
    /// A process is stopped.
    Stopped,
    /// A rank has not joined.
    Absent,
    /// A rank left.
    Left,
    /// A rank has not made the call.
    Late,
    /// A rank made the call, and neither waits nor ends.
    Slow,
    /// Nothing is known of a rank that is waited for.
    Unknown,
    /// Ranks wait for each other in a circle.
    Cycle,
    /// What a rank has sent takes long to come to another: the ranks are those two, the sender first.
    Link,
    /// Processes wait for each other in calls of different communicators: the ranks are those of the first one.
    Deadlock,
}

/// A diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceVerdict {
    /// The kind of the cause.
    pub class: CauseClass,
    /// The ranks whose fault it is: ascending; of a cycle in its order, from the least.
    pub ranks: Vec<u32>,
    /// The ranks that wait for them, directly or through others: ascending.
    pub waiters: Vec<u32>,
    /// The cause in words, with the remedy.
    pub cause: String,
    /// The ranks that wait and those they wait for, in words; empty if the cause names them.
    pub chain: String,
}

impl std::fmt::Display for TraceVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.cause)?;
        if !self.chain.is_empty() {
            write!(f, "; {}", self.chain)?;
        }
        Ok(())
    }
}

/// Finds the cause for which ranks wait, seen from one of them or from outside. `None` if no rank waits
/// and nothing is wrong.
pub fn diagnose(standings: &[RankStanding], asking: Option<u32>) -> Option<TraceVerdict> {
    let graph = WaitGraph::new(standings);
    if let Some(verdict) = graph.mismatch() {
        return Some(verdict);
    }
    let found = |ranks: BTreeSet<u32>| -> Vec<(CauseClass, u32)> {
        ranks.into_iter().filter_map(|r| graph.fault(r).map(|class| (class, r))).collect()
    };
    let mut faults = found(graph.reached(asking));
    // A wait that ends at a rank of which nothing is known may go on, to one that has a known fault.
    let is_unknown =
        |faults: &[(CauseClass, u32)]| faults.iter().all(|(c, _)| *c == CauseClass::Unknown);
    if !faults.is_empty() && is_unknown(&faults) {
        faults.extend(found(graph.grave()));
    }
    // No rank is blamed as late or slow where another is dead: it may not wait for the dead one yet.
    if faults.iter().all(|(class, _)| matches!(class, CauseClass::Late | CauseClass::Slow)) {
        let dead = found(graph.grave()).into_iter().filter(|(class, _)| *class == CauseClass::Died);
        faults.extend(dead.collect::<Vec<_>>());
    }
    let class = faults.iter().map(|(class, _)| *class).min();
    let Some(class) = class else { return graph.cycle(asking) };
    let culprits = faults.into_iter().filter(|(c, _)| *c == class).map(|(_, r)| r);
    let culprits: Vec<u32> = culprits.collect();
    let waiters = graph.waiters(&culprits);
    let chain = graph.chain(asking, &culprits, &waiters);
    Some(TraceVerdict {
        class,
        cause: graph.cause(class, &culprits),
        ranks: culprits,
        waiters,
        chain,
    })
}

/// The graph of waits, from rank to peer.
struct WaitGraph<'a> {
    ranks: BTreeMap<u32, &'a RankStanding>,
}

impl<'a> WaitGraph<'a> {
    fn new(standings: &'a [RankStanding]) -> Self {
        WaitGraph { ranks: standings.iter().map(|s| (s.rank, s)).collect() }
    }

    /// Returns the wait of a rank that can go on.
    fn wait(&self, rank: u32) -> Option<&'a WaitDescription> {
        let standing = self.ranks.get(&rank).filter(|s| s.condition == RankCondition::Running)?;
        standing.waiting.as_ref()
    }

    /// Returns the ranks that owe something to one that waits.
    fn peers(&self, rank: u32) -> impl Iterator<Item = u32> {
        let owing = move |w: &'a WaitDescription| {
            w.peers(rank).filter(move |&peer| !self.gone_on(peer, w.call))
        };
        self.wait(rank).into_iter().flat_map(owing)
    }

    /// Returns true if a rank has made a later call: it has done all that the other one needs.
    fn gone_on(&self, rank: u32, call: u64) -> bool {
        let standing = self.ranks.get(&rank);
        standing.is_some_and(|s| s.condition == RankCondition::Running && s.calls > call)
    }

    /// Returns a rank for which one waits that has sent what it owes, if that is so of all for which it
    /// waits.
    fn served(&self, rank: u32) -> Option<(u32, &'a WaitDescription)> {
        let wait = self.wait(rank)?;
        let peer = wait.peers(rank).next()?;
        self.peers(rank).next().is_none().then_some((peer, wait))
    }

    fn all_waiters(&self) -> impl Iterator<Item = u32> {
        self.ranks.keys().copied().filter(|&r| self.wait(r).is_some())
    }

    /// Returns `asking` and all ranks that it waits for, directly or through others; without `asking`, the same of all
    /// that wait; all ranks if none waits.
    fn reached(&self, asking: Option<u32>) -> BTreeSet<u32> {
        let mut queue: VecDeque<u32> = match asking.filter(|&r| self.wait(r).is_some()) {
            Some(rank) => [rank].into(),
            None => self.all_waiters().collect(),
        };
        if queue.is_empty() {
            return self.grave();
        }
        let mut reached = BTreeSet::new();
        while let Some(rank) = queue.pop_front() {
            if reached.insert(rank) {
                queue.extend(self.peers(rank));
            }
        }
        reached
    }

    /// Returns all ranks that are dead, stopped or absent.
    fn grave(&self) -> BTreeSet<u32> {
        let grave = |s: &&&RankStanding| s.condition.rank() < RankCondition::Running.rank();
        self.ranks.values().filter(grave).map(|s| s.rank).collect()
    }

    /// Returns the fault of a rank, if others wait for it and it waits for none.
    fn fault(&self, rank: u32) -> Option<CauseClass> {
        let Some(standing) = self.ranks.get(&rank) else { return Some(CauseClass::Unknown) };
        Some(match standing.condition {
            RankCondition::Died(_) => CauseClass::Died,
            RankCondition::Stopped => CauseClass::Stopped,
            RankCondition::Absent => CauseClass::Absent,
            RankCondition::Left => CauseClass::Left,
            RankCondition::Unknown => CauseClass::Unknown,
            RankCondition::Running if self.served(rank).is_some() => CauseClass::Slow,
            RankCondition::Running if standing.waiting.is_some() => return None,
            RankCondition::Running if standing.calls < self.wanted(rank) => CauseClass::Late,
            RankCondition::Running => CauseClass::Slow,
        })
    }

    /// Returns the latest call in which a rank is waited for.
    fn wanted(&self, rank: u32) -> u64 {
        let waits = self.all_waiters().filter(|&r| self.peers(r).any(|p| p == rank));
        waits.filter_map(|r| self.wait(r)).map(|w| w.call).max().unwrap_or(0)
    }

    /// Returns the ranks that wait for one of these ranks, or for one that does.
    fn waiters(&self, culprits: &[u32]) -> Vec<u32> {
        let mut found: BTreeSet<u32> = culprits.iter().copied().collect();
        loop {
            let before = found.len();
            let more: Vec<u32> = self
                .all_waiters()
                .filter(|r| !found.contains(r) && self.peers(*r).any(|p| found.contains(&p)))
                .collect();
            found.extend(more);
            if found.len() == before {
                break;
            }
        }
        found.into_iter().filter(|r| !culprits.contains(r)).collect()
    }

    /// Returns the shortest way from a rank to one of the culprits.
    fn path(&self, from: u32, culprits: &[u32]) -> Vec<u32> {
        let mut before: BTreeMap<u32, u32> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(rank) = queue.pop_front() {
            if culprits.contains(&rank) {
                let mut path = vec![rank];
                while let Some(&previous) = path.last().and_then(|r| before.get(r)) {
                    path.push(previous);
                }
                path.reverse();
                return path;
            }
            for peer in self.peers(rank) {
                if peer != from && !before.contains_key(&peer) {
                    before.insert(peer, rank);
                    queue.push_back(peer);
                }
            }
        }
        Vec::new()
    }

    fn chain(&self, asking: Option<u32>, culprits: &[u32], waiters: &[u32]) -> String {
        let asked = asking.filter(|r| waiters.contains(r)).map(|r| self.path(r, culprits));
        // A rank that waits for the culprit itself adds nothing: the chain of the one that is furthest
        // away shows more.
        let path = asked.filter(|path| path.len() > 2).unwrap_or_else(|| {
            let paths = waiters.iter().take(64).map(|&r| self.path(r, culprits));
            paths.rev().max_by_key(Vec::len).unwrap_or_default()
        });
        let who = match culprits {
            [_] => "it",
            _ => "them",
        };
        let waits = if waiters.len() == 1 { "waits" } else { "wait" };
        match (waiters.len(), path.len()) {
            (0, _) => String::new(),
            (1, 0..=2) if asking.is_some() => String::new(),
            (_, 0..=2) => format!("{} {waits} for {who}", names(waiters)),
            _ => format!("{} {waits} for {who}: {}", names(waiters), self.links(&path)),
        }
    }

    /// Describes a path: `rank 0 waits for rank 3 (step 1, ring.algo:6), which waits for ...`
    fn links(&self, path: &[u32]) -> String {
        let mut text = String::new();
        let links = path.len().saturating_sub(1);
        for (i, pair) in path.windows(2).enumerate() {
            // A long chain is shown by its beginning and its end.
            if links > CHAIN_LINKS_MAX
                && i >= CHAIN_LINKS_MAX / 2
                && i < links - CHAIN_LINKS_MAX / 2
            {
                if i == CHAIN_LINKS_MAX / 2 {
                    let _ = write!(text, ", and so on over {} more ranks", links - CHAIN_LINKS_MAX);
                }
                continue;
            }
            let [from, to] = pair else { continue };
            let skipped = links > CHAIN_LINKS_MAX && i == links - CHAIN_LINKS_MAX / 2;
            let _ = match i {
                0 => write!(text, "rank {from} waits for rank {to}"),
                _ if skipped => write!(text, " to rank {from}, which waits for rank {to}"),
                _ => write!(text, ", which waits for rank {to}"),
            };
            if let Some(wait) = self.wait(*from) {
                text += &location(wait);
            }
        }
        text
    }

    fn name(&self, rank: u32) -> String {
        match self.ranks.get(&rank).and_then(|s| s.pid) {
            Some(pid) => format!("rank {rank} (process {pid})"),
            None => format!("rank {rank}"),
        }
    }

    fn cause(&self, class: CauseClass, culprits: &[u32]) -> String {
        let first = culprits.first().copied().unwrap_or(0);
        let who = if let [one] = culprits { self.name(*one) } else { names(culprits) };
        let are = |one: &'static str, many: &'static str| match culprits {
            [_] => one,
            _ => many,
        };
        let (is, has) = (are("is", "are"), are("has", "have"));
        match class {
            CauseClass::Died => match self.ranks.get(&first).map(|s| &s.condition) {
                Some(RankCondition::Died(how)) if culprits.len() == 1 => {
                    format!("{who} has died: {how}")
                }
                Some(RankCondition::Died(how)) => {
                    format!("{who} have died; of rank {first}: {how}")
                }
                _ => format!("{who} {has} died"),
            },
            CauseClass::Stopped => {
                let pids = culprits.iter().filter_map(|r| self.ranks.get(r)?.pid);
                let pids: String = pids.fold(String::new(), |t, pid| format!("{t} {pid}"));
                let goes = are("its process", "their processes");
                let who = names(culprits);
                // Of a process on another machine no number is known.
                let where_to = if pids.is_empty() { " there" } else { "" };
                format!("{who} {is} stopped: let {goes} go on with `kill -CONT{pids}`{where_to}")
            }
            CauseClass::Absent => format!("{who} {has} not joined the job; {PATIENCE}"),
            CauseClass::Left => format!("{who} {has} left the job"),
            CauseClass::Late => {
                format!("{who} {has} not made call {}; {PATIENCE}", self.wanted(first))
            }
            CauseClass::Slow => match self.served(first) {
                Some((peer, wait)) => format!(
                    "{who} {is} slow: what {} in call {} was sent, rank {peer} has gone on to call {}; \
                     {PATIENCE}",
                    are("it waits for", "they wait for"),
                    wait.call,
                    self.ranks.get(&peer).map_or(0, |s| s.calls),
                ),
                None => format!("{who} {is} alive and {has} made the same calls; {PATIENCE}"),
            },
            CauseClass::Unknown => {
                let what = are("what it does", "what they do");
                format!("{who} {has} not reported {what}; {PATIENCE}")
            }
            CauseClass::Mismatch | CauseClass::Cycle | CauseClass::Link | CauseClass::Deadlock => {
                String::new()
            }
        }
    }

    /// Returns a verdict on the first call that is not the same on all ranks, if there is one.
    fn mismatch(&self) -> Option<TraceVerdict> {
        let mut calls: BTreeMap<u64, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for (rank, standing) in &self.ranks {
            for seen in &standing.recent {
                calls.entry(seen.call).or_default().entry(seen.digest).or_default().push(*rank);
            }
        }
        let (call, sides) = calls.into_iter().find(|(_, sides)| sides.len() > 1)?;
        let mut sides: Vec<Vec<u32>> = sides.into_values().collect();
        sides.sort_by_key(|ranks| (std::cmp::Reverse(ranks.len()), ranks[0]));
        let what = |ranks: &[u32]| {
            let recent = ranks.iter().filter_map(|r| self.ranks.get(r)).flat_map(|s| &s.recent);
            recent.filter(|s| s.call == call).find_map(|s| s.what.clone())
        };
        // If no side is larger than the others, none is known to be right.
        let undecided = sides.iter().all(|side| side.len() == sides[0].len());
        let odd = if undecided { &sides[..] } else { &sides[1..] };
        let mut ranks: Vec<u32> = odd.iter().flatten().copied().collect();
        ranks.sort_unstable();
        let said: Vec<String> = sides
            .iter()
            .rev()
            .map(|side| {
                let makes = if side.len() == 1 { "makes" } else { "make" };
                let what = what(side).unwrap_or_else(|| "another one".into());
                format!("{} {makes} {what}", names(side))
            })
            .collect();
        let cause = format!("call {call} is not the same on all ranks: {}", said.join(", "));
        let waiters = self.all_waiters().filter(|r| !ranks.contains(r)).collect();
        Some(TraceVerdict {
            class: CauseClass::Mismatch,
            ranks,
            waiters,
            cause,
            chain: String::new(),
        })
    }

    /// Returns a verdict of a cycle: every rank that is reached waits for another.
    fn cycle(&self, asking: Option<u32>) -> Option<TraceVerdict> {
        let mut at = asking.filter(|&r| self.wait(r).is_some()).or(self.all_waiters().next())?;
        let mut path = Vec::new();
        while !path.contains(&at) {
            path.push(at);
            // A rank that waits for its own lanes only.
            let Some(next) = self.peers(at).next() else { break };
            at = next;
        }
        let mut cycle = path.split_off(path.iter().position(|&r| r == at)?);
        let least = cycle.iter().enumerate().min_by_key(|(_, r)| **r).map_or(0, |(i, _)| i);
        cycle.rotate_left(least);
        let mut round = cycle.clone();
        round.extend(cycle.first());
        let cause = format!(
            "a cycle: {}; a proved plan has none, so please report this with the plan \
             (`roundelay show --stage plan`)",
            self.links(&round)
        );
        let waiters = self.waiters(&cycle);
        Some(TraceVerdict {
            class: CauseClass::Cycle,
            ranks: cycle,
            waiters,
            cause,
            chain: String::new(),
        })
    }
}

fn location(wait: &WaitDescription) -> String {
    match wait.site.as_str() {
        "" => format!(" (call {})", wait.call),
        site => format!(" (call {}, step {}, {site})", wait.call, wait.step),
    }
}

/// Names ranks: `rank 1`, `ranks 0, 2 and 3`.
pub(super) fn names(ranks: &[u32]) -> String {
    let list = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [most @ .., last] if ranks.len() <= NAMED_RANKS_MAX => {
            format!("ranks {} and {last}", list(most))
        }
        _ => format!(
            "ranks {} and {} others",
            list(&ranks[..NAMED_RANKS_MAX]),
            ranks.len() - NAMED_RANKS_MAX
        ),
    }
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
