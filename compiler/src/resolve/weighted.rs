//! Splits by bandwidth: where one may stand.
//!
//! The shares are not known when a program is compiled, and change while it is used. So the parts must have
//! nothing to do with each other or with anything else: one such split is all that its program moves.

use roundelay_dsl::ast::{self, ExprKind};
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::resolver::ProgramResolver;
use crate::program::{CollectiveKind, ProgramSchedule, ProgramStmt};

/// Checks that `by` is the bandwidth of the part's path; reports a diagnostic and returns false if it is not.
pub(super) fn by(r: &mut ProgramResolver<'_>, s: &ast::SplitStmt, by: &ast::Expr) -> bool {
    let (var, help) = (&s.var.text, format!("write `by bandwidth({})`", s.var.text));
    let own = |e: &ast::Expr| matches!(&e.kind, ExprKind::Name(name) if name == var);
    let fault = match &by.kind {
        ExprKind::Call(f, args) if f.text == "bandwidth" => match args.as_slice() {
            [path] if own(path) && s.range.is_none() => return true,
            [path] if own(path) => Diagnostic::error(
                codes::WEIGHTED,
                "only a split over paths has bandwidths to go by",
            )
            .label(by.span, "these parts are not paths")
            .help(format!(
                "write `over {var} in paths`, or leave out `by` for parts of equal size"
            )),
            _ => Diagnostic::error(
                codes::WEIGHTED,
                format!("the share of a part is the bandwidth of its own path, `{var}`"),
            )
            .label(by.span, "another")
            .help(help),
        },
        _ => Diagnostic::error(codes::WEIGHTED, "the shares of a split go by bandwidth only")
            .label(by.span, "something else")
            .help(format!("{help}, or leave it out for parts of equal size")),
    };
    r.report(fault);
    false
}

/// Checks that a split by bandwidth is all that a program moves, and that no program that has one is part of
/// another.
pub(super) fn alone(
    r: &mut ProgramResolver<'_>,
    kind: &CollectiveKind,
    body: &[ProgramStmt],
    schedule: Option<&ProgramSchedule>,
) {
    let refuse = |r: &mut ProgramResolver<'_>, at: Span, message: &str, label: &str, help: &str| {
        r.report(Diagnostic::error(codes::WEIGHTED, message).label(at, label).help(help));
    };
    let mut inner = Vec::new();
    let mut top: Option<Span> = None;
    for s in body {
        match s {
            ProgramStmt::Split(split) if split.weighted && top.is_none() => {
                top = Some(split.span);
                find(&split.body, &mut inner);
            }
            s => find(std::slice::from_ref(s), &mut inner),
        }
    }
    for span in &inner {
        refuse(
            r,
            *span,
            "a split by bandwidth is the outermost statement of an algorithm, and the only one",
            "inside of something, or the second one",
            "split by bandwidth first, and use the other algorithm in its body, `via` the path",
        );
    }
    let Some(span) = top else { return };
    if matches!(kind, CollectiveKind::Custom(_)) {
        refuse(
            r,
            span,
            "a collective of your own cannot be split by bandwidth",
            "split here",
            "leave out `by` for parts of equal size",
        );
    }
    let others = body.iter().filter(|s| !matches!(s, ProgramStmt::Let(..))).count();
    if others > 1 {
        refuse(
            r,
            span,
            "nothing else may move beside a split by bandwidth",
            "other statements stand beside it",
            "move them into the body, so that they are run for each part",
        );
    }
    if let Some(channels) = schedule.and_then(|s| s.channels.as_ref()) {
        refuse(
            r,
            channels.span,
            "a split by bandwidth cannot be run on several channels",
            "asks for them",
            "leave `channels` out, or split each part once more in the body",
        );
    }
}

/// Splits by bandwidth among statements, and uses of programs that are such splits.
fn find(stmts: &[ProgramStmt], out: &mut Vec<Span>) {
    for s in stmts {
        match s {
            ProgramStmt::Split(split) => {
                out.extend(split.weighted.then_some(split.span));
                find(&split.body, out);
            }
            ProgramStmt::For { body, .. } => find(body, out),
            ProgramStmt::If { then, otherwise, .. } => {
                find(then, out);
                find(otherwise, out);
            }
            ProgramStmt::Use(used) => out.extend(used.program.weighted().map(|_| used.span)),
            ProgramStmt::Let(..) | ProgramStmt::Each(_) => {}
        }
    }
}
