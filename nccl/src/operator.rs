//! Operators of reductions: NCCL's own, and those that programs make of a factor.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};
use roundelay::{DType, RedOp, Reduction};

use crate::cuda;
use crate::elements;
use crate::failure::{CallFailure, Outcome};

/// The first number of an operator that a program made.
const FIRST: c_int = 5;
/// `ncclScalarHostImmediate`, and `ncclScalarDevice`.
const IMMEDIATE: c_int = 1;
const ON_DEVICE: c_int = 0;

/// An operator that a program made: the sum of elements that were multiplied by a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PremulSum {
    dtype: DType,
    factor: ScaleFactor,
}

/// The factor of this rank.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ScaleFactor {
    Known(f64),
    /// It lies there when the stream comes to the call.
    At(u64),
}

/// The operators that were made for a communicator.
#[derive(Debug, Default)]
pub(crate) struct CustomOperators(Mutex<Vec<Option<PremulSum>>>);

/// The operator of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CallOperator {
    Own(RedOp),
    Made(PremulSum),
}

impl CallOperator {
    /// The operator of calls that reduce nothing.
    pub(crate) const NONE: CallOperator = CallOperator::Own(RedOp::Sum);

    /// Returns the reduction that a call in a stream performs.
    ///
    /// # Errors
    ///
    /// A factor on a device is waited for, which a stream that is captured does not allow.
    pub(crate) fn reduction(self, stream: u64) -> Outcome<Reduction> {
        let (dtype, address) = match self {
            CallOperator::Own(op) => return Ok(op.into()),
            CallOperator::Made(PremulSum { factor: ScaleFactor::Known(factor), .. }) => {
                return Ok(Reduction::premul_sum(factor));
            }
            CallOperator::Made(PremulSum { dtype, factor: ScaleFactor::At(address) }) => {
                (dtype, address)
            }
        };
        if cuda::is_captured(stream)? {
            return Err(CallFailure::usage(
                "a factor in device memory (ncclScalarDevice) is read when the call is made, which a stream that is \
                 captured does not allow: give it as ncclScalarHostImmediate",
            ));
        }
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..dtype.size()];
        cuda::read(address, bytes, stream)?;
        Ok(Reduction::premul_sum(number(dtype, bytes)?))
    }
}

impl CustomOperators {
    /// Makes an operator; returns its number.
    ///
    /// # Safety
    ///
    /// `scalar` is an element of the type: now, in memory of the host, or for as long as the operator is used, in
    /// memory of the device, as `residence` says.
    pub(crate) unsafe fn make(
        &self,
        scalar: *const c_void,
        dtype: c_int,
        residence: c_int,
        is_host: bool,
    ) -> Outcome<c_int> {
        let dtype = elements::reduced(dtype)?;
        if scalar.is_null() {
            return Err(CallFailure::argument("scalar is NULL"));
        }
        let factor = match residence {
            // Where all memory is the host's, that of a device is too.
            IMMEDIATE | ON_DEVICE if is_host || residence == IMMEDIATE => {
                // SAFETY: what the caller promises.
                let bytes =
                    unsafe { std::slice::from_raw_parts(scalar.cast::<u8>(), dtype.size()) };
                ScaleFactor::Known(number(dtype, bytes)?)
            }
            ON_DEVICE => ScaleFactor::At(scalar.expose_provenance() as u64),
            _ => {
                return Err(CallFailure::argument(format!(
                    "{residence} is no ncclScalarResidence_t"
                )));
            }
        };
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = made.iter().position(Option::is_none).unwrap_or(made.len());
        let number = c_int::try_from(free).ok().and_then(|at| at.checked_add(FIRST));
        let number = number.ok_or_else(|| CallFailure::usage("there are too many operators"))?;
        let operator = Some(PremulSum { dtype, factor });
        match made.get_mut(free) {
            Some(place) => *place = operator,
            None => made.push(operator),
        }
        Ok(number)
    }

    /// Forgets an operator. Calls that were made with it keep it.
    pub(crate) fn destroy(&self, number: c_int) -> Outcome {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(number);
        match place.and_then(|place| made.get_mut(place)).and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(unknown(number)),
        }
    }

    /// Returns the operator of that number, for elements of a type.
    pub(crate) fn find(&self, number: c_int, dtype: DType) -> Outcome<CallOperator> {
        const OWN: [RedOp; 5] = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg];
        if let Some(op) = usize::try_from(number).ok().and_then(|at| OWN.get(at)) {
            return Ok(CallOperator::Own(*op));
        }
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(number);
        let found = place.and_then(|place| made.get(place).copied().flatten());
        let found = found.ok_or_else(|| unknown(number))?;
        match found.dtype == dtype {
            true => Ok(CallOperator::Made(found)),
            false => Err(CallFailure::argument(format!(
                "operator {number} was made for elements of {}, and the call has elements of {dtype}",
                found.dtype
            ))),
        }
    }
}

