//! Kernels against a reference that handles one element after the other, in other arithmetic.

use proptest::prelude::*;
use roundelay_compiler::plan::WireType;

use super::changed_environment::{CHANGES, ChangedEnvironment};
use super::format::{BrainFloat, HalfFloat, ValueFormat};
use super::kernel::kernel_at;
use super::level::InstructionLevel;
use super::register::RegisterWord;
use crate::backend::{FoldSource, FoldTarget, HostKernel, kernel};
use crate::dtype::{DType, RedOp};

/// A value outside memory.
#[derive(Clone, Copy, Debug)]
enum FoldValue {
    Single(f32),
    Double(f64),
    Whole(i128),
}

/// Returns the type that lies in memory where `wire` is asked of `dtype`.
fn lies_as(dtype: DType, wire: Option<WireType>) -> DType {
    match wire {
        None => dtype,
        Some(WireType::F16) => DType::F16,
        Some(WireType::Bf16) => DType::Bf16,
        Some(WireType::F32) => DType::F32,
    }
}

fn read(dtype: DType, memory: DType, bytes: &[u8]) -> FoldValue {
    let single = |v: f32| match dtype {
        DType::F64 => FoldValue::Double(v.into()),
        _ => FoldValue::Single(v),
    };
    macro_rules! whole {
        ($type:ty) => {
            FoldValue::Whole(<$type>::from_ne_bytes(bytes.try_into().unwrap()).into())
        };
    }
    match memory {
        DType::F16 => single(half::f16::from_ne_bytes(bytes.try_into().unwrap()).to_f32()),
        DType::Bf16 => single(half::bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f32()),
        DType::F32 => single(f32::from_ne_bytes(bytes.try_into().unwrap())),
        DType::F64 => FoldValue::Double(f64::from_ne_bytes(bytes.try_into().unwrap())),
        DType::I8 => whole!(i8),
        DType::U8 | DType::Bool => whole!(u8),
        DType::I32 => whole!(i32),
        DType::U32 => whole!(u32),
        DType::I64 => whole!(i64),
        DType::U64 => whole!(u64),
    }
}

fn write(memory: DType, value: FoldValue) -> Vec<u8> {
    match (memory, value) {
        (DType::F16, FoldValue::Single(v)) => half::f16::from_f32(v).to_ne_bytes().into(),
        (DType::F16, FoldValue::Double(v)) => half::f16::from_f32(sticky(v)).to_ne_bytes().into(),
        (DType::Bf16, FoldValue::Single(v)) => half::bf16::from_f32(v).to_ne_bytes().into(),
        (DType::Bf16, FoldValue::Double(v)) => half::bf16::from_f32(sticky(v)).to_ne_bytes().into(),
        (DType::F32, FoldValue::Single(v)) => v.to_ne_bytes().into(),
        (DType::F32, FoldValue::Double(v)) => (v as f32).to_ne_bytes().into(),
        (DType::F64, FoldValue::Double(v)) => v.to_ne_bytes().into(),
        (_, FoldValue::Whole(v)) => v.to_le_bytes()[..memory.size()].into(),
        other => panic!("{other:?}"),
    }
}

/// Truncates to `f32`, and sets the last bit if that was not exact.
fn sticky(v: f64) -> f32 {
    let near = v as f32;
    let below = if f64::from(near).abs() > v.abs() {
        if v > 0.0 { near.next_down() } else { near.next_up() }
    } else {
        near
    };
    if f64::from(below) == v || v.is_nan() { below } else { f32::from_bits(below.to_bits() | 1) }
}

