//! Remedies for indices and ranks that are out of bounds.

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::eval::eval;
use crate::num::index;
use crate::program::{BUILTINS, Binder, Buffer, Expr, Kind, Node, Program, Slot};

/// The names that an expression is written with.
#[derive(Clone, Copy)]
pub(crate) struct ExprNames<'p> {
    /// Names of the variables, empty where users see none.
    pub slots: &'p [String],
    /// The binders around the expression.
    pub binders: &'p [Binder],
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
    pub(crate) fn new(p: &'p Program, buffer: Buffer, size: u32, binders: &'p [Binder]) -> Self {
        let whole = p.kind.blocked() || matches!(p.kind, Kind::Custom(_));
        let cut = whole || p.chunks.is_some() || matches!(buffer, Buffer::Scratch(_));
        let words = ExprNames { slots: &p.slots, binders };
        IndexedBuffer { size, words, uncut: (!cut).then_some(p) }
    }

    /// Returns the diagnostic for a chunk that the buffer does not have.
    pub(crate) fn no_chunk(&self, message: String, e: &Expr, env: &[i64]) -> Diagnostic {
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
    (e, span): (&Expr, Span),
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
    let help =
        help.unwrap_or_else(|| "write `%` to wrap around, or exclude it with `where`".into());
    Diagnostic::error(codes::RANK, message).label(span, "out of bounds").help(help)
}

/// Returns the suggested operand of a `chunks` clause: the modulus of the index if it depends on the axis
/// sizes alone, else the name of the last axis.
fn clause(program: &Program, e: &Expr) -> String {
    let axes = &program.axes;
    let words = ExprNames { slots: &program.slots, binders: &[] };
    if let Node::Binary(BinOp::Mod, _, modulus) = &e.node
        && of_slots(modulus, &axes.sizes)
        && let Some(text) = words.text(modulus, 0)
    {
        return text;
    }
    let size = axes.sizes.last().and_then(|&slot| program.slots.get(index(slot)));
    size.cloned().unwrap_or_default()
}

/// Returns true if the expression is built from these slots and constants, and reads at least one of them.
fn of_slots(e: &Expr, slots: &[Slot]) -> bool {
    match &e.node {
        Node::Var(slot) => slots.contains(slot),
        Node::Binary(_, a, b) => {
            let constant = |e: &Expr| matches!(e.node, Node::Int(_));
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
    fn wrapped(&self, e: &Expr, bound: i64, env: &[i64]) -> Option<String> {
        let e = self.bound(e);
        let Node::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) = &e.node else { return None };
        let Node::Binary(BinOp::Mod, b, modulus) = &b.node else { return None };
        if eval(modulus, &mut env.to_vec()).ok()? != bound {
            return None;
        }
        let sum = Expr { node: Node::Binary(*op, a.clone(), b.clone()), span: e.span };
        let node = Node::Binary(BinOp::Mod, Box::new(sum), modulus.clone());
        let rule = format!("`%` binds tighter than `{}`", op.symbol());
        Some(match self.text(&Expr { node, span: e.span }, 0) {
            Some(text) => format!("{rule}: write `{text}`"),
            None => format!("{rule}: put the sum that wraps around in parentheses"),
        })
    }

    /// Returns the value that a variable is bound to by `let`; returns any other expression unchanged.
    fn bound<'e>(&'e self, e: &'e Expr) -> &'e Expr {
        let Node::Var(of) = &e.node else { return e };
        let value = self.binders.iter().rev().find_map(|b| match b {
            Binder::Let(slot, value) if slot == of => Some(value),
            _ => None,
        });
        value.unwrap_or(e)
    }

    /// Returns an expression as it is written, in parentheses if it binds looser than what is around it;
    /// `None` where users have no words for it.
    fn text(&self, e: &Expr, around: u8) -> Option<String> {
        Some(match &e.node {
            Node::Int(value) => value.to_string(),
            Node::Var(slot) => self.slots.get(index(*slot)).filter(|n| !n.is_empty())?.clone(),
            Node::Unary(UnOp::Neg, a) => format!("-{}", self.text(a, u8::MAX)?),
            Node::Unary(UnOp::Not, a) => format!("!{}", self.text(a, u8::MAX)?),
            Node::Binary(op, a, b) => {
                let own = op.tightness();
                let (a, b) = (self.text(a, own)?, self.text(b, own + 1)?);
                let text = format!("{a} {} {b}", op.symbol());
                if own < around { format!("({text})") } else { text }
            }
            Node::Call(function, given) => {
                let (name, ..) = BUILTINS.iter().find(|(_, f, ..)| f == function)?;
                let given: Option<Vec<String>> = given.iter().map(|e| self.text(e, 0)).collect();
                format!("{name}({})", given?.join(", "))
            }
            Node::If(..) | Node::Let(..) => return None,
        })
    }
}
