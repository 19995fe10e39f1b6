//! The image of a round when every rank r becomes r + `step` modulo n, found without listing its
//! transfers.
//!
//! The transfers of a rule are numbered by the rank of its `each` and the values of its inner loops. The
//! round maps onto itself if the numbers can be moved, r to r + step and each loop variable to itself or
//! round its whole range, so that every rank of a transfer moves by `step` and every chunk as the chunks of
//! its buffer do. Expressions are followed in the order of the binders, with what is known of each
//! variable there: nothing is evaluated before it has a value.

use roundelay_dsl::ast::{BinOp, UnOp};

use super::round::WalkRound;
use crate::bounds::SlotBounds;
use crate::eval::operate;
use crate::plan::PlanBuffer;
use crate::program::{
    BuiltinFunction, ChunkIndex, ExprNode, RankExpr, RegionExpr, RuleBinder, Slot, SlotExpr,
    TransferRule,
};

/// The change of a number under a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberMotion {
    /// It stays what it is.
    Still,
    /// It lies in `0..modulus`, and `by` is added to it modulo `modulus`.
    Turn { modulus: i64, by: i64 },
    /// It becomes some number that is congruent to it plus `by`, modulo `modulus`.
    Near { modulus: i64, by: i64 },
}

/// A number of a rule: its motion, and bounds of all values that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MovingNumber {
    motion: NumberMotion,
    lo: i64,
    hi: i64,
}

/// The bounds beyond which nothing is known of a number, and sums might overflow.
const FAR: i64 = 1 << 56;

impl MovingNumber {
    fn still(lo: i64, hi: i64) -> Self {
        MovingNumber { motion: NumberMotion::Still, lo, hi }
    }

    /// Returns the value, if it is the same for all ranks and loops.
    fn constant(self) -> Option<i64> {
        (self.motion == NumberMotion::Still && self.lo == self.hi).then_some(self.lo)
    }

    fn is_still(self) -> bool {
        self.motion == NumberMotion::Still
    }

    /// Returns modulus and distance; a number that stays is moved by 0 whatever the modulus.
    fn parts(self) -> (i64, i64) {
        match self.motion {
            NumberMotion::Still => (0, 0),
            NumberMotion::Turn { modulus, by } | NumberMotion::Near { modulus, by } => {
                (modulus, by)
            }
        }
    }

    fn turns(self) -> bool {
        matches!(self.motion, NumberMotion::Turn { .. })
    }

    /// Creates a number that moves by `by` modulo `modulus`; a turn where its bounds say that it does not
    /// leave `0..modulus` and `turn` that it cannot but wrap around there.
    fn of(modulus: i64, by: i64, turn: bool, lo: i64, hi: i64) -> Option<Self> {
        if modulus <= 1 || lo <= -FAR || hi >= FAR {
            return None;
        }
        let by = by.rem_euclid(modulus);
        let inside = turn && lo >= 0 && hi < modulus;
        let motion = if inside {
            NumberMotion::Turn { modulus, by }
        } else {
            NumberMotion::Near { modulus, by }
        };
        Some(MovingNumber { motion, lo, hi })
    }
}

/// The movement of the chunks of a region, as places in the order of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkMotion {
    /// The k-th chunk of the region becomes the k-th of its image.
    Kept,
    /// The region is its own image, its chunks turned by `by` of `total` places.
    Turned { total: u64, by: u64 },
}

/// One round, and how ranks and chunks move.
struct RoundForm<'a> {
    round: &'a WalkRound<'a>,
    n: i64,
    step: i64,
    /// The range inside of which the chunks of a buffer of the instance turn, and by how much; 0 if they stay.
    moves: &'a dyn Fn(PlanBuffer) -> (u32, u32),
}

impl WalkRound<'_> {
    /// Returns true if, by its form alone, the round maps onto itself when every rank r becomes r + `step`
    /// modulo n, and every chunk of a buffer turns inside its aligned range: `moves` returns the chunks of
    /// the range and the distance.
    pub(crate) fn shifts(&self, step: u32, moves: &dyn Fn(PlanBuffer) -> (u32, u32)) -> bool {
        let form = RoundForm { round: self, n: self.frame.size.into(), step: step.into(), moves };
        let whole = self.frame.size == self.frame.ranks && !self.each.once;
        whole && self.each.rules.iter().all(|rule| form.rule(rule))
    }
}