/// Returns the place of an operator that a program made.
fn place(number: c_int) -> Option<usize> {
    usize::try_from(i64::from(number) - i64::from(FIRST)).ok()
}

fn unknown(number: c_int) -> CallFailure {
    CallFailure::argument(format!(
        "{number} is no operator of this communicator: ncclRedOp_t goes from 0 to 4, and on to what \
         ncclRedOpCreatePreMulSum has made"
    ))
}

/// Returns the number that an element is.
fn number(dtype: DType, bytes: &[u8]) -> Outcome<f64> {
    /// The largest whole number up to which doubles have all.
    const EXACT: u64 = 1 << 53;
    macro_rules! of {
        ($type:ty) => {
            bytes.try_into().map(<$type>::from_ne_bytes).ok()
        };
    }
    let whole = match dtype {
        DType::I64 => of!(i64).map(|value| (value as f64, value.unsigned_abs())),
        DType::U64 => of!(u64).map(|value| (value as f64, value)),
        _ => None,
    };
    let value = match (dtype, whole) {
        (_, Some((_, size))) if size > EXACT => {
            return Err(CallFailure::argument(format!(
                "a factor of {dtype} beyond 2^53 is not served: roundelay keeps factors as doubles"
            )));
        }
        (_, Some((value, _))) => Some(value),
        (DType::F16, _) => of!(f16).map(f64::from),
        (DType::Bf16, _) => of!(bf16).map(f64::from),
        (DType::F32, _) => of!(f32).map(f64::from),
        (DType::F64, _) => of!(f64),
        (DType::I8, _) => of!(i8).map(f64::from),
        (DType::U8, _) => of!(u8).map(f64::from),
        (DType::I32, _) => of!(i32).map(f64::from),
        (DType::U32, _) => of!(u32).map(f64::from),
        _ => None,
    };
    value.ok_or_else(|| CallFailure::argument(format!("there is no factor of {dtype}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make<T>(made: &CustomOperators, value: &T, dtype: c_int) -> Outcome<c_int> {
        // SAFETY: the value is of the type.
        unsafe { made.make((&raw const *value).cast(), dtype, IMMEDIATE, false) }
    }

    #[test]
    fn own_operators_have_the_numbers_of_nccl() {
        let none = CustomOperators::default();
        let own: Vec<_> = (0..5).map(|op| none.find(op, DType::F32)).collect();
        let ops = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg];
        assert_eq!(own, ops.map(|op| Ok(CallOperator::Own(op))));
        assert!(none.find(5, DType::F32).is_err() && none.find(-1, DType::F32).is_err());
    }

    #[test]
    fn operators_are_made_found_and_destroyed() {
        let made = CustomOperators::default();
        let half = make(&made, &0.5f32, 7).expect("an operator");
        let three = make(&made, &3i64, 4).expect("an operator");
        assert_eq!([half, three], [5, 6]);
        let found = made.find(half, DType::F32).expect("it was made");
        assert_eq!(found.reduction(0), Ok(Reduction::premul_sum(0.5)));
        assert!(made.find(half, DType::F64).is_err(), "it is for another type");
        assert_eq!(made.destroy(half), Ok(()));
        assert!(made.destroy(half).is_err() && made.find(half, DType::F32).is_err());
        assert_eq!(make(&made, &bf16::from_f32(0.25), 9), Ok(5), "numbers are used again");
        let found = made.find(5, DType::Bf16).expect("it was made");
        assert_eq!(found.reduction(0), Ok(Reduction::premul_sum(0.25)));
        assert_eq!(
            made.find(three, DType::I64).map(|op| op.reduction(0)),
            Ok(Ok(Reduction::premul_sum(3.0)))
        );
    }

    #[test]
    fn factors_that_would_be_rounded_are_refused() {
        let made = CustomOperators::default();
        assert!(make(&made, &(1u64 << 53), 5).is_ok());
        assert!(make(&made, &((1u64 << 53) + 1), 5).is_err());
        assert!(make(&made, &i64::MIN, 4).is_err());
        assert!(make(&made, &0u8, 10).is_err(), "no arithmetic of fp8");
        // SAFETY: nothing is read at NULL.
        assert!(unsafe { made.make(std::ptr::null(), 7, IMMEDIATE, false) }.is_err());
        // SAFETY: nothing is read where the residence is none.
        assert!(unsafe { made.make((&raw const made).cast(), 7, 2, false) }.is_err());
    }
}
