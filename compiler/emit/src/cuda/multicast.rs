//! The instructions by which the switch combines what all ranks hold: of some types, by some operators, 16 bytes at a
//! time. The order in which it takes the ranks is its own, so sums of floats may differ from those of other protocols
//! in their last bits. Sums of `f16` and `bf16` are made in `f32`, and rounded once.
//!
//! Which there are is said by NVIDIA's PTX ISA, `multimem.ld_reduce`.

use super::types::{Element, Operator};

/// The text of what has no type.
pub(super) const TEXT: &str = include_str!("multicast.cuh");

/// Returns the function that reads 16 bytes of what all ranks hold, combined; nothing if the switch has no such
/// operator.
pub(super) fn reduced(element: Element, operator: Operator) -> Option<String> {
    let operator = match operator {
        Operator::Sum | Operator::Avg | Operator::PremulSum => "add",
        Operator::Min => "min",
        Operator::Max => "max",
        Operator::And => "and",
        Operator::Or => "or",
        Operator::Xor => "xor",
        Operator::Prod => return None,
    };
    let bitwise = ["and", "or", "xor"].contains(&operator);
    let what = match element {
        Element::F32 if operator == "add" => "add.v4.f32".into(),
        Element::F16 | Element::Bf16 => {
            let wide = if operator == "add" { ".acc::f32" } else { "" };
            format!("{operator}{wide}.v4.{}x2", element.name())
        }
        Element::F64 if operator == "add" => "add.f64".into(),
        Element::I32 | Element::U32 if bitwise => format!("{operator}.b32"),
        Element::I64 | Element::U64 if bitwise => format!("{operator}.b64"),
        // A sum is the same with a sign and without.
        Element::I32 | Element::I64 if operator != "add" => {
            format!("{operator}.s{}", 8 * element.size())
        }
        Element::I32 | Element::U32 | Element::I64 | Element::U64 => {
            format!("{operator}.u{}", 8 * element.size())
        }
        _ => return None,
    };
    let instruction = format!("multimem.ld_reduce.relaxed.sys.global.{what}");
    let body = if what.contains(".v4.") {
        format!(
            "    asm volatile(\"{instruction} {{%0, %1, %2, %3}}, [%4];\"\n                 : \"=r\"(x.w[0]), \
             \"=r\"(x.w[1]), \"=r\"(x.w[2]), \"=r\"(x.w[3]) : \"l\"(at) : \"memory\");\n"
        )
    } else if element.size() == 4 {
        format!(
            "    EACH(4, asm volatile(\"{instruction} %0, [%1];\" : \"=r\"(x.w[k]) : \"l\"(at + 4 * k) : \"memory\"))\n"
        )
    } else {
        let (kind, value) = if element == Element::F64 { ("d", "double") } else { ("l", "u64") };
        format!(
            "    EACH(2, {value} value; asm volatile(\"{instruction} %0, [%1];\" : \"={kind}\"(value) : \"l\"(at + 8 * k) \
             : \"memory\");\n         const u64 bits = __builtin_bit_cast(u64, value); x.w[2 * k] = (u32)bits; x.w[2 * k + 1] \
             = (u32)(bits >> 32))\n"
        )
    };
    Some(format!(
        "\n// 16 bytes of what all ranks hold there, combined.\nINLINE Piece<16> reduced(u64 at) {{\n    Piece<16> x;\n\
         {body}    return x;\n}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_has_some_operators() {
        let has = |element, operator| reduced(element, operator).is_some();
        assert!(has(Element::F32, Operator::Sum) && !has(Element::F32, Operator::Max));
        assert!(has(Element::Bf16, Operator::Max) && has(Element::F64, Operator::Avg));
        assert!(!has(Element::I8, Operator::Sum) && !has(Element::U32, Operator::Prod));
        let of = |element, operator| reduced(element, operator).expect("it has");
        assert!(of(Element::I32, Operator::Min).contains(".min.s32 %0"));
        assert!(of(Element::I64, Operator::Sum).contains(".add.u64 %0"));
        assert!(of(Element::Bf16, Operator::Sum).contains(".add.acc::f32.v4.bf16x2 {"));
    }
}