fn apply(dtype: DType, op: RedOp, a: FoldValue, b: FoldValue) -> FoldValue {
    macro_rules! float {
        ($a:ident $b:ident) => {
            match op {
                RedOp::Sum | RedOp::Avg | RedOp::PremulSum => $a + $b,
                RedOp::Prod => $a * $b,
                _ if $a.is_nan() => $a,
                _ if $b.is_nan() => $b,
                RedOp::Min => [$a, $b][usize::from($b < $a)],
                RedOp::Max => [$a, $b][usize::from($b > $a)],
                _ => panic!("{op}"),
            }
        };
    }
    match (a, b) {
        (FoldValue::Single(a), FoldValue::Single(b)) => FoldValue::Single(float!(a b)),
        (FoldValue::Double(a), FoldValue::Double(b)) => FoldValue::Double(float!(a b)),
        (FoldValue::Whole(a), FoldValue::Whole(b)) => {
            let result = match op {
                RedOp::Sum | RedOp::Avg | RedOp::PremulSum => a + b,
                RedOp::Prod => a.wrapping_mul(b),
                RedOp::Min => a.min(b),
                RedOp::Max => a.max(b),
                RedOp::And => a & b,
                RedOp::Or => a | b,
                RedOp::Xor => a ^ b,
            };
            read(dtype, dtype, &write(dtype, FoldValue::Whole(result)))
        }
        other => panic!("{other:?}"),
    }
}

/// Returns true for equal bits, or two NaNs.
fn same(memory: DType, a: &[u8], b: &[u8]) -> bool {
    let nan = |bytes: &[u8]| match read(memory, memory, bytes) {
        FoldValue::Single(v) => v.is_nan(),
        FoldValue::Double(v) => v.is_nan(),
        FoldValue::Whole(_) => false,
    };
    a == b || nan(a) && nan(b)
}

/// A small generator of numbers (xorshift), and the floating-point environment of the threads that fold.
struct RandomBits(u64, Option<RegisterWord>);

impl RandomBits {
    /// Computes in the environment, and checks that it is there afterwards.
    fn in_environment(&self, compute: impl FnOnce()) {
        let Some(bits) = self.1 else { return compute() };
        let _changed = ChangedEnvironment::enter(bits);
        compute();
        assert_eq!(ChangedEnvironment::bits(), bits, "the thread's own environment is restored");
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 32) as usize % n
    }

    /// Returns any bits, with special values among them.
    fn element(&mut self, memory: DType) -> Vec<u8> {
        let specials =
            [0.0, -0.0, 1.0, -1.5, f64::NAN, f64::INFINITY, -f64::INFINITY, 1e-40, 6e-8, 5e-310];
        let special = specials[self.below(specials.len())];
        match memory {
            DType::Bool => vec![self.below(2) as u8],
            DType::F64 if self.below(4) == 0 => write(memory, FoldValue::Double(special)),
            DType::F16 | DType::Bf16 | DType::F32 if self.below(4) == 0 => {
                write(memory, FoldValue::Single(special as f32))
            }
            // Numbers of ordinary size, so that sums round.
            DType::F64 if self.below(2) == 0 => {
                write(memory, FoldValue::Double(self.next() as i64 as f64 / 1e18))
            }
            DType::F16 | DType::Bf16 | DType::F32 if self.below(2) == 0 => {
                write(memory, FoldValue::Single(self.next() as i64 as f32 / 1e18))
            }
            _ => self.next().to_ne_bytes()[..memory.size()].into(),
        }
    }
}

/// Memory of an operand at an odd place, with guards around it.
struct OperandRegion {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

const GUARD: u8 = 0xa5;

impl OperandRegion {
    fn new(random: &mut RandomBits, memory: DType, count: usize) -> OperandRegion {
        let (start, len) = (16 + random.below(80), count * memory.size());
        let mut bytes = vec![GUARD; start + len + 64];
        for k in 0..count {
            let at = start + k * memory.size();
            bytes[at..at + memory.size()].copy_from_slice(&random.element(memory));
        }
        OperandRegion { bytes, start, len }
    }