/// The known movements of the variables of an `each`, in the order in which they were bound.
type KnownMotions = Vec<(Slot, MovingNumber)>;

impl RoundForm<'_> {
    fn rule(&self, rule: &TransferRule) -> bool {
        let rank = MovingNumber::of(self.n, self.step, true, 0, self.n - 1);
        let Some(rank) = rank else { return false };
        self.from(rule, &rule.binders, &mut vec![(self.round.each.var, rank)])
    }

    /// Follows the binders; a loop that runs over a whole range may turn as well as stay.
    fn from(&self, rule: &TransferRule, binders: &[RuleBinder], known: &mut KnownMotions) -> bool {
        let Some((first, rest)) = binders.split_first() else { return self.leaf(rule, known) };
        let depth = known.len();
        let holds = match first {
            RuleBinder::Let(slot, e) => self.of(e, known).is_some_and(|v| {
                known.push((*slot, v));
                self.from(rule, rest, known)
            }),
            RuleBinder::Where(e) => {
                self.of(e, known).is_some_and(MovingNumber::is_still)
                    && self.from(rule, rest, known)
            }
            RuleBinder::For(slot, a, b) => {
                let bound = |e, known: &mut KnownMotions| {
                    self.of(e, known).and_then(MovingNumber::constant)
                };
                let (Some(a), Some(b)) = (bound(a, known), bound(b, known)) else { return false };
                if a >= b {
                    return true;
                }
                let stays = Some(MovingNumber::still(a, b - 1));
                let round = self.step.checked_mul(b).filter(|x| a == 0 && x % self.n == 0);
                let turns = round.and_then(|x| MovingNumber::of(b, x / self.n, true, 0, b - 1));
                [turns, stays].into_iter().flatten().any(|v| {
                    known.truncate(depth);
                    known.push((*slot, v));
                    self.from(rule, rest, known)
                })
            }
        };
        known.truncate(depth);
        holds
    }

    fn leaf(&self, rule: &TransferRule, known: &mut KnownMotions) -> bool {
        let from = self.region(&rule.from, known);
        from.is_some()
            && from == self.region(&rule.to, known)
            && self.rank(&rule.src, known)
            && self.rank(&rule.dst, known)
    }

    fn rank(&self, rank: &RankExpr, known: &mut KnownMotions) -> bool {
        let inside = |(e, size): &(SlotExpr, Slot), known: &mut KnownMotions| {
            let size = self.round.frame.env[usize::from(*size)];
            self.of(e, known).is_some_and(|v| v.is_still() || v.parts().0 == size && v.turns())
        };
        let along = NumberMotion::Turn { modulus: self.n, by: self.step % self.n };
        rank.coordinates.iter().all(|c| inside(c, known))
            && self.of(&rank.linear, known).is_some_and(|v| v.motion == along)
    }

    /// Returns the movement of the chunks of a region; `None` if its form does not tell, or they move
    /// otherwise than those of its buffer.
    fn region(&self, region: &RegionExpr, known: &mut KnownMotions) -> Option<ChunkMotion> {
        let view = self.round.frame.view(region.buf, 0).ok()?;
        let first = view.pieces.first()?;
        let one = view.pieces.len() == 1;
        if view.pieces.iter().all(|p| (self.moves)(p.buf).1 == 0) {
            return self.stays(&region.index, known).then_some(ChunkMotion::Kept);
        }
        let (units, total) = (u64::from(view.units), u64::from(view.total()));
        let (range, by) = (self.moves)(first.buf);
        // The view must be one range that turns.
        let turns = first.set.is_interval()
            && first.set.total == range
            && first.set.start.is_multiple_of(range)
            && first.set.modulus.is_multiple_of(range);
        if !one || !turns || units == 0 || !total.is_multiple_of(units) {
            return None;
        }
        let (fine, by) = (total / units, u64::from(by));
        let turned = |period: u64, by: u64| match by % period {
            0 => ChunkMotion::Kept,
            by => ChunkMotion::Turned { total: period, by },
        };
        let value = |e: &SlotExpr, known: &mut KnownMotions| {
            self.of(e, known).and_then(MovingNumber::constant)
        };
        let constant = |e: &Option<SlotExpr>, known: &mut KnownMotions| match e {
            Some(e) => value(e, known),
            None => Some(1),
        };
        let along = |start: MovingNumber| {
            let (modulus, k) = start.parts();
            let chunks = u64::try_from(k).ok()?.checked_mul(fine)?;
            let whole = start.turns() && u64::try_from(modulus).ok()? == units;
            (whole && chunks % total == by % total).then_some(ChunkMotion::Kept)
        };
        match &region.index {
            ChunkIndex::All => Some(turned(total, by)),
            ChunkIndex::At(e) => along(self.of(e, known)?),
            ChunkIndex::Cyclic { from, count, by: stride, take } => {
                let still = [stride, take].into_iter().flatten().all(|e| self.still(e, known));
                let (start, count) = (self.of(from, known)?, self.of(count, known)?);
                if !still || !count.is_still() {
                    return None;
                }
                let all = stride.is_none() && start.is_still();
                match count.constant().and_then(|c| u64::try_from(c).ok()) {
                    Some(count) if all && count == units => Some(turned(total, by)),
                    _ => along(start),
                }
            }
            ChunkIndex::Range { from, to, by: stride, take } => {
                let start = self.of(from, known)?;
                let (gap, block) = (constant(stride, known)?, constant(take, known)?);
                if start.is_still() {
                    // All residues of a stride that divides the buffer: a set that turns within itself.
                    let end = u64::try_from(value(to, known)?).ok()?;
                    let (gap, wide) = (u64::try_from(gap).ok()?, u64::try_from(block).ok()?);
                    let last = u64::try_from(start.hi.checked_add(block)?).ok()?;
                    let fits = stride.is_some() && wide > 0 && start.lo >= 0 && end == units;
                    let even = fits && last <= gap && units.is_multiple_of(gap);
                    let jump = gap.checked_mul(fine)?;
                    let places = (units / gap.max(1)).checked_mul(wide)?.checked_mul(fine)?;
                    let turn = (by / jump.max(1)).checked_mul(wide)?.checked_mul(fine)?;
                    return (even && by.is_multiple_of(jump)).then(|| turned(places, turn));
                }
                // No image may reach beyond the end.
                let length = self.length(from, to, known)?;
                let fits = start.hi.checked_add(length)? <= i64::try_from(units).ok()?;
                if fits { along(start) } else { None }
            }
        }
    }

    /// Returns the distance of two expressions that differ in constants only.
    fn length(&self, from: &SlotExpr, to: &SlotExpr, known: &KnownMotions) -> Option<i64> {
        let vary: Vec<_> = known.iter().map(|(s, v)| (*s, (v.lo, v.hi))).collect();
        let bounds = SlotBounds { env: &self.round.frame.env, vary: &vary, defs: &[] };
        bounds.slope(to, from)
    }

    fn stays(&self, index: &ChunkIndex, known: &mut KnownMotions) -> bool {
        let (a, b, by, take) = match index {
            ChunkIndex::All => return true,
            ChunkIndex::At(e) => return self.still(e, known),
            ChunkIndex::Range { from, to, by, take } => (from, to, by, take),
            ChunkIndex::Cyclic { from, count, by, take } => (from, count, by, take),
        };
        let mut all = [Some(a), Some(b), by.as_ref(), take.as_ref()].into_iter().flatten();
        all.all(|e| self.still(e, known))
    }

    fn still(&self, e: &SlotExpr, known: &mut KnownMotions) -> bool {
        self.of(e, known).is_some_and(MovingNumber::is_still)
    }

    /// Returns the known movement of an expression; `None` if its form does not tell.
    fn of(&self, e: &SlotExpr, known: &mut KnownMotions) -> Option<MovingNumber> {
        match &e.node {
            ExprNode::Int(v) => Some(MovingNumber::still(*v, *v)),
            ExprNode::Var(s) => Some(known.iter().rev().find(|(k, _)| k == s).map_or_else(
                || {
                    let v = self.round.frame.env[usize::from(*s)];
                    MovingNumber::still(v, v)
                },
                |(_, v)| *v,
            )),
            ExprNode::Unary(UnOp::Neg, a) => {
                let zero = MovingNumber::still(0, 0);
                let a = self.of(a, known)?;
                if a.is_still() { binary(BinOp::Sub, zero, a) } else { sum(zero, a, -1) }
            }
            ExprNode::Unary(UnOp::Not, a) => {
                let a = self.of(a, known).filter(|a| a.is_still())?;
                Some(a.constant().map_or(MovingNumber::still(0, 1), |v| {
                    let v = i64::from(v == 0);
                    MovingNumber::still(v, v)
                }))
            }
            ExprNode::Binary(op, a, b) => binary(*op, self.of(a, known)?, self.of(b, known)?),
            ExprNode::Call(f, args) => {
                let args: Option<Vec<MovingNumber>> =
                    args.iter().map(|a| self.of(a, known)).collect();
                call(*f, &args?)
            }
            ExprNode::If(c, a, b) => {
                let c = self.of(c, known).filter(|c| c.is_still())?;
                match c.constant() {
                    Some(0) => self.of(b, known),
                    Some(_) => self.of(a, known),
                    None => {
                        let (a, b) = (self.of(a, known)?, self.of(b, known)?);
                        let (lo, hi) = (a.lo.min(b.lo), a.hi.max(b.hi));
                        (a.motion == b.motion).then_some(MovingNumber { motion: a.motion, lo, hi })
                    }
                }
            }
            ExprNode::Let(slot, value, body) => {
                let value = self.of(value, known)?;
                known.push((*slot, value));
                let body = self.of(body, known);
                known.pop();
                body
            }
        }
    }
}

