//! Expressions of a program as terms and formulas.
//!
//! An expression that is evaluated here has a value in every run of the program: an operation that may have none is
//! refused.

use roundelay_dsl::ast::{BinOp, UnOp};

use crate::all_n::{LinearFormula, LinearTerm};
use crate::num::index;
use crate::program::{BuiltinFunction, ExprNode, Slot, SlotExpr};

use super::context::{TermContext, literal};
use super::refusal::{FragmentRefusal, FragmentResult};
use super::value::{LogRounding, SymbolicValue};

impl TermContext {
    /// Sets a variable of the program.
    pub(in crate::all_n) fn bind(&mut self, slot: Slot, value: SymbolicValue) {
        self.env[index(slot)] = Some(value);
    }

    /// Takes the value of a variable away.
    pub(in crate::all_n) fn unbind(&mut self, slot: Slot) {
        self.env[index(slot)] = None;
    }

    /// Returns the value of a variable.
    pub(in crate::all_n) fn value_of(&self, slot: Slot) -> Option<SymbolicValue> {
        self.env[index(slot)].clone()
    }

    /// Returns the number that an expression has.
    ///
    /// # Errors
    ///
    /// Refuses what is outside of the fragment, here and below.
    pub(in crate::all_n) fn number(&mut self, e: &SlotExpr) -> FragmentResult<LinearTerm> {
        match self.evaluate(e)? {
            SymbolicValue::Number(term) => {
                self.magnitude(&term).map_err(|r| FragmentRefusal::at(e.span, r.reason))?;
                Ok(term)
            }
            SymbolicValue::Truth(_) => {
                Err(FragmentRefusal::at(e.span, "a truth value is used as a number"))
            }
        }
    }

    /// Returns the formula that an expression is.
    pub(in crate::all_n) fn truth(&mut self, e: &SlotExpr) -> FragmentResult<LinearFormula> {
        match self.evaluate(e)? {
            SymbolicValue::Truth(formula) => Ok(formula),
            SymbolicValue::Number(term) if term.coefficients().is_empty() => {
                Ok(LinearFormula::negate(literal(LinearFormula::Equal(term))))
            }
            SymbolicValue::Number(_) => {
                Err(FragmentRefusal::at(e.span, "a number is used as a truth value"))
            }
        }
    }

    /// Returns the value of an expression.
    pub(in crate::all_n) fn evaluate(&mut self, e: &SlotExpr) -> FragmentResult<SymbolicValue> {
        self.value(e).map_err(|refusal| match refusal.span {
            None => FragmentRefusal::at(e.span, refusal.reason),
            Some(_) => refusal,
        })
    }

    fn value(&mut self, e: &SlotExpr) -> FragmentResult<SymbolicValue> {
        let left = self.evaluations.checked_sub(1);
        self.evaluations = left.ok_or_else(|| FragmentRefusal::new("formulas are too large"))?;
        Ok(match &e.node {
            ExprNode::Int(v) => SymbolicValue::Number(LinearTerm::from(i128::from(*v))),
            ExprNode::Var(slot) => match self.env.get(index(*slot)) {
                Some(Some(value)) => value.clone(),
                _ => return Err(FragmentRefusal::new("a variable has no value here")),
            },
            ExprNode::Unary(UnOp::Neg, a) => SymbolicValue::Number(self.number(a)?.scale(-1)?),
            ExprNode::Unary(UnOp::Not, a) => {
                SymbolicValue::Truth(LinearFormula::negate(self.truth(a)?))
            }
            ExprNode::Binary(op, a, b) => return self.operation(*op, a, b),
            ExprNode::Call(f, args) => return self.call(*f, args),
            ExprNode::If(c, a, b) => {
                let condition = self.truth(c)?;
                match (self.evaluate(a)?, self.evaluate(b)?) {
                    (SymbolicValue::Number(a), SymbolicValue::Number(b)) => {
                        SymbolicValue::Number(self.choose(condition, &a, &b)?)
                    }
                    (SymbolicValue::Truth(a), SymbolicValue::Truth(b)) => {
                        SymbolicValue::Truth(LinearFormula::ite(condition, a, b))
                    }
                    _ => return Err(FragmentRefusal::new("a number or a truth value")),
                }
            }
            ExprNode::Let(slot, value, body) => {
                let value = self.evaluate(value)?;
                let before = self.env[index(*slot)].replace(value);
                let found = self.evaluate(body);
                self.env[index(*slot)] = before;
                return found;
            }
        })
    }

