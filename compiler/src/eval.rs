//! The values of expressions with numbers in them.

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::Span;

use crate::num::index;
use crate::program::{Builtin, Expr, Node};

/// Arithmetic without a result, at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvalError {
    /// The expression at fault.
    pub span: Span,
    /// The error, with the operands.
    pub message: String,
}

impl EvalError {
    /// Converts the error into a diagnostic.
    pub(crate) fn diagnostic(self) -> roundelay_dsl::diag::Diagnostic {
        roundelay_dsl::diag::Diagnostic::error(codes::ARITHMETIC, self.message)
            .label(self.span, "here")
    }
}

/// Evaluates `e`.
pub(crate) fn eval(e: &Expr, env: &mut [i64]) -> Result<i64, EvalError> {
    Ok(match &e.node {
        Node::Int(v) => *v,
        Node::Var(s) => env[index(*s)],
        Node::Unary(UnOp::Neg, a) => {
            let a = eval(a, env)?;
            a.checked_neg().ok_or_else(|| overflow(e.span, format!("-({a})")))?
        }
        Node::Unary(UnOp::Not, a) => i64::from(eval(a, env)? == 0),
        Node::Binary(BinOp::And, a, b) => i64::from(eval(a, env)? != 0 && eval(b, env)? != 0),
        Node::Binary(BinOp::Or, a, b) => i64::from(eval(a, env)? != 0 || eval(b, env)? != 0),
        Node::Binary(op, a, b) => {
            let (a, b) = (eval(a, env)?, eval(b, env)?);
            operate(*op, a, b).map_err(|m| EvalError { span: e.span, message: m })?
        }
        Node::Call(f, args) => {
            let first = eval(&args[0], env)?;
            let mut acc = first;
            if args.len() == 1 {
                acc =
                    unary_builtin(*f, first).map_err(|m| EvalError { span: e.span, message: m })?;
            }
            for arg in &args[1..] {
                let b = eval(arg, env)?;
                acc = binary_builtin(*f, acc, b)
                    .map_err(|m| EvalError { span: e.span, message: m })?;
            }
            acc
        }
        Node::If(c, a, b) => {
            if eval(c, env)? != 0 {
                eval(a, env)?
            } else {
                eval(b, env)?
            }
        }
        Node::Let(slot, value, body) => {
            let value = eval(value, env)?;
            env[index(*slot)] = value;
            eval(body, env)?
        }
    })
}

fn overflow(span: Span, what: String) -> EvalError {
    EvalError { span, message: format!("{what} overflows 64 bits") }
}

impl Builtin {
    /// Returns the value, as programs compute it; with more than two arguments, pair by pair.
    ///
    /// # Errors
    ///
    /// Returns a text where there is no value.
    pub fn value(self, args: &[i64]) -> Result<i64, String> {
        match args {
            [] => Err("a function has arguments".into()),
            [a] => unary_builtin(self, *a),
            [a, rest @ ..] => rest.iter().try_fold(*a, |a, &b| binary_builtin(self, a, b)),
        }
    }
}

/// Returns the value of an operator, as programs compute it.
///
/// # Errors
///
/// Returns a text where there is no value.
pub fn operate(op: BinOp, a: i64, b: i64) -> Result<i64, String> {
    let checked =
        |v: Option<i64>| v.ok_or_else(|| format!("{a} {} {b} overflows 64 bits", op.symbol()));
    let shift = || {
        u32::try_from(b)
            .ok()
            .filter(|&b| b < 63)
            .ok_or_else(|| format!("{a} {} {b}: shifts go from 0 to 62", op.symbol()))
    };
    Ok(match op {
        BinOp::Or => i64::from(a != 0 || b != 0),
        BinOp::And => i64::from(a != 0 && b != 0),
        BinOp::Eq => i64::from(a == b),
        BinOp::Ne => i64::from(a != b),
        BinOp::Lt => i64::from(a < b),
        BinOp::Le => i64::from(a <= b),
        BinOp::Gt => i64::from(a > b),
        BinOp::Ge => i64::from(a >= b),
        BinOp::BitOr => a | b,
        BinOp::BitXor => a ^ b,
        BinOp::BitAnd => a & b,
        BinOp::Shl => {
            let s = shift()?;
            checked(a.checked_mul(1i64 << s))?
        }
        BinOp::Shr => a >> shift()?,
        BinOp::Add => checked(a.checked_add(b))?,
        BinOp::Sub => checked(a.checked_sub(b))?,
        BinOp::Mul => checked(a.checked_mul(b))?,
        BinOp::Div | BinOp::Mod if b == 0 => {
            return Err(format!("{a} {} 0 has no value", op.symbol()));
        }
        BinOp::Div => floor_div(a, b).ok_or_else(|| format!("{a} / {b} overflows 64 bits"))?,
        BinOp::Mod => match a.checked_rem(b).unwrap_or(0) {
            r if r != 0 && (r < 0) != (b < 0) => r + b,
            r => r,
        },
    })
}

/// Divides, rounding down.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

fn unary_builtin(f: Builtin, a: i64) -> Result<i64, String> {
    let positive = |name: &str| {
        if a > 0 {
            Ok(a.unsigned_abs())
        } else {
            Err(format!("{name}({a}) has no value: it needs a positive number"))
        }
    };
    Ok(match f {
        Builtin::Log2 => i64::from(positive("log2")?.ilog2()),
        Builtin::CeilLog2 => {
            let a = positive("ceil_log2")?;
            i64::from(u64::BITS - (a - 1).leading_zeros())
        }
        Builtin::Pow2 => i64::from(a > 0 && a.count_ones() == 1),
        Builtin::Abs => a.checked_abs().ok_or_else(|| format!("abs({a}) overflows 64 bits"))?,
        Builtin::Popcount => i64::from(a.count_ones()),
        Builtin::TrailingZeros => i64::from(positive("trailing_zeros")?.trailing_zeros()),
        Builtin::Lowbit => a & a.wrapping_neg(),
        Builtin::Even => i64::from(a & 1 == 0),
        Builtin::Odd => i64::from(a & 1 == 1),
        Builtin::Min | Builtin::Max => a,
        Builtin::Pow | Builtin::CeilDiv | Builtin::BitReverse | Builtin::Gcd => a,
    })
}

fn binary_builtin(f: Builtin, a: i64, b: i64) -> Result<i64, String> {
    Ok(match f {
        Builtin::Min => a.min(b),
        Builtin::Max => a.max(b),
        Builtin::Pow => u32::try_from(b)
            .ok()
            .and_then(|e| a.checked_pow(e))
            .ok_or_else(|| format!("pow({a}, {b}) has no value in 64 bits"))?,
        Builtin::CeilDiv => {
            if b == 0 {
                return Err(format!("ceil_div({a}, 0) has no value"));
            }
            let q =
                floor_div(a, b).ok_or_else(|| format!("ceil_div({a}, {b}) overflows 64 bits"))?;
            q + i64::from(a % b != 0)
        }
        Builtin::BitReverse => {
            if !(0..=62).contains(&b) || a < 0 || (a >> b) != 0 {
                return Err(format!(
                    "bit_reverse({a}, {b}): the number must have at most {b} bits"
                ));
            }
            if b == 0 { 0 } else { (a.cast_unsigned().reverse_bits() >> (64 - b)).cast_signed() }
        }
        Builtin::Gcd => {
            let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            i64::try_from(a).map_err(|_| "gcd overflows 64 bits".to_string())?
        }
        _ => a,
    })
}