/// Returns the value of an operator of two numbers that stay: it stays too. Bounds that are not known are
/// wide.
fn staying(op: BinOp, a: MovingNumber, b: MovingNumber) -> Option<MovingNumber> {
    if let (Some(a), Some(b)) = (a.constant(), b.constant()) {
        let v = operate(op, a, b).ok()?;
        return Some(MovingNumber::still(v, v));
    }
    let corners = |f: fn(i64, i64) -> Option<i64>| {
        let all = [f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)];
        let all: Option<Vec<i64>> = all.into_iter().collect();
        let all = all?;
        Some((*all.iter().min()?, *all.iter().max()?))
    };
    let range = match op {
        BinOp::Add => corners(i64::checked_add),
        BinOp::Sub => corners(i64::checked_sub),
        BinOp::Mul => corners(i64::checked_mul),
        BinOp::Div if b.lo > 0 => corners(i64::checked_div_euclid),
        BinOp::Mod if b.lo > 0 => Some((0, b.hi - 1)),
        BinOp::Shl | BinOp::Shr | BinOp::BitOr | BinOp::BitXor => None,
        BinOp::BitAnd if a.lo >= 0 && b.lo >= 0 => Some((0, a.hi.min(b.hi))),
        BinOp::Div | BinOp::Mod | BinOp::BitAnd => None,
        _ => Some((0, 1)),
    };
    let (lo, hi) = range.unwrap_or((i64::MIN, i64::MAX));
    Some(MovingNumber::still(lo, hi))
}