    fn operation(
        &mut self,
        op: BinOp,
        a: &SlotExpr,
        b: &SlotExpr,
    ) -> FragmentResult<SymbolicValue> {
        let truth = |formula| Ok(SymbolicValue::Truth(literal(formula)));
        match op {
            BinOp::And => {
                return truth(LinearFormula::And(vec![self.truth(a)?, self.truth(b)?]));
            }
            BinOp::Or => {
                return truth(LinearFormula::Or(vec![self.truth(a)?, self.truth(b)?]));
            }
            BinOp::Eq => {
                if let ExprNode::Call(BuiltinFunction::Lowbit, args) = &a.node {
                    let (term, level) = (self.number(&args[0])?, self.number(b)?);
                    return truth(self.is_lowest_bit(&term, &level)?);
                }
            }
            BinOp::Shl => {
                let by = self.number(b)?;
                let value = self.number(a)?;
                if by.coefficients().is_empty() {
                    let power = self.power(&by)?;
                    return Ok(SymbolicValue::Number(value.scale(power.constant())?));
                }
                if !value.coefficients().is_empty() || !(1..=64).contains(&value.constant()) {
                    return Err(FragmentRefusal::new("`<<` of a number that is not constant"));
                }
                return Ok(SymbolicValue::Number(self.power(&by)?.scale(value.constant())?));
            }
            BinOp::Mul => {
                // One of two numbers times another, such as a sign.
                for (choice, factor) in [(a, b), (b, a)] {
                    if let ExprNode::If(condition, x, y) = &choice.node {
                        let condition = self.truth(condition)?;
                        let x = self.operation(BinOp::Mul, x, factor)?;
                        let y = self.operation(BinOp::Mul, y, factor)?;
                        if let (SymbolicValue::Number(x), SymbolicValue::Number(y)) = (x, y) {
                            return Ok(SymbolicValue::Number(self.choose(condition, &x, &y)?));
                        }
                    }
                }
            }
            _ => {}
        }
        let (x, y) = (self.number(a)?, self.number(b)?);
        let number = match op {
            BinOp::Eq => return truth(LinearFormula::eq(&x, &y)?),
            BinOp::Ne => {
                let equal = literal(LinearFormula::eq(&x, &y)?);
                return Ok(SymbolicValue::Truth(LinearFormula::negate(equal)));
            }
            BinOp::Lt => return truth(LinearFormula::lt(&x, &y)?),
            BinOp::Le => return truth(LinearFormula::le(&x, &y)?),
            BinOp::Gt => return truth(LinearFormula::lt(&y, &x)?),
            BinOp::Ge => return truth(LinearFormula::le(&y, &x)?),
            BinOp::Add => x.add(&y)?,
            BinOp::Sub => x.sub(&y)?,
            BinOp::Mul if y.coefficients().is_empty() => x.scale(y.constant())?,
            BinOp::Mul if x.coefficients().is_empty() => y.scale(x.constant())?,
            BinOp::Mul => return Err(FragmentRefusal::new("a product of two variables")),
            BinOp::Div if y.coefficients().is_empty() && y.constant() >= 1 => {
                self.quotient(&x, y.constant())?
            }
            BinOp::Div => return Err(FragmentRefusal::new("`/` by a number that is not constant")),
            BinOp::Mod => self.rest(&x, &y)?,
            BinOp::BitXor => self.flip(&x, &y)?,
            BinOp::Shr => self.shift_right(&x, &y)?,
            BinOp::BitOr => self.set_bit(&x, &y)?,
            BinOp::BitAnd | BinOp::And | BinOp::Or | BinOp::Shl => {
                return Err(FragmentRefusal::new(format!("`{}` of numbers", op.symbol())));
            }
        };
        Ok(SymbolicValue::Number(number))
    }

