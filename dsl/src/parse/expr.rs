//! Builds expressions: pest gives a flat row of operands and operators, here it becomes a tree.

use super::build::TreeBuilder;
use super::parts::NodeParts;
use super::{PestNode, Rule, limits};
use crate::ast::{BinOp, Expr, ExprKind, UnOp};
use crate::diag::{Diagnostic, codes};
use crate::span::Span;

/// An expression and how many levels its tree has. Trees are walked and dropped by recursion, so
/// their height is limited, however flat the text looks.
struct TallExpr {
    expr: Expr,
    height: usize,
}

impl TreeBuilder<'_, '_> {
    /// Returns the tree of an `expr` node. `None` only if the node is not as the grammar says.
    pub(super) fn expr(&mut self, node: PestNode<'_>) -> Option<Expr> {
        Some(self.tall(node)?.expr)
    }

    fn tall(&mut self, node: PestNode<'_>) -> Option<TallExpr> {
        let mut parts = NodeParts::of(node);
        let mut operands = vec![self.operand(&mut parts)?];
        let mut operators: Vec<(BinOp, Span)> = Vec::new();
        while let Some(sign) = parts.take(Rule::infix) {
            let op = binary(sign.as_str())?;
            let span = self.span(&sign);
            while let Some(&(top, place)) =
                operators.last().filter(|(top, _)| top.tightness() >= op.tightness())
            {
                if top.compares() && op.compares() {
                    self.faults.push(chained(op, place, span));
                }
                operators.pop();
                self.join(&mut operands, top)?;
            }
            operators.push((op, span));
            operands.push(self.operand(&mut parts)?);
        }
        while let Some((op, _)) = operators.pop() {
            self.join(&mut operands, op)?;
        }
        operands.pop()
    }

    /// Replaces the last two operands by their combination.
    fn join(&mut self, operands: &mut Vec<TallExpr>, op: BinOp) -> Option<()> {
        let right = operands.pop()?;
        let left = operands.pop()?;
        let span = left.expr.span.to(right.expr.span);
        let height = left.height.max(right.height);
        let kind = ExprKind::Binary(op, Box::new(left.expr), Box::new(right.expr));
        operands.push(self.grow(kind, span, height));
        Some(())
    }

    fn operand(&mut self, parts: &mut NodeParts<'_>) -> Option<TallExpr> {
        let mut prefixes = Vec::new();
        while let Some(sign) = parts.take(Rule::prefix) {
            let op = if sign.as_str() == "-" { UnOp::Neg } else { UnOp::Not };
            prefixes.push((op, self.span(&sign)));
        }
        let mut operand = self.primary(parts.next()?)?;
        while let Some((op, sign)) = prefixes.pop() {
            let span = sign.to(operand.expr.span);
            operand = self.grow(ExprKind::Unary(op, Box::new(operand.expr)), span, operand.height);
        }
        Some(operand)
    }

    fn primary(&mut self, node: PestNode<'_>) -> Option<TallExpr> {
        let span = self.span(&node);
        let leaf = |kind| Some(TallExpr { expr: Expr { kind, span }, height: 0 });
        match node.as_rule() {
            Rule::int => {
                let value = self.int(node.as_str(), span);
                leaf(ExprKind::Int(value))
            }
            Rule::truth => leaf(ExprKind::Truth(node.as_str() == "true")),
            Rule::name => leaf(ExprKind::Name(node.as_str().to_owned())),
            Rule::field => {
                let mut parts = NodeParts::of(node);
                leaf(ExprKind::Field(self.name(parts.next()?), self.name(parts.next()?)))
            }
            Rule::paren => {
                let inner = self.tall(NodeParts::of(node).next()?)?;
                Some(TallExpr { expr: Expr { span, ..inner.expr }, ..inner })
            }
            Rule::call => {
                let mut parts = NodeParts::of(node);
                let name = NodeParts::of(parts.take(Rule::call_open)?).next()?;
                let (mut arguments, mut height) = (Vec::new(), 0);
                while let Some(argument) = parts.take(Rule::expr) {
                    let argument = self.tall(argument)?;
                    height = height.max(argument.height);
                    arguments.push(argument.expr);
                }
                Some(self.grow(ExprKind::Call(self.name(name), arguments), span, height))
            }
            Rule::if_expr => self.choice(node, span),
            _ => None,
        }
    }

    /// Builds `if c { a } else if d { b } else { e }`, from its end.
    fn choice(&mut self, node: PestNode<'_>, span: Span) -> Option<TallExpr> {
        let mut parts = NodeParts::of(node);
        let mut arms = Vec::new();
        while let Some(condition) = parts.take(Rule::expr) {
            let condition = self.tall(condition)?;
            arms.push((condition, self.tall(NodeParts::of(parts.next()?).next()?)?));
        }
        let mut otherwise = self.tall(NodeParts::of(parts.next()?).next()?)?;
        while let Some((condition, then)) = arms.pop() {
            let from =
                if arms.is_empty() { span } else { self.with_word_before(condition.expr.span) };
            let height = condition.height.max(then.height).max(otherwise.height);
            let kind = ExprKind::If(
                Box::new(condition.expr),
                Box::new(then.expr),
                Box::new(otherwise.expr),
            );
            otherwise = self.grow(kind, from.to(span), height);
        }
        Some(otherwise)
    }

    /// Returns a node one level above the `height` of its parts; a placeholder, and a fault, if that is too high.
    fn grow(&mut self, kind: ExprKind, span: Span, height: usize) -> TallExpr {
        if height < limits::MAX_DEPTH {
            return TallExpr { expr: Expr { kind, span }, height: height + 1 };
        }
        self.too_deep(span);
        TallExpr { expr: Expr { kind: ExprKind::Int(0), span }, height: 0 }
    }

    fn int(&mut self, text: &str, span: Span) -> i64 {
        let digits = text.replace('_', "");
        let (digits, radix) = match digits.get(..2) {
            Some("0x") => (&digits[2..], 16),
            Some("0b") => (&digits[2..], 2),
            _ => (digits.as_str(), 10),
        };
        if digits.is_empty() {
            self.faults.push(
                Diagnostic::error(codes::SYNTAX, "a number without digits")
                    .label(span, "digits expected"),
            );
            return 0;
        }
        i64::from_str_radix(digits, radix).unwrap_or_else(|_| {
            self.faults.push(
                Diagnostic::error(codes::NUMBER, "the number is too large")
                    .label(span, "does not fit 64 bits")
                    .note(format!("the largest number is {}", i64::MAX)),
            );
            0
        })
    }
}

fn chained(op: BinOp, first: Span, second: Span) -> Diagnostic {
    Diagnostic::error(codes::SYNTAX, "comparisons do not chain")
        .label(second, format!("a second comparison, `{}`", op.symbol()))
        .label(first, "the first")
        .help("write `a < b && b < c`, or put one comparison in parentheses")
}

fn binary(sign: &str) -> Option<BinOp> {
    use BinOp::*;
    let all =
        [Or, And, Eq, Ne, Lt, Le, Gt, Ge, BitOr, BitXor, BitAnd, Shl, Shr, Add, Sub, Mul, Div, Mod];
    all.into_iter().find(|op| op.symbol() == sign)
}