    fn ptr(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    fn content(&self) -> &[u8] {
        assert!(self.bytes[..self.start].iter().all(|&b| b == GUARD), "wrote before the output");
        let after = &self.bytes[self.start + self.len..];
        assert!(after.iter().all(|&b| b == GUARD), "wrote behind the output");
        &self.bytes[self.start..self.start + self.len]
    }
}

const WIRES: [Option<WireType>; 4] =
    [None, Some(WireType::F16), Some(WireType::Bf16), Some(WireType::F32)];

/// Checks one fold with random operands, some of the outputs in the place of inputs, on every level.
fn check_fold(
    random: &mut RandomBits,
    kernels: &[HostKernel],
    dtype: DType,
    op: RedOp,
    shape: [usize; 3],
) {
    let [inputs, outputs, count] = shape;
    let converts = kernels[0].wire_size(Some(WireType::F16)).is_ok() && random.below(3) == 0;
    let wire = |random: &mut RandomBits| if converts { WIRES[random.below(4)] } else { None };
    let sources: Vec<_> = (0..inputs)
        .map(|_| {
            let wire = wire(random);
            (wire, OperandRegion::new(random, lies_as(dtype, wire), count).content().to_vec())
        })
        .collect();
    // For each output its wire type, whether it streams, and the input whose place it takes.
    let mut free: Vec<usize> = (0..inputs).collect();
    let targets: Vec<_> = (0..outputs)
        .map(|_| {
            let place = (random.below(2) == 0 && !free.is_empty())
                .then(|| free.swap_remove(random.below(free.len())));
            let wire = place.map_or_else(|| wire(random), |p| sources[p].0);
            (wire, random.below(3) == 0, place)
        })
        .collect();
    let expected: Vec<FoldValue> = (0..count)
        .map(|k| {
            let operands = sources.iter().map(|(wire, bytes)| {
                let memory = lies_as(dtype, *wire);
                read(dtype, memory, &bytes[k * memory.size()..][..memory.size()])
            });
            operands.reduce(|a, b| apply(dtype, op, a, b)).unwrap()
        })
        .collect();
    for kernel in kernels {
        let mut regions: Vec<OperandRegion> = sources
            .iter()
            .map(|(wire, bytes)| {
                let mut region = OperandRegion::new(random, lies_as(dtype, *wire), count);
                region.bytes[region.start..region.start + region.len].copy_from_slice(bytes);
                region
            })
            .collect();
        let mut places = Vec::new();
        for &(wire, _, place) in &targets {
            places.push(place.unwrap_or(regions.len()));
            if place.is_none() {
                regions.push(OperandRegion::new(random, lies_as(dtype, wire), count));
            }
        }
        let ptrs: Vec<*mut u8> = regions.iter_mut().map(OperandRegion::ptr).collect();
        let from: Vec<FoldSource> = sources
            .iter()
            .zip(&ptrs)
            .map(|((wire, _), &ptr)| FoldSource { ptr, wire: *wire })
            .collect();
        let to: Vec<FoldTarget> = targets
            .iter()
            .zip(&places)
            .map(|(&(wire, stream, _), &place)| FoldTarget { ptr: ptrs[place], wire, stream })
            .collect();
        random.in_environment(|| {
            // SAFETY: every region holds `count` elements of its type; outputs are regions of their
            // own or exactly an input's, of the same type.
            unsafe { kernel.fold(&from, &to, count) };
        });
        for (&(wire, ..), &place) in targets.iter().zip(&places) {
            let memory = lies_as(dtype, wire);
            let got = regions[place].content().chunks(memory.size());
            for (k, (got, &value)) in got.zip(&expected).enumerate() {
                let want = write(memory, value);
                assert!(
                    same(memory, got, &want),
                    "{dtype} {op}, {inputs} to {outputs}, element {k} of {count} as {memory}: \
                     {got:?}, not {want:?}; {targets:?}"
                );
            }
        }
    }
}

#[test]
fn folds_equal_the_reference() {
    let mut random = RandomBits(0x9e37_79b9_7f4a_7c15, None);
    let counts = [0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 33, 100, 255, 257, 1023, 1025, 2051];
    for &dtype in DType::ALL {
        for &op in RedOp::ALL {
            let levels = InstructionLevel::available().iter();
            let kernels: Result<Vec<_>, _> = levels.map(|&l| kernel_at(l, dtype, op)).collect();
            let Ok(kernels) = kernels else { continue };
            for inputs in 1..=5 {
                for outputs in 1..=3 {
                    for count in counts {
                        check_fold(&mut random, &kernels, dtype, op, [inputs, outputs, count]);
                    }
                }
            }
        }
    }
}

#[test]
fn classes_have_their_operators() {
    let bitwise = [RedOp::And, RedOp::Or, RedOp::Xor];
    let sums = [RedOp::Sum, RedOp::Prod, RedOp::Avg, RedOp::PremulSum];
    for &dtype in DType::ALL {
        let float = dtype.is_float();
        for &op in RedOp::ALL {
            let has =
                !(float && bitwise.contains(&op) || dtype == DType::Bool && sums.contains(&op));
            assert_eq!(kernel(dtype, op).is_ok(), has, "{dtype} {op}");
        }
        assert_eq!(HostKernel::copies(dtype).wire_size(Some(WireType::Bf16)).is_ok(), float);
        assert_eq!(HostKernel::copies(dtype).wire_size(None), Ok(dtype.size()));
    }
    assert_eq!(
        kernel(DType::Bool, RedOp::Sum).unwrap_err().to_string(),
        "`sum` of bool has no meaning; bool has min, max, and, or, xor"
    );
}

/// Rounds to 16 bits through the kernels of every level, in both the wide loop and its rest.
fn round_everywhere(dtype: DType, wire: WireType, value: FoldValue) -> Vec<u16> {
    let values: Vec<u8> = std::iter::repeat_n(write(dtype, value), 9).flatten().collect();
    let mut rounded = Vec::new();
    for &level in InstructionLevel::available() {
        let kernel = kernel_at(level, dtype, RedOp::Max).unwrap();
        let mut to = [0_u16; 9];
        let from = FoldSource { ptr: values.as_ptr(), wire: None };
        let target = FoldTarget { ptr: to.as_mut_ptr().cast(), wire: Some(wire), stream: false };
        // SAFETY: both hold nine elements.
        unsafe { kernel.fold(&[from], &[target], 9) };
        rounded.extend(to);
    }
    rounded
}

#[test]
fn sixteen_bits_round_to_the_nearest_even() {
    let value = |wire, bits: u16| match wire {
        WireType::F16 if bits == 0x7c00 => 65536.0,
        WireType::F16 => half::f16::from_bits(bits).to_f64(),
        _ if bits == 0x7f80 => 2_f64.powi(128),
        _ => half::bf16::from_bits(bits).to_f64(),
    };
    for (wire, infinity) in [(WireType::F16, 0x7c00_u16), (WireType::Bf16, 0x7f80)] {
        for low in 0..infinity {
            let middle = (value(wire, low) + value(wire, low + 1)) / 2.0;
            let even = low + (low & 1);
            for sign in [0, 0x8000] {
                let signed = |v: f64| if sign == 0 { v } else { -v };
                let store = |v: f64| match wire {
                    WireType::F16 => <HalfFloat as ValueFormat<f64>>::store(signed(v)),
                    _ => <BrainFloat as ValueFormat<f64>>::store(signed(v)),
                };
                assert_eq!(store(value(wire, low)), low | sign);
                assert_eq!(store(middle), even | sign, "{middle:e}");
                assert_eq!(store(middle.next_up()), (low + 1) | sign, "{middle:e}");
                assert_eq!(store(middle.next_down()), low | sign, "{middle:e}");
            }
            if low % 61 == 0 || low < 3 || infinity - low < 3 {
                for bits in round_everywhere(DType::F64, wire, FoldValue::Double(middle.next_up()))
                {
                    assert_eq!(bits, low + 1);
                }
                for bits in round_everywhere(DType::F32, wire, FoldValue::Single(middle as f32)) {
                    assert_eq!(bits, even);
                }
            }
        }
    }
}

#[test]
fn sixteen_bits_are_read_as_the_half_crate_reads_them() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) =
            (<HalfFloat as ValueFormat<f32>>::load(bits), half::f16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{bits:#x}"
        );
        let (ours, theirs) =
            (<BrainFloat as ValueFormat<f32>>::load(bits), half::bf16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{bits:#x}"
        );
    }
}

proptest! {
    #[test]
    fn any_f32_rounds_as_in_the_half_crate(bits: u32) {
        let value = f32::from_bits(bits);
        let (f16, bf16) = (half::f16::from_f32(value), half::bf16::from_f32(value));
        for (wire, want) in [(WireType::F16, f16.to_bits()), (WireType::Bf16, bf16.to_bits())] {
            for got in round_everywhere(DType::F32, wire, FoldValue::Single(value)) {
                prop_assert!(value.is_nan() || got == want);
            }
        }
    }

    #[test]
    fn nan_stays_nan(payload in 1_u32..0x80_0000, sign: bool) {
        let value = f32::from_bits(0x7f80_0000 | payload | u32::from(sign) << 31);
        for bits in round_everywhere(DType::F32, WireType::F16, FoldValue::Single(value)) {
            prop_assert!(half::f16::from_bits(bits).is_nan());
        }
        for bits in round_everywhere(DType::F32, WireType::Bf16, FoldValue::Single(value)) {
            prop_assert!(half::bf16::from_bits(bits).is_nan());
        }
        let double = f64::from_bits(0x7ff0_0000_0000_0000 | u64::from(payload) << 3 | 1);
        for bits in round_everywhere(DType::F64, WireType::Bf16, FoldValue::Double(double)) {
            prop_assert!(half::bf16::from_bits(bits).is_nan());
        }
    }
}

#[test]
fn scaling_and_dividing_equal_the_reference() {
    check_scales(None);
}

/// Subnormal operands, results and sums in each changed environment, for every type, operator and level.
#[test]
fn results_do_not_depend_on_the_threads_environment() {
    for bits in CHANGES {
        let mut random = RandomBits(0xd1b5_4a32_d192_ed03, Some(bits));
        for &dtype in DType::ALL {
            for &op in RedOp::ALL {
                let levels = InstructionLevel::available().iter();
                let kernels: Result<Vec<_>, _> = levels.map(|&l| kernel_at(l, dtype, op)).collect();
                let Ok(kernels) = kernels else { continue };
                for shape in [[1, 1, 40], [2, 1, 100], [2, 2, 33], [3, 1, 17], [2, 1, 1025]] {
                    check_fold(&mut random, &kernels, dtype, op, shape);
                    check_fold(&mut random, &kernels, dtype, op, shape);
                }
            }
        }
        check_scales(Some(bits));
    }
}

fn check_scales(bits: Option<RegisterWord>) {
    let mut random = RandomBits(7, bits);
    for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Bool) {
        for &level in InstructionLevel::available() {
            let kernel = kernel_at(level, dtype, RedOp::Sum).unwrap();
            for (count, n) in
                [(0, 2), (1, 3), (9, 7), (133, 128), (257, 200), (31, 1), (40, 1 << 40)]
            {
                let region = OperandRegion::new(&mut random, dtype, count);
                let before = region.content().to_vec();
                let mut scaled = OperandRegion { bytes: region.bytes.clone(), ..region };
                let mut divided = region;
                random.in_environment(|| {
                    // SAFETY: both regions hold `count` elements.
                    unsafe {
                        kernel.scale(scaled.ptr(), count, 3.0);
                        kernel.divide(divided.ptr(), count, n);
                    }
                });
                for (k, bytes) in before.chunks(dtype.size()).enumerate() {
                    let (product, quotient) = match read(dtype, dtype, bytes) {
                        FoldValue::Single(v) => {
                            (FoldValue::Single(v * 3.0), FoldValue::Single(v / n as f32))
                        }
                        FoldValue::Double(v) => {
                            (FoldValue::Double(v * 3.0), FoldValue::Double(v / n as f64))
                        }
                        FoldValue::Whole(v) => {
                            (FoldValue::Whole(v * 3), FoldValue::Whole(v / i128::from(n)))
                        }
                    };
                    let at = k * dtype.size()..(k + 1) * dtype.size();
                    assert!(same(dtype, &scaled.content()[at.clone()], &write(dtype, product)));
                    assert!(
                        same(dtype, &divided.content()[at], &write(dtype, quotient)),
                        "{dtype} {n}"
                    );
                }
            }
        }
    }
}

#[test]
fn factors_of_integers_truncate_and_wrap() {
    let kernel = kernel(DType::I8, RedOp::PremulSum).unwrap();
    let mut data = [100_i8, -3, 1];
    // SAFETY: three elements.
    unsafe { kernel.scale(data.as_mut_ptr().cast(), 3, -2.75) };
    assert_eq!(data, [100_i8.wrapping_mul(-2), 6, -2]);
    // SAFETY: three elements.
    unsafe { kernel.divide(data.as_mut_ptr().cast(), 3, 0) };
    assert_eq!(data, [56, 6, -2], "a division by no ranks leaves all as it is");
}
