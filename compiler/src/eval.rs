//! The values of expressions with numbers in them.

use ArithmeticError::{
    Base, DivisionByZero, NoArguments, NotPositive, Overflow, Power, Shift, TooManyBits,
};
use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::Span;

use crate::num::index;
use crate::program::{BuiltinFunction, ExprNode, SlotExpr};

/// Arithmetic without a result; texts show the operation with its operands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArithmeticError {
    /// The result has more than 64 bits.
    #[error("{0} overflows 64 bits")]
    Overflow(String),
    /// A shift by fewer than 0 or more than 62 bits.
    #[error("{0}: shifts go from 0 to 62")]
    Shift(String),
    /// A division by zero.
    #[error("{0} has no value")]
    DivisionByZero(String),
    /// A logarithm of a number that is not positive.
    #[error("{0} has no value: it needs a positive number")]
    NotPositive(String),
    /// A logarithm to a base below 2.
    #[error("{0} has no value: a base is 2 or more")]
    Base(String),
    /// A power by a negative number, or of more than 64 bits.
    #[error("pow({0}, {1}) has no value in 64 bits")]
    Power(i64, i64),
    /// A number that does not have so few bits.
    #[error("bit_reverse({0}, {1}): the number must have at most {1} bits")]
    TooManyBits(i64, i64),
    /// A function of nothing.
    #[error("a function has arguments")]
    NoArguments,
}

/// Arithmetic without a result, at its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub(crate) struct EvalError {
    /// The expression at fault.
    pub(crate) span: Span,
    pub(crate) error: ArithmeticError,
}

impl EvalError {
    /// Converts the error into a diagnostic.
    pub(crate) fn diagnostic(self) -> roundelay_dsl::diag::Diagnostic {
        roundelay_dsl::diag::Diagnostic::error(codes::ARITHMETIC, self.error.to_string())
            .label(self.span, "here")
    }
}

/// Evaluates `e`.
pub(crate) fn eval(e: &SlotExpr, env: &mut [i64]) -> Result<i64, EvalError> {
    let here = |error| EvalError { span: e.span, error };
    Ok(match &e.node {
        ExprNode::Int(v) => *v,
        ExprNode::Var(s) => env[index(*s)],
        ExprNode::Unary(UnOp::Neg, a) => {
            let a = eval(a, env)?;
            a.checked_neg().ok_or_else(|| here(Overflow(format!("-({a})"))))?
        }
        ExprNode::Unary(UnOp::Not, a) => i64::from(eval(a, env)? == 0),
        ExprNode::Binary(BinOp::And, a, b) => i64::from(eval(a, env)? != 0 && eval(b, env)? != 0),
        ExprNode::Binary(BinOp::Or, a, b) => i64::from(eval(a, env)? != 0 || eval(b, env)? != 0),
        ExprNode::Binary(op, a, b) => {
            let (a, b) = (eval(a, env)?, eval(b, env)?);
            operate(*op, a, b).map_err(here)?
        }
        ExprNode::Call(f, args) => {
            let first = eval(&args[0], env)?;
            let mut acc = first;
            if args.len() == 1 {
                acc = unary_builtin(*f, first).map_err(here)?;
            }
            for arg in &args[1..] {
                let b = eval(arg, env)?;
                acc = binary_builtin(*f, acc, b).map_err(here)?;
            }
            acc
        }
        ExprNode::If(c, a, b) => {
            if eval(c, env)? != 0 {
                eval(a, env)?
            } else {
                eval(b, env)?
            }
        }
        ExprNode::Let(slot, value, body) => {
            let value = eval(value, env)?;
            env[index(*slot)] = value;
            eval(body, env)?
        }
    })
}

impl BuiltinFunction {
    /// Returns the value, as programs compute it; with more than two arguments, pair by pair.
    ///
    /// # Errors
    ///
    /// Fails where there is no value.
    pub fn value(self, args: &[i64]) -> Result<i64, ArithmeticError> {
        match args {
            [] => Err(NoArguments),
            [a] => unary_builtin(self, *a),
            [a, rest @ ..] => rest.iter().try_fold(*a, |a, &b| binary_builtin(self, a, b)),
        }
    }
}

