//! The proof: at every point of failure the survivors end alike.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::machine::{ContributionSum, FailureMachine, HeldSum, SumFault};
use super::parts::{NamedMessage, TolerantHeader, TolerantPart, messages};
use super::points::FailurePoints;
use super::rank_bits::{all, bit, named};
use crate::instance::ProgramInstance;
use crate::num::{count, index, wide};

/// The most points, possible or not, that are looked at.
const MOST_POINTS: u64 = 1 << 20;
/// The most steps of all runs together.
const MOST_WORK: u64 = 1 << 28;

/// The reason for which a point of failure is not tolerated. Places are of the result.
#[derive(Debug, Clone, Copy)]
enum ToleranceFault {
    /// A rank's chunk holds nothing.
    Nothing { rank: u32, chunk: u32 },
    /// A rank's chunk holds a sum that cannot be meant.
    Spoilt { rank: u32, chunk: u32, fault: SumFault },
    /// Two chunks count different ranks.
    Differ { first: (u32, u32, u64), other: (u32, u32, u64) },
    /// A survivor is not counted.
    Survivor { rank: u32, counts: u64, left_out: u32 },
    /// Two ranks add in different orders.
    Order { first: u32, other: u32, chunk: u32 },
    /// The failed rank may have ended with another result.
    Ended { rank: u32, counts: u64 },
}

/// A point of failure that is not tolerated.
struct UntoleratedPoint {
    rank: u32,
    /// Messages of the failed rank to each rank that arrive.
    arrive: Vec<usize>,
    wrong: ToleranceFault,
}

impl UntoleratedPoint {
    /// Returns what is less of a point that shows more: survivors that do not agree say more than a rank that may have
    /// ended with something else, few messages more than many.
    fn weight(&self) -> (bool, usize) {
        (matches!(self.wrong, ToleranceFault::Ended { .. }), self.arrive.iter().sum())
    }
}

/// Proves the parts of all ranks at every point of failure; returns the number of points.
pub(super) fn prove(
    instance: &ProgramInstance,
    header: &TolerantHeader,
    parts: &[TolerantPart],
    spans: &[Span],
    clause: Span,
) -> Result<u64, Box<Diagnostic>> {
    let shape = &instance.shape;
    let machine = FailureMachine::new(header, parts).map_err(|round| {
        let text =
            format!("on {shape} ranks, what is sent in step {round} is not what is received");
        Box::new(
            Diagnostic::error(codes::FAILURES, text)
                .label(clause, "so no failure can be proved to be tolerated")
                .help("this is a fault of the compiler, please report it"),
        )
    })?;
    let sent = messages(parts, header.ranks);
    let of = |rank: u32| FailurePoints::new(parts, index(rank), &sent[index(rank)]);
    let points: Vec<FailurePoints<'_>> = (0..header.ranks).map(of).collect();
    let looked = points.iter().fold(0u64, |sum, p| sum.saturating_add(p.combinations()));
    if looked > MOST_POINTS || looked.saturating_mul(wide(machine.work())) > MOST_WORK {
        return Err(Box::new(
            Diagnostic::error(
                codes::FAILURES,
                format!("on {shape} ranks there are too many points of failure: up to {looked}"),
            )
            .label(clause, "each of which had to be proved")
            .help(
                "restrict the ranks (`requires n <= 8`), or send fewer messages between two ranks",
            ),
        ));
    }
    let mut held = Vec::new();
    machine.execute(None, &mut held);
    let whole: Vec<HeldSum> =
        (0..header.chunks).map(|chunk| machine.held(&held, 0, header.output, chunk)).collect();
    if let Some(wrong) = judge(header, &machine, &held, None) {
        let found = UntoleratedPoint { rank: 0, arrive: Vec::new(), wrong };
        return Err(Box::new(diagnostic(instance, header, &found, &[], spans, clause)));
    }
    let mut tried = 0;
    let mut least: Option<UntoleratedPoint> = None;
    for (rank, points) in (0..header.ranks).zip(&points) {
        points.each(&mut |arrive| {
            tried += 1;
            let weight = least.as_ref().map(UntoleratedPoint::weight);
            if weight.is_some_and(|least| least <= (false, arrive.iter().sum())) {
                return;
            }
            machine.execute(Some((index(rank), arrive)), &mut held);
            let ended = points.may_have_ended(arrive).then_some(whole.as_slice());
            let Some(wrong) = judge(header, &machine, &held, Some((rank, ended))) else { return };
            let found = UntoleratedPoint { rank, arrive: arrive.to_vec(), wrong };
            if weight.is_none_or(|least| found.weight() < least) {
                least = Some(found);
            }
        });
    }
    match least {
        None => Ok(tried),
        Some(found) => {
            let sent = &sent[index(found.rank)];
            Err(Box::new(diagnostic(instance, header, &found, sent, spans, clause)))
        }
    }
}

