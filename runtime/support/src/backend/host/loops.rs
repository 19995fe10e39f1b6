//! The loops over formats and operators, and the table of them for one element type and operator.
//!
//! Loops are generic and always inlined: `level.rs` compiles them for each generation of processors.
//! They read all operands of a position before they write it, so that operands may coincide. Most
//! are plain loops that the compiler turns into vector instructions.

use std::marker::PhantomData;

use super::format::{LANES, ValueFormat};
use super::ops::{ArithmeticType, BinaryOp};

/// The loops of one element type and operator. Counts are in elements, addresses need no alignment.
#[derive(Debug)]
pub(crate) struct KernelLoops {
    /// `d[i] = a[i] op b[i]`, all in memory's format.
    pub(crate) pair: unsafe fn(a: *const u8, b: *const u8, d: *mut u8, n: usize),
    /// Bytes of a value while it is computed with.
    pub(crate) width: usize,
    /// The element type's own format, then those of the wire types in their order.
    pub(crate) formats: [FormatConversions; 4],
    /// `data[i] *= factor`.
    pub(crate) scale: unsafe fn(data: *mut u8, n: usize, factor: f64),
    /// `data[i] /= by`.
    pub(crate) divide: unsafe fn(data: *mut u8, n: usize, by: u64),
}

/// Loops between one format and an accumulator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FormatConversions {
    /// Bytes of a value in this format.
    pub(crate) size: usize,
    /// `acc[i] = from[i]`.
    pub(crate) load: unsafe fn(from: *const u8, acc: *mut u8, n: usize),
    /// `acc[i] = acc[i] op from[i]`.
    pub(crate) fold: unsafe fn(from: *const u8, acc: *mut u8, n: usize),
    /// `to[i] = acc[i]`.
    pub(crate) store: unsafe fn(acc: *const u8, to: *mut u8, n: usize),
}

/// Something to do at each of a row of positions.
trait LoopBody {
    /// True if `lanes` is to be used.
    const LANES: bool;

    /// Does it at one position.
    unsafe fn one(&self, at: usize);

    /// Does it at positions `at .. at + LANES`.
    unsafe fn lanes(&self, at: usize);
}

#[inline(always)]
unsafe fn each<B: LoopBody>(n: usize, body: B) {
    let mut start = 0;
    // SAFETY: only positions below n are visited, each once; the callers' promises hold for these.
    unsafe {
        while B::LANES && n - start >= LANES {
            body.lanes(start);
            start += LANES;
        }
        for at in start..n {
            body.one(at);
        }
    }
}

/// `d = a op b`, in three formats.
struct CombineLoop<A: Copy, X: ValueFormat<A>, Y: ValueFormat<A>, D: ValueFormat<A>, O> {
    a: *const X::Bits,
    b: *const Y::Bits,
    d: *mut D::Bits,
    op: PhantomData<(A, O)>,
}

impl<A: Copy, X: ValueFormat<A>, Y: ValueFormat<A>, D: ValueFormat<A>, O: BinaryOp<A>> LoopBody
    for CombineLoop<A, X, Y, D, O>
{
    const LANES: bool = X::LANES || Y::LANES || D::LANES;

    #[inline(always)]
    unsafe fn one(&self, at: usize) {
        // SAFETY: the maker of this body promises that all three addresses are good there.
        unsafe {
            let a = X::load(self.a.add(at).read_unaligned());
            let b = Y::load(self.b.add(at).read_unaligned());
            self.d.add(at).write_unaligned(D::store(O::apply(a, b)));
        }
    }

    #[inline(always)]
    unsafe fn lanes(&self, at: usize) {
        // SAFETY: the maker of this body promises that all three addresses are good there.
        unsafe {
            let mut a = X::load_lanes(self.a.add(at));
            let b = Y::load_lanes(self.b.add(at));
            for k in 0..LANES {
                a[k] = O::apply(a[k], b[k]);
            }
            D::store_lanes(a, self.d.add(at));
        }
    }
}

/// A function of one value.
trait UnaryFunction<A> {
    fn apply(&self, value: A) -> A;
}

struct SameValue;
struct TimesFactor<A>(A);
struct OverDivisor<A: ArithmeticType>(A::Divisor);

impl<A> UnaryFunction<A> for SameValue {
    #[inline(always)]
    fn apply(&self, value: A) -> A {
        value
    }
}

