//! NCCL's types of elements, and what becomes of them here.

use std::ffi::c_int;

use roundelay::DType;

use crate::failure::{CallFailure, Outcome};

/// A type by NCCL's number: its name there, and the type here; those of eight bits for learning have none.
const TYPES: [(&str, Option<DType>); 12] = [
    ("ncclInt8", Some(DType::I8)),
    ("ncclUint8", Some(DType::U8)),
    ("ncclInt32", Some(DType::I32)),
    ("ncclUint32", Some(DType::U32)),
    ("ncclInt64", Some(DType::I64)),
    ("ncclUint64", Some(DType::U64)),
    ("ncclFloat16", Some(DType::F16)),
    ("ncclFloat32", Some(DType::F32)),
    ("ncclFloat64", Some(DType::F64)),
    ("ncclBfloat16", Some(DType::Bf16)),
    ("ncclFloat8e4m3", None),
    ("ncclFloat8e5m2", None),
];

fn entry(code: c_int) -> Outcome<(&'static str, Option<DType>)> {
    let entry = usize::try_from(code).ok().and_then(|code| TYPES.get(code));
    entry.copied().ok_or_else(|| {
        CallFailure::argument(format!(
            "{code} is no type of elements; ncclDataType_t goes from 0 to 11"
        ))
    })
}

/// Returns the type as which elements are copied.
pub(crate) fn copied(code: c_int) -> Outcome<DType> {
    Ok(entry(code)?.1.unwrap_or(DType::U8))
}

/// Returns the type as which elements are reduced.
pub(crate) fn reduced(code: c_int) -> Outcome<DType> {
    let (name, dtype) = entry(code)?;
    dtype.ok_or_else(|| {
        CallFailure::argument(format!(
            "elements of {name} are copied and not reduced: roundelay has no arithmetic for them; reduce them as \
             ncclFloat16 or ncclBfloat16"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_numbers_of_nccl() {
        let sizes: Vec<usize> = (0..12).map(|code| copied(code).expect("a type").size()).collect();
        assert_eq!(sizes, [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]);
        assert_eq!((reduced(7), reduced(9)), (Ok(DType::F32), Ok(DType::Bf16)));
    }

    #[test]
    fn what_has_no_arithmetic_is_refused() {
        for code in [10, 11] {
            let refused = reduced(code).expect_err("no sum of them");
            assert!(refused.text.contains("ncclFloat8"), "{}", refused.text);
        }
        for code in [-1, 12, c_int::MAX] {
            assert!(copied(code).is_err() && reduced(code).is_err());
        }
    }
}
