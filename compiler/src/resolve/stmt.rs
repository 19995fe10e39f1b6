//! Algorithms: clauses, statements, and `each` bodies flattened into rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::MAX_DEPTH;
use roundelay_dsl::ast::{self, ExprKind};
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::SourceId;

use super::each::Flat;
use super::{Names, Resolver, axes, no_schedule, style, weighted};
use crate::num::short;
use crate::plan::CopyPolicy;
use crate::program::{Axes, Each, Kind, Program, Schedule, Slot, Split, Stmt, Style, Use};

/// The state that statements of one algorithm share.
pub(super) struct Body {
    pub(super) id: SourceId,
    pub(super) names: Names,
    pub(super) axes: Axes,
    pub(super) scratch: Vec<String>,
    /// Spans of the first use of `data`, and of `input` or `output`.
    pub(super) data: Option<roundelay_dsl::span::Span>,
    pub(super) split_buffers: Option<roundelay_dsl::span::Span>,
    pub(super) composed: bool,
    pub(super) collective: String,
    /// Statements with parts so far.
    sites: u32,
    /// The blocks around a statement; and the most around any so far, in algorithms that are used too.
    level: usize,
    height: usize,
    /// Texts of the programs used.
    pub(super) used: Vec<SourceId>,
}

/// Resolves one algorithm; `None` if anything was reported that makes it useless.
pub(super) fn program(r: &mut Resolver<'_>, id: SourceId, a: &ast::Algorithm) -> Option<Program> {
    let kind = r.kind(id, &a.collective)?;
    let before = r.diagnostics.len();
    let mut names = Names::new();
    let ranks = axes(&mut names, &a.axes);
    let root = if kind.rooted() { names.bind("root", false) } else { names.hidden() };
    let coordinates = ranks.names.iter().map(|_| names.hidden()).collect::<Vec<Slot>>();
    if let (Kind::Custom(c), grid) = (&kind, ranks.grid)
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
    let mut body = Body {
        id,
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
        requires.extend(r.truth(id, &mut body.names, e));
    }
    let tolerates = match &a.tolerates {
        Some(e) => Some(r.number(id, &mut body.names, e)?),
        None => None,
    };
    if let (Some(e), true) = (&a.tolerates, kind != Kind::AllReduce) {
        let message = format!("`tolerates` has no meaning for `{}`", a.collective.text);
        r.report(Diagnostic::error(codes::MISPLACED, message).label(e.span, "here").help(
            "only the result of an `all_reduce` has a meaning without a rank: leave the clause out",
        ));
    }
    let chunks = match &a.chunks {
        Some(e) => Some(r.number(id, &mut body.names, e)?),
        None => None,
    };
    if let (Kind::Custom(_), Some(e)) = (&kind, &a.chunks) {
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
            scratch.push((s.name.text.clone(), e));
        }
    }
    let stmts = body.block(r, &a.body);
    let schedule = body.schedule(r, a.schedule.as_ref());
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
        style: if matches!(kind, Kind::Custom(_)) {
            Style::InputOutput
        } else {
            style(body.split_buffers.is_none())
        },
        kind,
        axes: body.axes,
        requires,
        commutative,
        tolerates,
        chunks,
        scratch,
        body: stmts,
        schedule: schedule.unwrap_or_else(no_schedule),
        slots: body.names.slots,
        root,
        coordinates,
        header: a.header,
        composed: body.composed,
        height: body.height,
        sources,
    })
}

impl Body {
    fn block(&mut self, r: &mut Resolver<'_>, stmts: &[ast::Stmt]) -> Vec<Stmt> {
        let depth = self.names.visible.len();
        self.level += 1;
        self.height = self.height.max(self.level);
        let out = stmts.iter().filter_map(|s| self.stmt(r, s)).collect();
        self.level -= 1;
        self.names.visible.truncate(depth);
        out
    }