/// Returns `a + sign * b`, of which one moves.
fn sum(a: MovingNumber, b: MovingNumber, sign: i64) -> Option<MovingNumber> {
    let ((m, k), (o, l)) = (a.parts(), b.parts());
    let (blo, bhi) =
        if sign > 0 { (b.lo, b.hi) } else { (b.hi.checked_neg()?, b.lo.checked_neg()?) };
    let (lo, hi) = (a.lo.checked_add(blo)?, a.hi.checked_add(bhi)?);
    // A turn to which something that stays is added, and which does not leave its range, turns.
    let turn = a.turns() && b.is_still() || b.turns() && a.is_still() && sign > 0;
    MovingNumber::of(gcd(m, o), k.checked_add(l.checked_mul(sign)?)?, turn, lo, hi)
}

fn binary(op: BinOp, a: MovingNumber, b: MovingNumber) -> Option<MovingNumber> {
    if a.is_still() && b.is_still() {
        return staying(op, a, b);
    }
    let (modulus, by) = a.parts();
    match (op, a.constant(), b.constant()) {
        (BinOp::Add, ..) => sum(a, b, 1),
        (BinOp::Sub, ..) => sum(a, b, -1),
        (BinOp::Mul, Some(c), _) => times(b, c),
        (BinOp::Mul, _, Some(c)) => times(a, c),
        (BinOp::Shl, _, Some(c @ 0..32)) => times(a, 1 << c),
        (BinOp::Div, _, Some(c)) if c > 0 => over(a, c),
        (BinOp::Shr, _, Some(c @ 0..32)) => over(a, 1 << c),
        (BinOp::Mod, _, Some(c)) if c > 0 => {
            if a.turns() && a.hi < c {
                Some(a)
            } else if modulus % c != 0 {
                None
            } else if by % c == 0 {
                Some(MovingNumber::still(0, c - 1))
            } else {
                MovingNumber::of(c, by, true, 0, c - 1)
            }
        }
        (BinOp::BitXor, _, Some(c)) if (0..1 << 30).contains(&c) => {
            // Blocks of 2^b numbers move as a whole, and within a block nothing does.
            let block = (c + 1).checked_next_power()?;
            let whole = modulus % block == 0 && by % block == 0 && a.lo >= 0;
            let hi = a.hi.checked_add(block)?.min(if a.turns() { modulus - 1 } else { FAR - 1 });
            if whole { MovingNumber::of(modulus, by, a.turns(), 0, hi) } else { None }
        }
        (BinOp::Eq | BinOp::Ne, ..) => {
            (a.turns() && a.motion == b.motion).then_some(MovingNumber::still(0, 1))
        }
        _ => None,
    }
}