/// Compares what the survivors end with; if the failed rank may have ended before, with its result, too.
fn judge(
    header: &TolerantHeader,
    machine: &FailureMachine,
    held: &[HeldSum],
    failed: Option<(u32, Option<&[HeldSum]>)>,
) -> Option<ToleranceFault> {
    let mut first: Option<(u32, u32, u64)> = None;
    let survivors = (0..header.ranks).filter(|&rank| failed.is_none_or(|(f, _)| f != rank));
    let alive = survivors.clone().fold(0, |set, rank| set | bit(rank));
    let mut sums: Vec<Option<(u32, ContributionSum)>> = vec![None; index(header.chunks)];
    for rank in survivors {
        for chunk in 0..header.chunks {
            let Some(sum) = machine.held(held, rank, header.output, chunk) else {
                return Some(ToleranceFault::Nothing { rank, chunk });
            };
            if let Some(fault) = sum.fault {
                return Some(ToleranceFault::Spoilt { rank, chunk, fault });
            }
            if sum.chunk != chunk {
                return Some(ToleranceFault::Spoilt { rank, chunk, fault: SumFault::Mixed });
            }
            let own = (rank, chunk, sum.ranks);
            match first {
                Some(first) if first.2 != sum.ranks => {
                    return Some(ToleranceFault::Differ { first, other: own });
                }
                _ => first = first.or(Some(own)),
            }
            match sums[index(chunk)] {
                Some((first, other)) if other.order != sum.order => {
                    return Some(ToleranceFault::Order { first, other: rank, chunk });
                }
                Some(_) => {}
                None => sums[index(chunk)] = Some((rank, sum)),
            }
        }
    }
    let (rank, _, counts) = first?;
    if counts & alive != alive {
        let left_out = (alive & !counts).trailing_zeros();
        return Some(ToleranceFault::Survivor { rank, counts, left_out });
    }
    let (failed, whole) = failed?;
    let whole = whole?;
    if counts != all(header.ranks) {
        return Some(ToleranceFault::Ended { rank, counts });
    }
    let differs = |(sum, whole): (&Option<(u32, ContributionSum)>, &HeldSum)| {
        let order = whole.as_ref().map(|whole| whole.order);
        sum.is_some_and(|(_, sum)| Some(sum.order) != order)
    };
    let chunk = sums.iter().zip(whole).position(differs)?;
    Some(ToleranceFault::Order { first: rank, other: failed, chunk: count(chunk) })
}

/// Returns the diagnostic of a point of failure.
fn diagnostic(
    instance: &ProgramInstance,
    header: &TolerantHeader,
    found: &UntoleratedPoint,
    sent: &[Vec<NamedMessage>],
    spans: &[Span],
    clause: Span,
) -> Diagnostic {
    let UntoleratedPoint { rank: failed, arrive, wrong } = found;
    let shape = &instance.shape;
    let name = if header.chunks == 1 { "" } else { " chunk" };
    let of =
        |chunk: u32| if header.chunks == 1 { String::new() } else { format!(" of chunk {chunk}") };
    let what = match *wrong {
        ToleranceFault::Nothing { rank, chunk } => {
            format!("rank {rank} ends without anything{}", of(chunk))
        }
        ToleranceFault::Spoilt { rank, chunk, fault: SumFault::Twice(set) } => {
            format!("rank {rank} ends with contributions of {} twice{}", named(set), of(chunk))
        }
        ToleranceFault::Spoilt { rank, chunk, fault: SumFault::Mixed } => {
            format!("rank {rank}'s chunk {chunk} ends as a sum of other chunks")
        }
        ToleranceFault::Differ { first, other } if first.0 == other.0 => format!(
            "rank {} ends with{name} {} of {} and{name} {} of {}",
            first.0,
            first.1,
            named(first.2),
            other.1,
            named(other.2)
        ),
        ToleranceFault::Differ { first, other } => format!(
            "rank {} ends with the sum of {}{}, rank {} with that of {}{}",
            first.0,
            named(first.2),
            of(first.1),
            other.0,
            named(other.2),
            of(other.1)
        ),
        ToleranceFault::Survivor { rank, counts, left_out } => format!(
            "rank {rank} ends with the sum of {}: rank {left_out}, which is there, is missing",
            named(counts)
        ),
        ToleranceFault::Order { first, other, chunk } => format!(
            "ranks {first} and {other} end with the same contributions{}, added in different orders",
            of(chunk)
        ),
        ToleranceFault::Ended { rank, counts } => format!(
            "rank {failed} may have ended before with the sum of {}, and rank {rank} ends with that of {}",
            named(all(header.ranks)),
            named(counts)
        ),
    };
    if sent.is_empty() {
        let text = format!("on {shape} ranks, without a failure, {what}");
        return Diagnostic::error(codes::DISAGREE, text)
            .label(clause, "all ranks must end with the same bits")
            .help("fold the contributions in one order on all ranks, such as that of their ranks");
    }
    let mut d = Diagnostic::error(
        codes::DISAGREE,
        format!("on {shape} ranks, if rank {failed} fails, {what}"),
    );
    let next = |(peer, n): (usize, &usize)| Some((peer, *sent[peer].get(*n)?));
    let lost: Vec<(usize, NamedMessage)> = arrive.iter().enumerate().filter_map(next).collect();
    match lost.iter().min_by_key(|(_, message)| message.number) {
        Some((peer, message)) => {
            let text = format!("its message to rank {peer} in step {} is lost", message.number);
            d = d.label(spans.get(index(message.site)).copied().unwrap_or(clause), text);
        }
        None => d = d.label(clause, "all of its messages arrive"),
    }
    let came: Vec<String> = arrive
        .iter()
        .enumerate()
        .filter_map(|(peer, &n)| {
            let last = sent[peer].get(n.checked_sub(1)?)?;
            Some(format!("to rank {peer} up to that of step {}", last.number))
        })
        .collect();
    let came = if came.is_empty() { "none".into() } else { came.join(", ") };
    d.note(format!("of rank {failed}'s messages arrive: {came}")).help(
        "a message is sure to have arrived only once its sender has an answer: send to one rank, wait for its \
         answer, and have either of the two send to the others",
    )
}
