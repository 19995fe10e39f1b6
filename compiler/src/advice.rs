//! Remedies for indices and ranks that are out of bounds.

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::eval::eval;
use crate::num::index;
use crate::program::{
    BUILTINS, CollectiveKind, ExprNode, Program, ProgramBuffer, RuleBinder, Slot, SlotExpr,
};

/// The names that an expression is written with.
#[derive(Clone, Copy)]
pub(crate) struct ExprNames<'p> {
    /// Names of the variables, empty where users see none.
    pub slots: &'p [String],
    /// The binders around the expression.
    pub binders: &'p [RuleBinder],
}

/// A buffer that is indexed.
#[derive(Clone, Copy)]
pub(crate) struct IndexedBuffer<'p> {
    /// Its chunks.
    pub size: u32,
    pub words: ExprNames<'p>,
    /// The algorithm, where it has no `chunks` clause and one would cut the buffer.
    pub uncut: Option<&'p Program>,
}

impl<'p> IndexedBuffer<'p> {
    /// Creates the description of a buffer of `size` chunks, indexed behind these binders.
    pub(crate) fn new(
        p: &'p Program,
        buffer: ProgramBuffer,
        size: u32,
        binders: &'p [RuleBinder],
    ) -> Self {
        let whole = p.kind.blocked() || matches!(p.kind, CollectiveKind::Custom(_));
        let cut = whole || p.chunks.is_some() || matches!(buffer, ProgramBuffer::Scratch(_));
        let words = ExprNames { slots: &p.slots, binders };
        IndexedBuffer { size, words, uncut: (!cut).then_some(p) }
    }

    /// Returns the diagnostic for a chunk that the buffer does not have.
    pub(crate) fn no_chunk(&self, message: String, e: &SlotExpr, env: &[i64]) -> Diagnostic {
        let d = Diagnostic::error(codes::INDEX, message).label(e.span, "out of bounds");
        let size = self.size;
        match (self.uncut, self.words.wrapped(e, size.into(), env)) {
            (Some(program), _) => d.help(format!(
                "the algorithm has no `chunks` clause, so the vector is one chunk: write `chunks {}` before its first statement",
                clause(program, e)
            )),
            (None, Some(help)) => d.help(help),
            (None, None) => d.help(format!(
                "the buffer has {size} chunk{}; write `%` to wrap around",
                if size == 1 { "" } else { "s" }
            )),
        }
    }
}

/// Returns the diagnostic for a rank that does not exist, or a coordinate that its axis does not have.
pub(crate) fn no_rank(
    (value, most): (i64, i64),
    axis: Option<&str>,
    (e, span): (&SlotExpr, Span),
    size: Option<Slot>,
    words: ExprNames<'_>,
    env: &[i64],
) -> Diagnostic {
    let message = match axis {
        Some(axis) => {
            format!("coordinate {value} is not one of the {most} along `{axis}`")
        }
        None => format!("rank {value} is not one of {most}"),
    };
    let help = words.wrapped(e, most, env);
    let help = help.unwrap_or_else(|| {
        let written = size.and_then(|size| words.modulo(e, size));
        let written = written.unwrap_or_else(|| "%".into());
        format!("write `{written}` to wrap around, or exclude it with `where`")
    });
    Diagnostic::error(codes::RANK, message).label(span, "out of bounds").help(help)
}

/// Returns the suggested operand of a `chunks` clause: the modulus of the index if it depends on the axis
/// sizes alone, else the name of the last axis.
fn clause(program: &Program, e: &SlotExpr) -> String {
    let axes = &program.axes;
    let words = ExprNames { slots: &program.slots, binders: &[] };
    if let ExprNode::Binary(BinOp::Mod, _, modulus) = &e.node
        && of_slots(modulus, &axes.sizes)
        && let Some(text) = words.text(modulus, 0)
    {
        return text;
    }
    let size = axes.sizes.last().and_then(|&slot| program.slots.get(index(slot)));
    size.cloned().unwrap_or_default()
}