/// Powers of two, for numbers that are positive and small.
trait NextPower {
    fn checked_next_power(self) -> Option<i64>;
}

impl NextPower for i64 {
    fn checked_next_power(self) -> Option<i64> {
        u32::try_from(self).ok()?.checked_next_power_of_two().map(i64::from)
    }
}

fn times(a: MovingNumber, c: i64) -> Option<MovingNumber> {
    let (modulus, by) = a.parts();
    if c == 0 {
        return Some(MovingNumber::still(0, 0));
    }
    let (x, y) = (a.lo.checked_mul(c)?, a.hi.checked_mul(c)?);
    let modulus = modulus.checked_mul(c.checked_abs()?)?;
    MovingNumber::of(modulus, by.checked_mul(c)?, a.turns() && c > 0, x.min(y), x.max(y))
}

/// Returns `a / c` for c > 0, where blocks of c numbers move as a whole.
fn over(a: MovingNumber, c: i64) -> Option<MovingNumber> {
    let (modulus, by) = a.parts();
    let (lo, hi) = (a.lo.div_euclid(c), a.hi.div_euclid(c));
    match modulus / c {
        _ if modulus % c != 0 || by % c != 0 => None,
        // One block: what is left does not move.
        1 if a.turns() => Some(MovingNumber::still(0, 0)),
        blocks => MovingNumber::of(blocks, by / c, a.turns(), lo, hi),
    }
}

fn call(f: BuiltinFunction, args: &[MovingNumber]) -> Option<MovingNumber> {
    if let Some(values) = args.iter().map(|a| a.constant()).collect::<Option<Vec<i64>>>() {
        let v = f.value(&values).ok()?;
        return Some(MovingNumber::still(v, v));
    }
    if args.iter().all(|a| a.is_still()) {
        return Some(MovingNumber::still(i64::MIN, i64::MAX));
    }
    let parity = matches!(f, BuiltinFunction::Even | BuiltinFunction::Odd);
    let (modulus, by) = args.first()?.parts();
    (parity && modulus % 2 == 0 && by % 2 == 0).then_some(MovingNumber::still(0, 1))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