    fn call(&mut self, f: BuiltinFunction, args: &[SlotExpr]) -> FragmentResult<SymbolicValue> {
        let refused = |what: &str| Err(FragmentRefusal::new(format!("`{what}` of this")));
        if f == BuiltinFunction::CeilDiv {
            return self.ceil_div(&args[0], &args[1]).map(SymbolicValue::Number);
        }
        let mut values = Vec::new();
        for arg in args {
            values.push(self.number(arg)?);
        }
        let two = |base: &LinearTerm| *base == LinearTerm::from(2);
        let number = match (f, values.as_slice()) {
            (BuiltinFunction::Log2, [x]) => self.logarithm(x, LogRounding::Down)?,
            (BuiltinFunction::CeilLog2, [x]) => self.logarithm(x, LogRounding::Up)?,
            (BuiltinFunction::Log, [b, x]) if two(b) => self.logarithm(x, LogRounding::Down)?,
            (BuiltinFunction::CeilLog, [b, x]) if two(b) => self.logarithm(x, LogRounding::Up)?,
            (BuiltinFunction::Pow, [b, e]) if two(b) => self.power(e)?,
            (BuiltinFunction::Lowbit, [x]) => self.lowest_bit(x)?,
            (BuiltinFunction::Pow, [b, e])
                if e.coefficients().is_empty() && b.coefficients().is_empty() =>
            {
                let power = u32::try_from(e.constant()).ok().filter(|e| *e <= 32);
                match power.and_then(|e| b.constant().checked_pow(e)) {
                    Some(value) => LinearTerm::from(value),
                    None => return refused("pow"),
                }
            }
            (BuiltinFunction::Min | BuiltinFunction::Max, [first, rest @ ..]) => {
                let mut best = first.clone();
                for other in rest {
                    let condition = literal(LinearFormula::le(&best, other)?);
                    best = match f {
                        BuiltinFunction::Min => self.choose(condition, &best, other)?,
                        _ => self.greater(condition, &best, other)?,
                    };
                }
                best
            }
            (BuiltinFunction::Abs, [x]) => {
                let condition = literal(LinearFormula::le(&LinearTerm::from(0), x)?);
                self.choose(condition, x, &x.scale(-1)?)?
            }
            (BuiltinFunction::Even | BuiltinFunction::Odd, [x]) => {
                let half = self.quotient(x, 2)?;
                let wanted = i128::from(f == BuiltinFunction::Odd);
                let rest = x.add_scaled(&half, -2)?.sub(&LinearTerm::from(wanted))?;
                return Ok(SymbolicValue::Truth(literal(LinearFormula::Equal(rest))));
            }
            (BuiltinFunction::Pow2, [x]) if self.levels.iter().any(|(_, l)| l == x) => {
                return Ok(SymbolicValue::Truth(LinearFormula::True));
            }
            _ => return refused(name_of(f)),
        };
        Ok(SymbolicValue::Number(number))
    }

    /// Returns the greater one of two numbers; the condition is that the first one is not above the second.
    fn greater(
        &mut self,
        condition: LinearFormula,
        a: &LinearTerm,
        b: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        let found = self.choose(condition, b, a)?;
        if (self.is_positive(a) || self.is_positive(b)) && !self.is_positive(&found) {
            self.assume_positive(&found)?;
        }
        Ok(found)
    }

    fn ceil_div(&mut self, a: &SlotExpr, b: &SlotExpr) -> FragmentResult<LinearTerm> {
        if let ExprNode::Binary(BinOp::Shl, one, exponent) = &b.node
            && one.node == ExprNode::Int(1)
        {
            let (number, exponent) = (self.number(a)?, self.number(exponent)?);
            return self.ceiling(&number, &exponent);
        }
        let (number, by) = (self.number(a)?, self.number(b)?);
        if by.coefficients().is_empty() && by.constant() >= 1 {
            return self
                .quotient(&number.add(&LinearTerm::from(by.constant() - 1))?, by.constant());
        }
        Err(FragmentRefusal::new("`ceil_div` by a number that is not constant"))
    }
}

fn name_of(f: BuiltinFunction) -> &'static str {
    crate::program::BUILTINS.iter().find(|b| b.1 == f).map_or("", |b| b.0)
}
