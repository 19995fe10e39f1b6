//! Reads ranks, and which chunks of which buffer are meant.

use roundelay_dsl::ast::{self, ExprKind, RankRef, RegionIndex, RegionRef};
use roundelay_dsl::diag::codes;
use syn::{Expr, ExprRange, RangeLimits};

use super::PieceParser;
use super::body::after;
use super::function::called;

impl PieceParser<'_> {
    /// Reads a number, or coordinates.
    pub(super) fn rank(&mut self, e: &Expr) -> Option<RankRef> {
        match e {
            Expr::Group(g) => self.rank(&g.expr),
            Expr::Tuple(t) => {
                let coordinates: Vec<_> = t.elems.iter().map(|e| self.expr(e)).collect();
                let coordinates: Option<Vec<_>> = coordinates.into_iter().collect();
                Some(RankRef::Tuple(coordinates?, self.span(e)))
            }
            e => self.expr(e).map(RankRef::One),
        }
    }

    /// Reads `data`, `data[i]`, `data[a..b]`, …
    pub(super) fn region(&mut self, e: &Expr) -> Option<RegionRef> {
        let span = self.span(e);
        let (buffer, index) = match e {
            Expr::Group(g) => return self.region(&g.expr),
            Expr::Paren(p) => return self.region(&p.expr),
            Expr::Index(i) => (i.expr.as_ref(), Some(i.index.as_ref())),
            e => (e, None),
        };
        let ident = match buffer {
            Expr::Path(p) => p.path.get_ident(),
            _ => None,
        };
        let Some(ident) = ident else {
            let help =
                "write `data`, `input`, `output` or a scratch buffer, with an index or without";
            return self.fault(codes::SYNTAX, buffer, "a buffer belongs here", "not one", help);
        };
        let buffer = self.name(ident);
        let index = match index {
            None => None,
            Some(index) => self.index(index)?,
        };
        Some(RegionRef { buffer, index, span })
    }

    /// Reads the index between the brackets; `..` is all.
    fn index(&mut self, e: &Expr) -> Option<Option<RegionIndex>> {
        match e {
            Expr::Group(g) => self.index(&g.expr),
            Expr::Paren(p) if matches!(&*p.expr, Expr::Range(_)) => self.index(&p.expr),
            Expr::Range(ExprRange { start: None, end: None, .. }) => Some(None),
            Expr::Range(r) => {
                let Some(end) = &r.end else {
                    let help = "write both ends: `data[a..n]`";
                    return self.fault(codes::SYNTAX, e, "the range is open", "to where?", help);
                };
                let span = self.span(e);
                let from = match &r.start {
                    Some(start) => self.expr(start),
                    None => Some(ast::Expr { kind: ExprKind::Int(0), span }),
                };
                let to = match r.limits {
                    RangeLimits::HalfOpen(_) => self.expr(end)?,
                    RangeLimits::Closed(_) => after(self.expr(end)?),
                };
                Some(Some(RegionIndex::Range { from: from?, to, by: None, take: None }))
            }
            Expr::Call(call) if called(e, "cyclic") => {
                let [from, count] = call.args.iter().collect::<Vec<_>>()[..] else {
                    let message = format!("`cyclic` takes 2 arguments, not {}", call.args.len());
                    let help = "write `cyclic(first, count)`";
                    return self.fault(codes::ARITY, e, message, "called here", help);
                };
                let (from, count) = (self.expr(from), self.expr(count));
                Some(Some(RegionIndex::Cyclic { from: from?, count: count?, by: None, take: None }))
            }
            Expr::MethodCall(call) => self.blocks(call),
            e => self.expr(e).map(|e| Some(RegionIndex::At(e))),
        }
    }

    /// Reads `(a..b).by(s).take(k)` or `cyclic(a, m).by(s).take(k)`.
    fn blocks(&mut self, call: &syn::ExprMethodCall) -> Option<Option<RegionIndex>> {
        let inner = self.index(&call.receiver)?;
        let word = call.method.to_string();
        if call.args.len() != 1 || !["by", "take"].contains(&word.as_str()) {
            return self.unknown_part(&call.method, "a range of chunks", &["by", "take"]);
        }
        let value = self.expr(call.args.first()?)?;
        let mut inner = inner;
        if let Some(RegionIndex::Range { by, take, .. } | RegionIndex::Cyclic { by, take, .. }) =
            &mut inner
        {
            match word.as_str() {
                "by" if by.is_none() => {
                    *by = Some(value);
                    return Some(inner);
                }
                "take" if by.is_some() && take.is_none() => {
                    *take = Some(value);
                    return Some(inner);
                }
                _ => {}
            }
        }
        let help = "write `data[(a..b).by(stride).take(block)]`";
        self.fault(codes::SYNTAX, &call.method, "blocks are given in another order", "here", help)
    }
}