/// Returns true if the expression is built from these slots and constants, and reads at least one of them.
fn of_slots(e: &SlotExpr, slots: &[Slot]) -> bool {
    match &e.node {
        ExprNode::Var(slot) => slots.contains(slot),
        ExprNode::Binary(_, a, b) => {
            let constant = |e: &SlotExpr| matches!(e.node, ExprNode::Int(_));
            (constant(a) || of_slots(a, slots))
                && (constant(b) || of_slots(b, slots))
                && !(constant(a) && constant(b))
        }
        _ => false,
    }
}

impl ExprNames<'_> {
    /// Returns a hint for `a + b % n` where `n` is the bound, since `%` was meant to hold for the whole sum;
    /// `None` for other forms.
    fn wrapped(&self, e: &SlotExpr, bound: i64, env: &[i64]) -> Option<String> {
        let e = self.bound(e);
        let ExprNode::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) = &e.node else { return None };
        let ExprNode::Binary(BinOp::Mod, b, modulus) = &b.node else { return None };
        if eval(modulus, &mut env.to_vec()).ok()? != bound {
            return None;
        }
        let sum = SlotExpr { node: ExprNode::Binary(*op, a.clone(), b.clone()), span: e.span };
        let node = ExprNode::Binary(BinOp::Mod, Box::new(sum), modulus.clone());
        let rule = format!("`%` binds tighter than `{}`", op.symbol());
        Some(match self.text(&SlotExpr { node, span: e.span }, 0) {
            Some(text) => format!("{rule}: write `{text}`"),
            None => format!("{rule}: put the sum that wraps around in parentheses"),
        })
    }

    /// Returns `e % n` in words, of an expression that is more than a number.
    fn modulo(&self, e: &SlotExpr, size: Slot) -> Option<String> {
        if matches!(e.node, ExprNode::Int(_)) {
            return None;
        }
        let size = SlotExpr { node: ExprNode::Var(size), span: e.span };
        let node = ExprNode::Binary(BinOp::Mod, Box::new(e.clone()), Box::new(size));
        self.text(&SlotExpr { node, span: e.span }, 0)
    }

    /// Returns the value that a variable is bound to by `let`; returns any other expression unchanged.
    fn bound<'e>(&'e self, e: &'e SlotExpr) -> &'e SlotExpr {
        let ExprNode::Var(of) = &e.node else { return e };
        let value = self.binders.iter().rev().find_map(|b| match b {
            RuleBinder::Let(slot, value) if slot == of => Some(value),
            _ => None,
        });
        value.unwrap_or(e)
    }

    /// Returns an expression as it is written, in parentheses if it binds looser than what is around it;
    /// `None` where users have no words for it.
    fn text(&self, e: &SlotExpr, around: u8) -> Option<String> {
        Some(match &e.node {
            ExprNode::Int(value) => value.to_string(),
            ExprNode::Var(slot) => self.slots.get(index(*slot)).filter(|n| !n.is_empty())?.clone(),
            ExprNode::Unary(UnOp::Neg, a) => format!("-{}", self.text(a, u8::MAX)?),
            ExprNode::Unary(UnOp::Not, a) => format!("!{}", self.text(a, u8::MAX)?),
            ExprNode::Binary(op, a, b) => {
                let own = op.tightness();
                let (a, b) = (self.text(a, own)?, self.text(b, own + 1)?);
                let text = format!("{a} {} {b}", op.symbol());
                if own < around { format!("({text})") } else { text }
            }
            ExprNode::Call(function, given) => {
                let (name, ..) = BUILTINS.iter().find(|(_, f, ..)| f == function)?;
                let given: Option<Vec<String>> = given.iter().map(|e| self.text(e, 0)).collect();
                format!("{name}({})", given?.join(", "))
            }
            ExprNode::If(..) | ExprNode::Let(..) => return None,
        })
    }
}
