//! Terms have the values that the expressions have: compared with the evaluation of numbers.

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::span::{SourceMap, Span};

use crate::all_n::{LinearFormula, LinearTerm, RefuteOutcome, StepBudget, refute};
use crate::eval::eval;
use crate::program::{BuiltinFunction, ExprNode, SlotExpr};

use super::context::TermContext;
use super::value::SymbolicValue;

/// A source of numbers that are the same in every run.
struct NumberSource(u64);

impl NumberSource {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn of(node: ExprNode) -> SlotExpr {
    let mut sources = SourceMap::new();
    let id = sources.add("here", "x");
    SlotExpr { node, span: Span::new(id, 0, 1) }
}

fn binary(op: BinOp, a: SlotExpr, b: SlotExpr) -> SlotExpr {
    of(ExprNode::Binary(op, Box::new(a), Box::new(b)))
}

/// Variables: 0 is n, 1 is r below n, 2 is s below n, 3 is k, whose power of two is a level.
fn random_number(source: &mut NumberSource, depth: u32) -> SlotExpr {
    if depth == 0 {
        return match source.below(5) {
            0 => of(ExprNode::Int(i64::try_from(source.below(6)).unwrap_or(0))),
            at => of(ExprNode::Var(u16::try_from(at - 1).unwrap_or(0).min(2))),
        };
    }
    let mut part = || random_number(source, depth - 1);
    let (a, b) = (part(), part());
    let small = of(ExprNode::Int(i64::try_from(1 + source.below(3)).unwrap_or(1)));
    let (n, k) = (of(ExprNode::Var(0)), of(ExprNode::Var(3)));
    let level = binary(BinOp::Shl, small.clone(), k.clone());
    let (one, power) = (of(ExprNode::Int(1)), binary(BinOp::Shl, of(ExprNode::Int(1)), k));
    let call = |f, args| of(ExprNode::Call(f, args));
    match source.below(18) {
        0 | 1 => binary(BinOp::Add, a, b),
        2 | 3 => binary(BinOp::Sub, a, b),
        4 => binary(BinOp::Mul, small, a),
        5 | 6 => binary(BinOp::Mod, a, n),
        7 => binary(BinOp::Mod, a, small),
        8 => binary(BinOp::Div, a, small),
        9 => of(ExprNode::Call(BuiltinFunction::Min, vec![a, b])),
        10 => of(ExprNode::Call(BuiltinFunction::CeilDiv, vec![a, small])),
        11 => {
            let condition = binary(BinOp::Lt, a.clone(), b.clone());
            of(ExprNode::If(Box::new(condition), Box::new(a), Box::new(b)))
        }
        12 => binary(BinOp::Mod, a, level),
        13 => binary(BinOp::BitOr, a, power),
        14 => call(BuiltinFunction::Lowbit, vec![call(BuiltinFunction::Max, vec![a, one])]),
        15 => {
            let condition = binary(BinOp::Lt, a.clone(), b);
            let minus = of(ExprNode::Unary(UnOp::Neg, Box::new(one.clone())));
            let sign = of(ExprNode::If(Box::new(condition), Box::new(one), Box::new(minus)));
            binary(BinOp::Mul, sign, a)
        }
        16 => call(BuiltinFunction::Max, vec![a, b]),
        _ => of(ExprNode::Unary(UnOp::Neg, Box::new(a))),
    }
}

fn context(values: &[i64]) -> TermContext {
    let mut context = TermContext::new(values.len());
    let n = context.variable("n", 1 << 24).expect("a variable");
    context.assume_positive(&n).expect("a term");
    context.bind(0, SymbolicValue::Number(n.clone()));
    for slot in 1..3u16 {
        let below = context.variable_below("r", &n).expect("a variable");
        context.bind(slot, SymbolicValue::Number(below));
    }
    let k = context.exponent("k").expect("a variable");
    context.bind(3, SymbolicValue::Number(k.clone()));
    context.add_digit_level(&k, 1 << 24).expect("a level");
    for (slot, value) in (0u16..).zip(values) {
        let Some(SymbolicValue::Number(term)) = context.value_of(slot) else { panic!("a number") };
        let value = LinearTerm::from(i128::from(*value));
        context.assume(LinearFormula::eq(&term, &value).expect("a term"));
    }
    let power = LinearTerm::from(1i128 << values[3]);
    let level = context.power(&k).expect("a level");
    context.assume(LinearFormula::eq(&level, &power).expect("a term"));
    context
}

#[test]
fn terms_have_the_values_of_their_expressions() {
    let mut source = NumberSource(7);
    let (mut equal, mut open) = (0, 0);
    for round in 0..800u32 {
        let n = 1 + source.below(12);
        let mut values = Vec::new();
        for value in [n, source.below(n), source.below(n), source.below(4)] {
            values.push(i64::try_from(value).expect("a small number"));
        }
        let e = random_number(&mut source, 1 + round % 3);
        let mut context = context(&values);
        let Ok(term) = context.number(&e) else { continue };
        let value = eval(&e, &mut values.clone()).expect("what has a term has a value");
        let same = LinearFormula::eq(&term, &LinearTerm::from(i128::from(value))).expect("a term");
        let decide = |goal| {
            refute(&context.clone().prove(String::new(), goal), &mut StepBudget::new(100_000))
        };
        // The term may have the value, whatever else it may have.
        match decide(LinearFormula::negate(same.clone())) {
            RefuteOutcome::Unproved { model: Some(_), .. } => {}
            other => panic!("{e:?} at {values:?} is not {value}: {other:?}"),
        }
        match decide(same) {
            RefuteOutcome::Proved(_) => equal += 1,
            RefuteOutcome::Unproved { .. } => open += 1,
        }
    }
    // Rests of numbers that are far out of reach stay open, and lowest bits that are no level.
    assert!(equal > 500 && open < 120, "{equal} proved, {open} open");
}
