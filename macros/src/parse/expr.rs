//! Reads numbers and truth values.

use roundelay_dsl::ast::{BinOp, Expr as Value, ExprKind, UnOp};
use roundelay_dsl::diag::{Diagnostic, codes};
use syn::{Block, Expr, Lit, Member, Stmt};

use super::PieceParser;

impl PieceParser<'_> {
    /// Reads an expression; `None` after a fault.
    pub(super) fn expr(&mut self, e: &Expr) -> Option<Value> {
        self.deeper(e, |this| this.value(e))
    }

    fn value(&mut self, e: &Expr) -> Option<Value> {
        let span = self.span(e);
        let kind = match e {
            Expr::Group(g) => return self.expr(&g.expr),
            Expr::Paren(p) => return self.expr(&p.expr).map(|v| Value { span, ..v }),
            Expr::Lit(l) => self.literal(&l.lit)?,
            Expr::Path(p) => match p.path.get_ident() {
                Some(ident) => ExprKind::Name(self.name(ident).text),
                None => return self.foreign(e, "a path", "write a name that is declared here"),
            },
            Expr::Field(f) => match (&*f.base, &f.member) {
                (Expr::Path(p), Member::Named(field)) if p.path.get_ident().is_some() => {
                    let base = p.path.get_ident()?;
                    ExprKind::Field(self.name(base), self.name(field))
                }
                _ => return self.foreign(e, "this field", "only `axis.size` has a dot"),
            },
            Expr::Unary(u) => {
                let op = match u.op {
                    syn::UnOp::Neg(_) => UnOp::Neg,
                    syn::UnOp::Not(_) => UnOp::Not,
                    _ => return self.foreign(&u.op, "`*`", "numbers are values: leave it out"),
                };
                ExprKind::Unary(op, Box::new(self.expr(&u.expr)?))
            }
            Expr::Binary(b) => {
                let (left, right) = (self.expr(&b.left), self.expr(&b.right));
                let Some(op) = operator(&b.op) else {
                    let help = "a variable keeps its value: name the next one with another `let`";
                    return self.foreign(&b.op, "an assignment", help);
                };
                ExprKind::Binary(op, Box::new(left?), Box::new(right?))
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else {
                    return self.foreign(&call.func, "this call", "call a function by its name");
                };
                let name = path.path.segments.last().map(|s| self.name(&s.ident))?;
                let arguments: Vec<_> = call.args.iter().map(|a| self.expr(a)).collect();
                ExprKind::Call(name, arguments.into_iter().collect::<Option<_>>()?)
            }
            Expr::If(i) => {
                let (cond, then) = (self.expr(&i.cond), self.only_value(&i.then_branch));
                let otherwise = match i.else_branch.as_ref().map(|(_, e)| &**e) {
                    Some(Expr::Block(b)) => self.only_value(&b.block),
                    Some(e) => self.expr(e),
                    None => {
                        let help = "add `else { … }`";
                        let message = "an `if` that gives a value has two branches";
                        return self.fault(codes::SYNTAX, &i.if_token, message, "one only", help);
                    }
                };
                ExprKind::If(Box::new(cond?), Box::new(then?), Box::new(otherwise?))
            }
            Expr::MethodCall(m) => {
                let help = format!("write `{}(…)`", m.method);
                return self.foreign(&m.method, "a method of a number", &help);
            }
            Expr::Cast(_) => {
                return self.foreign(e, "a cast", "there is one type of numbers: leave it out");
            }
            Expr::Reference(_) => {
                return self.foreign(e, "`&`", "numbers are values: leave it out");
            }
            Expr::Macro(_) => return self.foreign(e, "a macro", "write out what it stands for"),
            e => return self.foreign(e, "this expression", "write a number, or a comparison"),
        };
        Some(Value { kind, span })
    }

    fn literal(&mut self, lit: &Lit) -> Option<ExprKind> {
        if let Lit::Bool(value) = lit {
            return Some(ExprKind::Truth(value.value));
        }
        let Lit::Int(int) = lit else {
            return self.foreign(lit, "this literal", "write a whole number");
        };
        if !["", "i64"].contains(&int.suffix()) {
            return self.foreign(lit, "this type", "there is one type of numbers: leave it out");
        }
        let Ok(value) = int.base10_parse() else {
            self.faults.push(
                Diagnostic::error(codes::NUMBER, "the number is too large")
                    .label(self.span(lit), "does not fit 64 bits")
                    .note(format!("the largest number is {}", i64::MAX)),
            );
            return None;
        };
        Some(ExprKind::Int(value))
    }

    /// Reads the value of a block that has nothing else.
    fn only_value(&mut self, block: &Block) -> Option<Value> {
        match block.stmts.as_slice() {
            [Stmt::Expr(e, None)] => self.expr(e),
            _ => {
                let help = "write one expression; name parts with a `let` before the `if`";
                self.foreign(block, "this block", help)
            }
        }
    }
}

/// Returns the operator; none for those that assign.
pub(super) fn operator(op: &syn::BinOp) -> Option<BinOp> {
    Some(match op {
        syn::BinOp::Or(_) => BinOp::Or,
        syn::BinOp::And(_) => BinOp::And,
        syn::BinOp::Eq(_) => BinOp::Eq,
        syn::BinOp::Ne(_) => BinOp::Ne,
        syn::BinOp::Lt(_) => BinOp::Lt,
        syn::BinOp::Le(_) => BinOp::Le,
        syn::BinOp::Gt(_) => BinOp::Gt,
        syn::BinOp::Ge(_) => BinOp::Ge,
        syn::BinOp::BitOr(_) => BinOp::BitOr,
        syn::BinOp::BitXor(_) => BinOp::BitXor,
        syn::BinOp::BitAnd(_) => BinOp::BitAnd,
        syn::BinOp::Shl(_) => BinOp::Shl,
        syn::BinOp::Shr(_) => BinOp::Shr,
        syn::BinOp::Add(_) => BinOp::Add,
        syn::BinOp::Sub(_) => BinOp::Sub,
        syn::BinOp::Mul(_) => BinOp::Mul,
        syn::BinOp::Div(_) => BinOp::Div,
        syn::BinOp::Rem(_) => BinOp::Mod,
        _ => return None,
    })
}