    fn stmt(&mut self, r: &mut Resolver<'_>, s: &ast::Stmt) -> Option<Stmt> {
        Some(match s {
            ast::Stmt::Let(name, e) => {
                let value = r.any(self.id, &mut self.names, e);
                // Declared even if its value is at fault, so that its uses are not reported too.
                let slot = self.names.bind(&name.text, value.as_ref().is_some_and(|v| v.1));
                Stmt::Let(slot, value?.0)
            }
            ast::Stmt::For(f) => {
                let from = r.number(self.id, &mut self.names, &f.from);
                let to = r.number(self.id, &mut self.names, &f.to);
                let depth = self.names.visible.len();
                let slot = self.names.bind(&f.var.text, false);
                let filter = match &f.filter {
                    Some(e) => Some(r.truth(self.id, &mut self.names, e)?),
                    None => None,
                };
                let body = self.block(r, &f.body);
                self.names.visible.truncate(depth);
                let body = match filter {
                    Some(cond) => vec![Stmt::If { cond, then: body, otherwise: Vec::new() }],
                    None => body,
                };
                Stmt::For { slot, from: from?, to: to?, body }
            }
            ast::Stmt::If(i) => {
                let cond = r.truth(self.id, &mut self.names, &i.cond);
                let then = self.block(r, &i.then);
                let otherwise = self.block(r, &i.otherwise);
                Stmt::If { cond: cond?, then, otherwise }
            }
            ast::Stmt::Each(e) => Stmt::Each(self.each(r, e)?),
            ast::Stmt::Transfer(t) => {
                let var = self.names.hidden();
                let mut flat = Flat::new(var);
                self.transfer(r, t, &mut flat);
                Stmt::Each(Each {
                    var,
                    rules: flat.rules,
                    defs: Vec::new(),
                    once: true,
                    span: t.span,
                })
            }
            ast::Stmt::Use(u) => Stmt::Use(Box::new(self.use_(r, u)?)),
            ast::Stmt::Split(s) => {
                self.composed = true;
                if s.buffer.text != "data" {
                    r.report(
                        Diagnostic::error(codes::MISPLACED, "only `data` can be split")
                            .label(s.buffer.span, "this is not `data`"),
                    );
                }
                let range = match &s.range {
                    Some((a, b)) => Some((
                        r.number(self.id, &mut self.names, a)?,
                        r.number(self.id, &mut self.names, b)?,
                    )),
                    None => None,
                };
                let depth = self.names.visible.len();
                let slot = self.names.bind(&s.var.text, false);
                let weighted = s.by.as_ref().is_some_and(|by| weighted::by(r, s, by));
                let body = self.block(r, &s.body);
                self.names.visible.truncate(depth);
                let site = self.site();
                Stmt::Split(Box::new(Split { slot, range, weighted, body, site, span: s.span }))
            }
            ast::Stmt::Ensure(e) => {
                r.report(
                    Diagnostic::error(
                        codes::MISPLACED,
                        "a postcondition belongs into a `collective`",
                    )
                    .label(e.span, "stands in an algorithm")
                    .help("write `a -> b : copy …` to move data"),
                );
                return None;
            }
        })
    }

    fn use_(&mut self, r: &mut Resolver<'_>, u: &ast::Use) -> Option<Use> {
        self.composed = true;
        let collective =
            u.collective.as_ref().map_or_else(|| self.collective.clone(), |c| c.text.clone());
        if let Some(c) = &u.collective {
            r.kind(self.id, c)?;
        }
        let program = self.used(r, &collective, u);
        let over = match &u.over {
            None => None,
            Some(name) => match self.axes.names.iter().position(|a| *a == name.text) {
                Some(axis) if self.axes.grid => Some(axis),
                _ => {
                    let mut d = Diagnostic::error(
                        codes::UNKNOWN_NAME,
                        format!("no axis is named `{}`", name.text),
                    )
                    .label(name.span, "not an axis of this algorithm");
                    d = match similar(&name.text, self.axes.names.iter().map(String::as_str)) {
                        Some(near) if self.axes.grid => d.help(format!("did you mean `{near}`?")),
                        _ => d.help("declare axes as in `on (node, gpu) ranks`"),
                    };
                    r.report(d);
                    return None;
                }
            },
        };
        // The coordinates of the axes that stay fixed are visible in the region.
        let depth = self.names.visible.len();
        if let Some(over) = over {
            let coordinates: Vec<Slot> = self.coordinate_slots();
            for (i, name) in self.axes.names.clone().iter().enumerate() {
                if i != over {
                    self.names.visible.push((name.clone(), coordinates[i], false));
                }
            }
        }
        let on = match &u.on {
            Some(region) => Some(self.region(r, region)?),
            None => None,
        };
        let to = match &u.to {
            Some(region) => Some(self.region(r, region)?),
            None => None,
        };
        self.names.visible.truncate(depth);
        let root = match &u.root {
            Some(e) => Some(r.number(self.id, &mut self.names, e)?),
            None => None,
        };
        let via = match &u.via {
            Some(e) => Some(r.number(self.id, &mut self.names, e)?),
            None => None,
        };
        let program = program?;
        self.used.extend(&program.sources);
        if on.is_none() {
            match program.style {
                Style::Data => self.data.get_or_insert(u.span),
                Style::InputOutput => self.split_buffers.get_or_insert(u.span),
            };
        }
        let site = self.site();
        Some(Use { program, over, on, to, root, via, site, span: u.span })
    }

