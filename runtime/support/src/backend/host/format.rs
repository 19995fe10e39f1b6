//! Describes the representation of values in memory, and their conversion to the type that arithmetic is done
//! in.
//!
//! Conversions are written without branches, on integers, so that the loops around them become
//! vector instructions on every processor. All round to nearest, ties to even; NaN stays NaN.

/// A representation in memory of values that are computed with as `A`.
pub(crate) trait ValueFormat<A: Copy>: 'static {
    /// The bytes of one value.
    type Bits: Copy;

    /// Converts from memory. Exact if `A` is the wider of the two.
    fn load(bits: Self::Bits) -> A;

    /// Converts to memory, rounded.
    fn store(value: A) -> Self::Bits;

    /// True if `load_lanes` and `store_lanes` beat a loop over `load` and `store`, which compilers turn into
    /// vector instructions by themselves where these exist on all values of a vector.
    const LANES: bool = false;

    /// Loads [`LANES`] neighbours from memory.
    ///
    /// # Safety
    /// `from` is good for reading [`LANES`] values; it need not be aligned.
    #[inline(always)]
    unsafe fn load_lanes(from: *const Self::Bits) -> [A; LANES] {
        // SAFETY: the caller promises that many readable values.
        unsafe { from.cast::<[Self::Bits; LANES]>().read_unaligned() }.map(Self::load)
    }

    /// Stores [`LANES`] neighbours to memory.
    ///
    /// # Safety
    /// `to` is good for writing [`LANES`] values; it need not be aligned.
    #[inline(always)]
    unsafe fn store_lanes(values: [A; LANES], to: *mut Self::Bits) {
        // SAFETY: the caller promises room for that many values.
        unsafe { to.cast::<[Self::Bits; LANES]>().write_unaligned(values.map(Self::store)) };
    }
}

/// Values handled as one where a format asks for it: a vector of AVX.
pub(crate) const LANES: usize = 8;

/// The format of an element type.
pub(crate) trait NativeFormat: ValueFormat<Self::Acc> {
    /// The type that its values are computed with.
    type Acc: Copy;
}

/// Types that lie in memory as they are computed with.
macro_rules! plain {
    ($($type:ty)*) => {$(
        impl NativeFormat for $type {
            type Acc = $type;
        }

        impl ValueFormat<$type> for $type {
            type Bits = $type;

            #[inline(always)]
            fn load(bits: $type) -> $type {
                bits
            }

            #[inline(always)]
            fn store(value: $type) -> $type {
                value
            }
        }
    )*};
}

plain!(f32 f64 i8 u8 i32 u32 i64 u64);

impl ValueFormat<f64> for f32 {
    type Bits = f32;

    #[inline(always)]
    fn load(bits: f32) -> f64 {
        f64::from(bits)
    }

    #[inline(always)]
    fn store(value: f64) -> f32 {
        value as f32
    }
}

/// bfloat16.
pub(crate) struct BrainFloat;

impl ValueFormat<f32> for BrainFloat {
    type Bits = u16;

    #[inline(always)]
    fn load(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn store(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // Rounding could carry a NaN's payload into the sign: keep its upper half, and one bit set.
        let nan = bits >> 16 | 0x40;
        (if value.is_nan() { nan } else { rounded }) as u16
    }
}

/// IEEE binary16, on any processor.
pub(crate) struct HalfFloat;

/// 2^112: from the exponent bias of binary16 to that of `f32`, subnormals included.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);

impl ValueFormat<f32> for HalfFloat {
    type Bits = u16;

    #[inline(always)]
    fn load(bits: u16) -> f32 {
        let bits = u32::from(bits);
        let magnitude = bits & 0x7fff;
        let finite = (f32::from_bits(magnitude << 13) * REBIAS).to_bits();
        let special = magnitude << 13 | 0x7f80_0000;
        let value = if magnitude >= 0x7c00 { special } else { finite };
        f32::from_bits(value | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn store(value: f32) -> u16 {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let normal =
            magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
        // Adding 0.5 leaves the multiples of 2^-24, the subnormals, in the low bits, rounded.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
        let nan = magnitude >> 13 & 0x3ff | 0x7e00;
        let rounded = if magnitude < 113 << 23 { subnormal } else { normal };
        let finite = if magnitude >= 143 << 23 { 0x7c00 } else { rounded };
        let result = if magnitude > 0x7f80_0000 { nan } else { finite };
        (result | bits >> 16 & 0x8000) as u16
    }
}

/// Formats of 16 bits are computed with as `f32`, and go to and from `f64` by way of it.
macro_rules! short {
    ($($type:ty)*) => {$(
        impl NativeFormat for $type {
            type Acc = f32;
        }

        impl ValueFormat<f64> for $type {
            type Bits = u16;

            #[inline(always)]
            fn load(bits: u16) -> f64 {
                f64::from(<Self as ValueFormat<f32>>::load(bits))
            }

            #[inline(always)]
            fn store(value: f64) -> u16 {
                <Self as ValueFormat<f32>>::store(round_to_odd(value))
            }
        }
    )*};
}

short!(HalfFloat BrainFloat);

/// Rounds to `f32` so that a second rounding to 16 bits is as if it were the only one: where the
/// value is not exact, the last bit is set in place of rounding.
#[inline(always)]
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let away = f64::from(nearest).abs() > value.abs();
    let inexact = f64::from(nearest) != value;
    f32::from_bits(nearest.to_bits().wrapping_sub(u32::from(away)) | u32::from(inexact))
}

/// IEEE binary16 on processors with F16C. Only the levels that have it name this type.
#[cfg(target_arch = "x86_64")]
pub(crate) struct HalfF16c;

#[cfg(target_arch = "x86_64")]
impl ValueFormat<f32> for HalfF16c {
    type Bits = u16;

    const LANES: bool = true;

    #[inline(always)]
    fn load(bits: u16) -> f32 {
        use std::arch::x86_64::{_mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32};
        // SAFETY: the level that names this type has F16C.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }

    #[inline(always)]
    fn store(value: f32) -> u16 {
        use std::arch::x86_64::{
            _MM_FROUND_TO_NEAREST_INT, _mm_cvtps_ph, _mm_cvtsi128_si32, _mm_set_ss,
        };
        // SAFETY: the level that names this type has F16C.
        unsafe {
            let narrow = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(value));
            _mm_cvtsi128_si32(narrow) as u16
        }
    }

    #[inline(always)]
    unsafe fn load_lanes(from: *const u16) -> [f32; LANES] {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        let mut values = [0.0; LANES];
        for k in (0..LANES).step_by(8) {
            // SAFETY: eight of the readable values, and eight of the array's; the level that names
            // this type has AVX and F16C.
            unsafe {
                let wide = _mm256_cvtph_ps(_mm_loadu_si128(from.add(k).cast()));
                _mm256_storeu_ps(values.as_mut_ptr().add(k), wide);
            }
        }
        values
    }

    #[inline(always)]
    unsafe fn store_lanes(values: [f32; LANES], to: *mut u16) {
        use std::arch::x86_64::{
            _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
        };
        for k in (0..LANES).step_by(8) {
            // SAFETY: eight of the array's values, and room for eight; the level that names this
            // type has AVX and F16C.
            unsafe {
                let wide = _mm256_loadu_ps(values.as_ptr().add(k));
                let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm_storeu_si128(to.add(k).cast(), narrow);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
short!(HalfF16c);