impl<A: ArithmeticType> UnaryFunction<A> for TimesFactor<A> {
    #[inline(always)]
    fn apply(&self, value: A) -> A {
        value.times(self.0)
    }
}

impl<A: ArithmeticType> UnaryFunction<A> for OverDivisor<A> {
    #[inline(always)]
    fn apply(&self, value: A) -> A {
        value.over(self.0)
    }
}

/// `d = f(s)`, in two formats.
struct MapLoop<A: Copy, S: ValueFormat<A>, D: ValueFormat<A>, F> {
    s: *const S::Bits,
    d: *mut D::Bits,
    f: F,
    value: PhantomData<A>,
}

impl<A: Copy, S: ValueFormat<A>, D: ValueFormat<A>, F: UnaryFunction<A>> LoopBody
    for MapLoop<A, S, D, F>
{
    const LANES: bool = S::LANES || D::LANES;

    #[inline(always)]
    unsafe fn one(&self, at: usize) {
        // SAFETY: the maker of this body promises that both addresses are good there.
        unsafe {
            let value = self.f.apply(S::load(self.s.add(at).read_unaligned()));
            self.d.add(at).write_unaligned(D::store(value));
        }
    }

    #[inline(always)]
    unsafe fn lanes(&self, at: usize) {
        // SAFETY: the maker of this body promises that both addresses are good there.
        unsafe {
            let mut values = S::load_lanes(self.s.add(at));
            for value in &mut values {
                *value = self.f.apply(*value);
            }
            D::store_lanes(values, self.d.add(at));
        }
    }
}

/// Combines `n` values of `a` and `b` into `d`.
///
/// # Safety
/// `a`, `b` and `d` are good for `n` values of their formats; `d` is apart from each of the others
/// or begins where it begins, with values of the same size.
#[inline(always)]
pub(super) unsafe fn combine<
    A: Copy,
    X: ValueFormat<A>,
    Y: ValueFormat<A>,
    D: ValueFormat<A>,
    O: BinaryOp<A>,
>(
    a: *const u8,
    b: *const u8,
    d: *mut u8,
    n: usize,
) {
    let body = |a: *const u8, b: *const u8| CombineLoop::<A, X, Y, D, O> {
        a: a.cast(),
        b: b.cast(),
        d: d.cast(),
        op: PhantomData,
    };
    // Three loops that differ only in what the compiler can derive: to vectorise one it must see
    // that operands are the same, or find them apart.
    // SAFETY: the caller's promise is what the body needs at positions below n.
    unsafe {
        if a == d.cast_const() {
            each(n, body(d, b));
        } else if b == d.cast_const() {
            each(n, body(a, d));
        } else {
            each(n, body(a, b));
        }
    }
}

/// Converts `n` values from one format to another.
///
/// # Safety
/// `from` and `to` are good for `n` values of their formats, and apart or the same.
#[inline(always)]
pub(super) unsafe fn convert<A: Copy, S: ValueFormat<A>, D: ValueFormat<A>>(
    from: *const u8,
    to: *mut u8,
    n: usize,
) {
    let body = MapLoop::<A, S, D, SameValue> {
        s: from.cast(),
        d: to.cast(),
        f: SameValue,
        value: PhantomData,
    };
    // SAFETY: the caller's promise is what the body needs at positions below n.
    unsafe { each(n, body) };
}

/// Multiplies `n` values by a factor, in place.
///
/// # Safety
/// `data` is good for `n` values.
#[inline(always)]
pub(super) unsafe fn scale<A: ArithmeticType, F: ValueFormat<A>>(
    data: *mut u8,
    n: usize,
    factor: f64,
) {
    let body = MapLoop::<A, F, F, TimesFactor<A>> {
        s: data.cast(),
        d: data.cast(),
        f: TimesFactor(A::factor(factor)),
        value: PhantomData,
    };
    // SAFETY: the caller's promise is what the body needs at positions below n.
    unsafe { each(n, body) };
}

/// Divides `n` values by a number, in place.
///
/// # Safety
/// `data` is good for `n` values.
#[inline(always)]
pub(super) unsafe fn divide<A: ArithmeticType, F: ValueFormat<A>>(
    data: *mut u8,
    n: usize,
    by: u64,
) {
    let body = MapLoop::<A, F, F, OverDivisor<A>> {
        s: data.cast(),
        d: data.cast(),
        f: OverDivisor(A::divisor(by)),
        value: PhantomData,
    };
    // SAFETY: the caller's promise is what the body needs at positions below n.
    unsafe { each(n, body) };
}