    /// Resolves the algorithm that is used. What walks over algorithms calls itself for each block, so blocks in blocks are
    /// limited, wherever they are written.
    fn used(
        &mut self,
        r: &mut Resolver<'_>,
        collective: &str,
        u: &ast::Use,
    ) -> Option<Arc<Program>> {
        let around = r.nested;
        r.nested += self.level;
        let program = if r.nested <= MAX_DEPTH {
            r.program(self.id, collective, &u.name.text, u.name.span)
        } else {
            None
        };
        let is_deep = r.nested > MAX_DEPTH
            || program.as_ref().is_some_and(|p| self.level + p.height > MAX_DEPTH);
        r.nested = around;
        if is_deep {
            let message =
                format!("algorithms that use each other are nested more than {MAX_DEPTH} deep");
            r.report(
                Diagnostic::error(codes::TOO_LARGE, message)
                    .label(u.span, "here")
                    .help("let fewer algorithms use each other, or in fewer blocks"),
            );
            return None;
        }
        self.height = self.height.max(self.level + program.as_ref()?.height);
        program
    }

    /// Returns a new number for a statement with parts.
    fn site(&mut self) -> u32 {
        self.sites += 1;
        self.sites
    }

    /// Returns the slots of the coordinates, as [`program`] allocated them: right after the root.
    fn coordinate_slots(&self) -> Vec<Slot> {
        let first = 1 + if self.axes.grid { short(self.axes.names.len()) } else { 0 } + 1;
        (first..first + short(self.axes.names.len())).collect()
    }

    fn schedule(&mut self, r: &mut Resolver<'_>, s: Option<&ast::Schedule>) -> Option<Schedule> {
        let s = s?;
        let mut out = Schedule { span: Some(s.span), ..no_schedule() };
        for (key, value) in &s.entries {
            let bad = |r: &mut Resolver<'_>, message: String, help: &str| {
                r.report(
                    Diagnostic::error(codes::BAD_SCHEDULE, message)
                        .label(key.span, "here")
                        .help(help),
                );
            };
            match key.text.as_str() {
                "protocol" => match &value.kind {
                    ExprKind::Name(n) if n == "auto" => out.protocol = CopyPolicy::Auto,
                    ExprKind::Name(n) if n == "staged" => out.protocol = CopyPolicy::Staged,
                    ExprKind::Name(n) if n == "direct" => out.protocol = CopyPolicy::Direct,
                    _ => bad(r, "no such protocol".into(), "protocols are auto, staged and direct"),
                },
                "pipeline" => out.pipeline = r.number(self.id, &mut self.names, value),
                "channels" => {
                    out.channels = r.number(self.id, &mut self.names, value);
                    self.composed = true;
                }
                "slots" => out.slots = r.number(self.id, &mut self.names, value),
                other => {
                    let known = ["pipeline", "channels", "slots", "protocol"];
                    let help = similar(other, known.iter().copied()).map_or_else(
                        || "entries are pipeline, channels, slots and protocol".to_string(),
                        |near| format!("did you mean `{near}`?"),
                    );
                    bad(r, format!("a schedule has no entry `{other}`"), &help);
                }
            }
        }
        Some(out)
    }
}
