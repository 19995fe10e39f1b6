//! Makes random elements, and judges whether a result is what the contributions make.
//!
//! Sums of floats may be off by what their roundings can add up to, and no more: about one unit in the last
//! place of the sum of magnitudes for each operand. Everything else is compared exactly (`element`). Elements are made
//! where they are needed, of their rank and index: no rank holds what another one contributes.

use half::{bf16, f16};
use roundelay_compiler::plan::WireType;

use super::element::{ElementValue, ReferenceValue, with_type};
use super::places::{BufferPart, ContributorSet};
use super::rule::{BLOCK, ElementRule, ValueSpread};

/// Returns the rounding of a wire type, relative to the value.
pub(crate) fn wire_epsilon(wire: WireType) -> f64 {
    match wire {
        WireType::F16 => f16::EPSILON.to_f64(),
        WireType::Bf16 => bf16::EPSILON.to_f64(),
        WireType::F32 => f32::EPSILON.into(),
    }
}

/// Returns the random bits of element `index` of the vector of a rank, in the upper half where 32 of them will do.
fn bits<T: ElementValue>(rule: &ElementRule, rank: u32, index: u64) -> u64 {
    match size_of::<T>() {
        8 => random(rule.seed, rank, index),
        _ => halves(random(rule.seed, rank, index / 2))[(index % 2) as usize],
    }
}

/// Returns the bits of two elements.
fn halves(both: u64) -> [u64; 2] {
    [both << 32, both & (u64::MAX << 32)]
}