/// Returns the value of an operator, as programs compute it.
///
/// # Errors
///
/// Fails where there is no value.
pub fn operate(op: BinOp, a: i64, b: i64) -> Result<i64, ArithmeticError> {
    let shown = || format!("{a} {} {b}", op.symbol());
    let checked = |v: Option<i64>| v.ok_or_else(|| Overflow(shown()));
    let shift = || u32::try_from(b).ok().filter(|&b| b < 63).ok_or_else(|| Shift(shown()));
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
        BinOp::Div | BinOp::Mod if b == 0 => return Err(DivisionByZero(shown())),
        BinOp::Div => checked(floor_div(a, b))?,
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

fn unary_builtin(f: BuiltinFunction, a: i64) -> Result<i64, ArithmeticError> {
    let positive = |name: &str| match a > 0 {
        true => Ok(a.unsigned_abs()),
        false => Err(NotPositive(format!("{name}({a})"))),
    };
    Ok(match f {
        BuiltinFunction::Log2 => i64::from(positive("log2")?.ilog2()),
        BuiltinFunction::CeilLog2 => {
            let a = positive("ceil_log2")?;
            i64::from(u64::BITS - (a - 1).leading_zeros())
        }
        BuiltinFunction::Pow2 => i64::from(a > 0 && a.count_ones() == 1),
        BuiltinFunction::Abs => a.checked_abs().ok_or_else(|| Overflow(format!("abs({a})")))?,
        BuiltinFunction::Popcount => i64::from(a.count_ones()),
        BuiltinFunction::TrailingZeros => i64::from(positive("trailing_zeros")?.trailing_zeros()),
        BuiltinFunction::Lowbit => a & a.wrapping_neg(),
        BuiltinFunction::Even => i64::from(a & 1 == 0),
        BuiltinFunction::Odd => i64::from(a & 1 == 1),
        BuiltinFunction::Min | BuiltinFunction::Max => a,
        BuiltinFunction::Pow
        | BuiltinFunction::CeilDiv
        | BuiltinFunction::BitReverse
        | BuiltinFunction::Gcd
        | BuiltinFunction::Log
        | BuiltinFunction::CeilLog
        | BuiltinFunction::IsPower => a,
    })
}

fn binary_builtin(f: BuiltinFunction, a: i64, b: i64) -> Result<i64, ArithmeticError> {
    Ok(match f {
        BuiltinFunction::Min => a.min(b),
        BuiltinFunction::Max => a.max(b),
        BuiltinFunction::Pow => {
            u32::try_from(b).ok().and_then(|e| a.checked_pow(e)).ok_or(Power(a, b))?
        }
        BuiltinFunction::CeilDiv => {
            let shown = || format!("ceil_div({a}, {b})");
            if b == 0 {
                return Err(DivisionByZero(shown()));
            }
            let q = floor_div(a, b).ok_or_else(|| Overflow(shown()))?;
            q + i64::from(a % b != 0)
        }
        BuiltinFunction::BitReverse => {
            if !(0..=62).contains(&b) || a < 0 || (a >> b) != 0 {
                return Err(TooManyBits(a, b));
            }
            if b == 0 { 0 } else { (a.cast_unsigned().reverse_bits() >> (64 - b)).cast_signed() }
        }
        BuiltinFunction::Gcd => {
            let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            i64::try_from(a).map_err(|_| Overflow("gcd".into()))?
        }
        BuiltinFunction::Log => logarithm("log", a, b)?.0,
        BuiltinFunction::CeilLog => {
            let (whole, exact) = logarithm("ceil_log", a, b)?;
            whole + i64::from(!exact)
        }
        BuiltinFunction::IsPower if a < 2 => return Err(Base(format!("is_power({a}, {b})"))),
        BuiltinFunction::IsPower => i64::from(b > 0 && logarithm("is_power", a, b)?.1),
        _ => a,
    })
}

/// Returns the logarithm of `x` to a base, rounded down, and whether it is exact. `name` stands in the error.
fn logarithm(name: &str, base: i64, x: i64) -> Result<(i64, bool), ArithmeticError> {
    let shown = || format!("{name}({base}, {x})");
    if base < 2 {
        return Err(Base(shown()));
    }
    if x < 1 {
        return Err(NotPositive(shown()));
    }
    let whole = x.ilog(base);
    Ok((whole.into(), base.pow(whole) == x))
}
