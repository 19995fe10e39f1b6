//! Algorithms: found by name, resolved once; their clauses.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::ast::{self, ExprKind};
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::{SourceId, Span};

use super::body::AlgorithmBody;
use super::names::{VariableNames, axes};
use super::resolver::ProgramResolver;
use super::stmt::default_schedule;
use super::weighted;
use crate::num::short;
use crate::program::{
    BufferStyle, COLLECTIVES, CollectiveKind, ExprNode, Program, ProgramStmt, Slot, SlotExpr,
};

impl ProgramResolver<'_> {
    /// Returns the collective of that name as a file sees it.
    pub(super) fn kind(&mut self, id: SourceId, name: &ast::SpannedName) -> Option<CollectiveKind> {
        if let Some((_, kind)) = COLLECTIVES.iter().find(|(n, _)| *n == name.text) {
            return Some(kind.clone());
        }
        if self.scope(id).collectives.contains_key(&name.text) {
            return self.custom(id, &name.text).map(CollectiveKind::Custom);
        }
        let known: Vec<String> = COLLECTIVES.iter().map(|(n, _)| n.to_string()).collect();
        let scope = self.scope(id);
        let all: Vec<&str> = known
            .iter()
            .map(String::as_str)
            .chain(scope.collectives.keys().map(String::as_str))
            .collect();
        let mut d = Diagnostic::error(
            codes::UNKNOWN_COLLECTIVE,
            format!("no collective is named `{}`", name.text),
        )
        .label(name.span, "not known");
        d = match similar(&name.text, all.iter().copied()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d.help(format!(
                "known are {}; or declare `collective {} on …`",
                known.join(", "),
                name.text
            )),
        };
        self.report(d);
        None
    }

    /// Finds `collective.name` in the file, its imports, then the library; resolves it.
    pub(super) fn program(
        &mut self,
        from: SourceId,
        collective: &str,
        name: &str,
        at: Span,
    ) -> Option<Arc<Program>> {
        let key = (collective.to_string(), name.to_string());
        let mut home = from;
        let mut found = self.scope(from).algorithms.get(&key).cloned();
        if let Some(a) = &found {
            home = a.span.source;
        } else if let Some((source, text)) = self.library.algorithm(collective, name) {
            home = self.sources.find(&source).unwrap_or_else(|| self.sources.add(source, text));
            if !self.scopes.contains_key(&home) {
                match roundelay_dsl::parse(self.sources, home) {
                    Ok(file) => self.declare(home, &file, &mut Vec::new()),
                    Err(d) => {
                        self.diagnostics.extend(d);
                        return None;
                    }
                }
            }
            found = self.scope(home).algorithms.get(&key).cloned();
        }
        let Some(algorithm) = found else {
            let scope = self.scope(from);
            let near: Vec<&str> = scope
                .algorithms
                .keys()
                .filter(|k| k.0 == collective)
                .map(|k| k.1.as_str())
                .collect();
            let mut d = Diagnostic::error(
                codes::UNKNOWN_ALGORITHM,
                format!("no algorithm `{collective}.{name}` in this file, its imports or the algorithm library"),
            )
            .label(at, "used here")
            .help("`roundelay info` lists the algorithm library");
            if let Some(near) = similar(name, near.iter().copied()) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            self.report(d);
            return None;
        };
        let key = (home, key.0, key.1);
        if let Some(done) = self.programs.get(&key) {
            return Some(done.clone());
        }
        if self.stack.contains(&key) {
            self.report(
                Diagnostic::error(codes::RECURSION, format!("`{collective}.{name}` uses itself"))
                    .label(at, "used again here")
                    .help("an algorithm may only use others; write the recursion as a `for`"),
            );
            return None;
        }
        self.stack.push(key.clone());
        let before = self.diagnostics.len();
        let program = algorithm_program(self, home, &algorithm);
        self.stack.pop();
        let program = Arc::new(program?);
        if self.diagnostics.len() == before {
            self.programs.insert(key, program.clone());
        }
        Some(program)
    }
}