/// Returns random bits, of a rank and a number.
fn random(seed: u64, rank: u32, index: u64) -> u64 {
    let mut x = seed ^ (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = x.wrapping_add(index.wrapping_mul(0xd134_2543_de82_ef95));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Writes a rank's contributions.
pub(crate) fn fill(rule: &ElementRule, rank: u32, parts: &[BufferPart], buffer: &mut [u8]) {
    with_type!(rule.dtype, T => fill_as::<T>(rule, rank, parts, buffer));
}

/// Writes the elements of a rank from an index on.
fn draw<T: ElementValue>(
    rule: &ElementRule,
    spread: &ValueSpread,
    rank: u32,
    index: u64,
    to: &mut [T],
) {
    let all = |spread: ValueSpread, to: &mut [T]| {
        if size_of::<T>() == 8 {
            for (index, to) in (index..).zip(to) {
                *to = T::make(random(rule.seed, rank, index), &spread);
            }
            return;
        }
        // Two at a time, but for a first one and a last one that are halves.
        let one = |index: u64| T::make(bits::<T>(rule, rank, index), &spread);
        let odd = (index % 2) as usize;
        let (first, rest) = to.split_at_mut(odd.min(to.len()));
        first.iter_mut().for_each(|to| *to = one(index));
        let index = index + odd as u64;
        let mut pairs = rest.chunks_exact_mut(2);
        for (number, pair) in (index / 2..).zip(&mut pairs) {
            let [a, b] = halves(random(rule.seed, rank, number));
            (pair[0], pair[1]) = (T::make(a, &spread), T::make(b, &spread));
        }
        let last = index + (rest.len() as u64 & !1);
        if rest.len() % 2 == 1
            && let Some(to) = rest.last_mut()
        {
            *to = one(last);
        }
    };
    // The usual loop has no other case in it.
    match spread {
        ValueSpread::Unit => all(ValueSpread::Unit, to),
        other => all(*other, to),
    }
}

fn fill_as<T: ElementValue>(
    rule: &ElementRule,
    rank: u32,
    parts: &[BufferPart],
    buffer: &mut [u8],
) {
    let (size, spread) = (size_of::<T>(), rule.spread());
    let mut block = [T::ZERO; BLOCK];
    for part in parts {
        let bytes = &mut buffer[part.at * size..(part.at + part.len) * size];
        for (index, bytes) in (part.index..).step_by(BLOCK).zip(bytes.chunks_mut(BLOCK * size)) {
            let block = &mut block[..bytes.len() / size];
            draw(rule, &spread, rank, index, block);
            block.iter().zip(bytes.chunks_exact_mut(size)).for_each(|(x, to)| x.write(to));
        }
    }
}

/// Returns the number of wrong elements, and the first one in words.
pub(crate) fn judge(
    rule: &ElementRule,
    parts: &[BufferPart],
    buffer: &[u8],
) -> (u64, Option<String>) {
    with_type!(rule.dtype, T => judge_as::<T>(rule, parts, buffer))
}

fn judge_as<T: ElementValue>(
    rule: &ElementRule,
    parts: &[BufferPart],
    buffer: &[u8],
) -> (u64, Option<String>) {
    let (size, spread) = (size_of::<T>(), rule.spread());
    let (mut wrong, mut first) = (0, None);
    let mut got = [T::ZERO; BLOCK];
    for part in parts {
        let bytes = &buffer[part.at * size..(part.at + part.len) * size];
        for (start, bytes) in (0..).step_by(BLOCK).zip(bytes.chunks(BLOCK * size)) {
            let got = &mut got[..bytes.len() / size];
            got.iter_mut().zip(bytes.chunks_exact(size)).for_each(|(x, from)| *x = T::read(from));
            let index = part.index + start as u64;
            if is_sure(rule, &spread, &part.from, index, got) {
                continue;
            }
            for (i, got) in got.iter().enumerate() {
                if let Err(want) = judge_one(rule, &spread, &part.from, index + i as u64, *got) {
                    wrong += 1;
                    let at = part.at + start + i;
                    first.get_or_insert_with(|| {
                        format!("element {at}: {got}, the reference has {want}")
                    });
                }
            }
        }
    }
    (wrong, first)
}

/// Returns true if all of these results, from an index on, are right beyond doubt.
fn is_sure<T: ElementValue>(
    rule: &ElementRule,
    spread: &ValueSpread,
    from: &ContributorSet,
    index: u64,
    got: &[T],
) -> bool {
    let mut ranks = 0..rule.ranks;
    let mut each = [].iter();
    if let ContributorSet::Each(given) = from {
        each = given.iter();
    }
    let mut next = |to: &mut [T]| {
        let source = match from {
            ContributorSet::Each(_) => each.next().map(|&(rank, first)| (rank, first + index)),
            _ => ranks.next().map(|rank| (rank, index)),
        };
        source.is_some_and(|(rank, index)| {
            draw(rule, spread, rank, index, to);
            true
        })
    };
    match from {
        ContributorSet::One(rank) => {
            let mut want = [T::ZERO; BLOCK];
            draw(rule, spread, *rank, index, &mut want[..got.len()]);
            got.iter().zip(&want).fold(true, |all, (got, want)| all & (got == want))
        }
        ContributorSet::All | ContributorSet::Each(_) => T::sure(rule, got, &mut next),
    }
}

/// Compares one element with the reference.
fn judge_one<T: ElementValue>(
    rule: &ElementRule,
    spread: &ValueSpread,
    from: &ContributorSet,
    index: u64,
    got: T,
) -> Result<(), ReferenceValue> {
    let of = |rank: u32, index: u64| T::make(bits::<T>(rule, rank, index), spread);
    match from {
        ContributorSet::One(rank) => {
            let want = of(*rank, index);
            if got.judge_copy(rule, want) { Ok(()) } else { Err(ReferenceValue(want.to_string())) }
        }
        ContributorSet::All => got.judge(rule, (0..rule.ranks).map(|rank| of(rank, index))),
        // The part's own index counts from its first element: see `clip`.
        ContributorSet::Each(ranks) => {
            got.judge(rule, ranks.iter().map(|&(rank, first)| of(rank, first + index)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay::{DType, RedOp};

    fn rule(dtype: DType, op: RedOp) -> ElementRule {
        ElementRule { seed: 7, ranks: 3, dtype, op, wire: 0.0, whole: false }
    }

    #[test]
    fn what_was_filled_in_is_right_and_nothing_else() {
        for &dtype in DType::ALL {
            let rule = rule(dtype, RedOp::Sum);
            let part = BufferPart { at: 2, len: 5, index: 9, from: ContributorSet::One(1) };
            let mut buffer = vec![0xff; 8 * dtype.size()];
            fill(&rule, 1, std::slice::from_ref(&part), &mut buffer);
            assert_eq!(judge(&rule, std::slice::from_ref(&part), &buffer), (0, None), "{dtype}");
            buffer[3 * dtype.size()] ^= 1;
            assert_eq!(judge(&rule, &[part], &buffer).0, 1, "{dtype}");
        }
    }

    /// Results that pass by blocks also pass one by one, for every type and operator; a wrong bit is found.
    #[test]
    fn blocks_are_judged_as_their_elements_are() {
        for &dtype in DType::ALL {
            for &op in RedOp::ALL {
                for whole in [false, true] {
                    let rule = ElementRule { whole, ..rule(dtype, op) };
                    with_type!(dtype, T => same_by_blocks::<T>(&rule));
                }
            }
        }
    }

    fn same_by_blocks<T: ElementValue>(rule: &ElementRule) {
        let (spread, len) = (rule.spread(), 100);
        // Only sums of 16-bit floats are rounded so coarsely that a result is made of them here.
        let mut got = vec![T::ZERO; len];
        draw(rule, &spread, 0, 5, &mut got);
        let one = ElementRule { ranks: 1, ..*rule };
        for from in
            [ContributorSet::All, ContributorSet::Each(vec![(0, 0)]), ContributorSet::One(0)]
        {
            if let ContributorSet::All = from
                && rule.op == RedOp::PremulSum
            {
                continue;
            }
            let right = (5..)
                .zip(&got)
                .all(|(index, got)| judge_one(&one, &spread, &from, index, *got).is_ok());
            let sure = is_sure(&one, &spread, &from, 5, &got);
            assert!(!sure || right, "{} {} {from:?}", rule.dtype, rule.op);
            if rule.op == RedOp::Sum && rule.dtype != DType::Bool {
                assert!(sure, "{} {from:?}", rule.dtype);
            }
            let mut bytes = vec![0; size_of::<T>()];
            got[60].write(&mut bytes);
            let last = bytes.len() - 1;
            bytes[last] ^= 0x40;
            let mut bad = got.clone();
            bad[60] = T::read(&bytes);
            assert!(!is_sure(&one, &spread, &from, 5, &bad), "{} {}", rule.dtype, rule.op);
        }
    }

    #[test]
    fn sums_of_floats_are_allowed_their_roundings_only() {
        let rule = rule(DType::F32, RedOp::Sum);
        let from = [0.1f32, 0.2, 0.3];
        assert!((0.1f32 + 0.2 + 0.3).judge(&rule, from.into_iter()).is_ok());
        assert!(0.6001f32.judge(&rule, from.into_iter()).is_err());
        assert!(f32::NAN.judge(&rule, from.into_iter()).is_err());
        let max = ElementRule { op: RedOp::Max, ..rule };
        assert!(0.3f32.judge(&max, from.into_iter()).is_ok());
        assert!(0.300_000_03f32.judge(&max, from.into_iter()).is_err());
    }

    #[test]
    fn sums_of_whole_numbers_are_exact_in_every_type() {
        for &dtype in DType::ALL {
            for op in [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::PremulSum] {
                let rule = ElementRule { ranks: 4, whole: true, ..rule(dtype, op) };
                let is_float = dtype.is_float();
                assert!(!is_float || rule.exact(), "{dtype} {op}");
            }
        }
        let rule = ElementRule { ranks: 2, whole: true, ..rule(DType::F32, RedOp::Sum) };
        assert!(3.0f32.judge(&rule, [1.0f32, 2.0].into_iter()).is_ok());
        assert!(3.000_000_2f32.judge(&rule, [1.0f32, 2.0].into_iter()).is_err());
        let random = (0..1000u64)
            .map(|i| rule.spread().of(bits::<f32>(&ElementRule { seed: 3, ..rule }, 0, i)));
        assert!(random.into_iter().all(|x| x.fract() == 0.0 && x.abs() <= 1000.0));
    }

    #[test]
    fn integers_wrap() {
        let from = || [100i8, 100, -3].into_iter();
        assert!((100i8.wrapping_add(100) - 3).judge(&rule(DType::I8, RedOp::Sum), from()).is_ok());
        let average = 100i8.wrapping_add(100).wrapping_add(-3) / 3;
        assert!(average.judge(&rule(DType::I8, RedOp::Avg), from()).is_ok());
        let product = 100i8.wrapping_mul(100).wrapping_mul(-3);
        assert!(product.judge(&rule(DType::I8, RedOp::Prod), from()).is_ok());
        assert!(100i8.judge(&rule(DType::I8, RedOp::Max), from()).is_ok());
    }
}