/// Resolves one algorithm; `None` if anything was reported that makes it useless.
fn algorithm_program(
    r: &mut ProgramResolver<'_>,
    id: SourceId,
    a: &ast::AlgorithmDecl,
) -> Option<Program> {
    let kind = r.kind(id, &a.collective)?;
    let before = r.diagnostics.len();
    let mut names = VariableNames::new();
    let ranks = axes(&mut names, &a.axes);
    let root = if kind.rooted() { names.bind("root", false) } else { names.hidden() };
    let coordinates = ranks.names.iter().map(|_| names.hidden()).collect::<Vec<Slot>>();
    if let (CollectiveKind::Custom(c), grid) = (&kind, ranks.grid)
        && c.axes.names.len() != ranks.names.len()
    {
        r.report(
            Diagnostic::error(
                codes::SHAPE,
                format!(
                    "`{}` has {} axes, the algorithm {}",
                    c.name,
                    c.axes.names.len(),
                    ranks.names.len()
                ),
            )
            .label(a.header, if grid { "on a grid" } else { "on one axis" })
            .label(c.span, "declared here"),
        );
    }
    let parameters = r.parameters(id, &mut names, a);
    let mut body = AlgorithmBody {
        id,
        fixed: short(names.slots.len()),
        names,
        axes: ranks,
        scratch: a.scratch.iter().map(|s| s.name.text.clone()).collect(),
        data: None,
        split_buffers: None,
        composed: false,
        collective: a.collective.text.clone(),
        sites: 0,
        level: 0,
        height: 0,
        used: Vec::new(),
    };
    let mut lets = Vec::new();
    for (name, e) in &a.lets {
        let value = r.any(id, &mut body.names, e);
        let slot = body.names.bind(&name.text, value.as_ref().is_some_and(|v| v.1));
        lets.extend(value.map(|(e, _)| (slot, e)));
    }
    let mut commutative = false;
    let mut requires = Vec::new();
    for e in &a.requires {
        if let ExprKind::Call(name, args) = &e.kind
            && name.text == "commutative"
            && matches!(args.as_slice(), [ast::Expr { kind: ExprKind::Name(op), .. }] if op == "op")
        {
            commutative = true;
            continue;
        }
        requires.extend(r.truth(id, &mut body.names, e).map(|e| with_lets(&lets, e)));
    }
    let tolerates = match &a.tolerates {
        Some(e) => Some(with_lets(&lets, r.number(id, &mut body.names, e)?)),
        None => None,
    };
    if let (Some(e), true) = (&a.tolerates, kind != CollectiveKind::AllReduce) {
        let message = format!("`tolerates` has no meaning for `{}`", a.collective.text);
        r.report(Diagnostic::error(codes::MISPLACED, message).label(e.span, "here").help(
            "only the result of an `all_reduce` has a meaning without a rank: leave the clause out",
        ));
    }
    let chunks = match &a.chunks {
        Some(e) => Some(with_lets(&lets, r.number(id, &mut body.names, e)?)),
        None => None,
    };
    if let (CollectiveKind::Custom(_), Some(e)) = (&kind, &a.chunks) {
        r.report(
            Diagnostic::error(
                codes::MISPLACED,
                format!("`{}` says how many chunks its buffers have", a.collective.text),
            )
            .label(e.span, "a second number of chunks")
            .help("leave the clause out, or change `input` and `output` of the collective"),
        );
    }
    let mut scratch = Vec::new();
    let mut declared = BTreeMap::from([("data", 1), ("input", 1), ("output", 1)]);
    for s in &a.scratch {
        *declared.entry(s.name.text.as_str()).or_insert(0) += 1;
    }
    for s in &a.scratch {
        if declared.get(s.name.text.as_str()).is_some_and(|&times| times > 1) {
            r.report(
                Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    format!("buffer `{}` exists already", s.name.text),
                )
                .label(s.name.span, "declared again here")
                .help("choose another name"),
            );
        }
        if let Some(e) = r.number(id, &mut body.names, &s.chunks) {
            scratch.push((s.name.text.clone(), with_lets(&lets, e)));
        }
    }
    let mut stmts = body.block(r, &a.body);
    let mut schedule = body.schedule(r, a.schedule.as_ref());
    if let Some(schedule) = &mut schedule {
        for entry in [&mut schedule.pipeline, &mut schedule.channels, &mut schedule.slots] {
            *entry = entry.take().map(|e| with_lets(&lets, e));
        }
    }
    stmts.splice(0..0, lets.into_iter().map(|(slot, e)| ProgramStmt::Let(slot, e)));
    weighted::alone(r, &kind, &stmts, schedule.as_ref());
    if let Some(d) = body.names.full(a.header) {
        r.report(d);
    }
    if let (Some(data), Some(io)) = (body.data, body.split_buffers) {
        r.report(
            Diagnostic::error(codes::BUFFERS, "an algorithm moves `data`, or `input` and `output`, not both")
                .label(io, "names the one kind")
                .label(data, "names the other")
                .help("`data` is input and output in one; the compiler makes it work for separate buffers too"),
        );
    }
    if r.diagnostics.len() != before {
        return None;
    }
    let mut sources = r.files.get(&id).cloned().unwrap_or_default();
    sources.extend(body.used);
    sources.sort_unstable();
    sources.dedup();
    Some(Program {
        name: a.name.text.clone(),
        style: if matches!(kind, CollectiveKind::Custom(_)) || body.split_buffers.is_some() {
            BufferStyle::InputOutput
        } else {
            BufferStyle::Data
        },
        kind,
        axes: body.axes,
        requires,
        commutative,
        tolerates,
        chunks,
        scratch,
        body: stmts,
        schedule: schedule.unwrap_or_else(default_schedule),
        slots: body.names.slots,
        root,
        coordinates,
        parameters,
        header: a.header,
        composed: body.composed,
        height: body.height,
        sources,
    })
}

/// Returns an expression of a clause with the values of the `let`s that it uses: clauses are evaluated before any
/// statement.
fn with_lets(lets: &[(Slot, SlotExpr)], e: SlotExpr) -> SlotExpr {
    lets.iter().rev().fold(e, |e, (slot, value)| match e.depends_on(&[*slot]) {
        true => {
            let span = e.span;
            SlotExpr { node: ExprNode::Let(*slot, Box::new(value.clone()), Box::new(e)), span }
        }
        false => e,
    })
}
