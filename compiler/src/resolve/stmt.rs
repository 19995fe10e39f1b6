//! Statements of an algorithm, and its schedule.

use std::sync::Arc;

use roundelay_dsl::MAX_DEPTH;
use roundelay_dsl::ast::{self, ExprKind};
use roundelay_dsl::diag::{Diagnostic, codes, similar};

use super::body::AlgorithmBody;
use super::each::FlatEach;
use super::resolver::ProgramResolver;
use super::weighted;
use crate::num::short;
use crate::plan::CopyPolicy;
use crate::program::{
    AlgorithmUse, BufferStyle, EachRules, PartSplit, Program, ProgramSchedule, ProgramStmt, Slot,
};

impl AlgorithmBody {
    pub(super) fn block(
        &mut self,
        r: &mut ProgramResolver<'_>,
        stmts: &[ast::Stmt],
    ) -> Vec<ProgramStmt> {
        let depth = self.names.visible.len();
        self.level += 1;
        self.height = self.height.max(self.level);
        let out = stmts.iter().filter_map(|s| self.stmt(r, s)).collect();
        self.level -= 1;
        self.names.visible.truncate(depth);
        out
    }

    fn stmt(&mut self, r: &mut ProgramResolver<'_>, s: &ast::Stmt) -> Option<ProgramStmt> {
        Some(match s {
            ast::Stmt::Let(name, e) => {
                let value = r.any(self.id, &mut self.names, e);
                // Declared even if its value is at fault, so that its uses are not reported too.
                let slot = self.names.bind(&name.text, value.as_ref().is_some_and(|v| v.1));
                ProgramStmt::Let(slot, value?.0)
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
                    Some(cond) => vec![ProgramStmt::If { cond, then: body, otherwise: Vec::new() }],
                    None => body,
                };
                ProgramStmt::For { slot, from: from?, to: to?, body }
            }
            ast::Stmt::If(i) => {
                let cond = r.truth(self.id, &mut self.names, &i.cond);
                let then = self.block(r, &i.then);
                let otherwise = self.block(r, &i.otherwise);
                ProgramStmt::If { cond: cond?, then, otherwise }
            }
            ast::Stmt::Each(e) => ProgramStmt::Each(self.each(r, e)?),
            ast::Stmt::Transfer(t) => {
                let var = self.names.hidden();
                let mut flat = FlatEach::new(var);
                self.transfer(r, t, &mut flat);
                ProgramStmt::Each(EachRules {
                    var,
                    rules: flat.rules,
                    defs: Vec::new(),
                    once: true,
                    span: t.span,
                })
            }
            ast::Stmt::Use(u) => ProgramStmt::Use(Box::new(self.use_(r, u)?)),
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
                ProgramStmt::Split(Box::new(PartSplit {
                    slot,
                    range,
                    weighted,
                    body,
                    site,
                    span: s.span,
                }))
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

    fn use_(&mut self, r: &mut ProgramResolver<'_>, u: &ast::UseStmt) -> Option<AlgorithmUse> {
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
        let arguments = self.arguments(r, u, &program)?;
        self.used.extend(&program.sources);
        if on.is_none() {
            match program.style {
                BufferStyle::Data => self.data.get_or_insert(u.span),
                BufferStyle::InputOutput => self.split_buffers.get_or_insert(u.span),
            };
        }
        let site = self.site();
        Some(AlgorithmUse { program, over, on, to, root, via, arguments, site, span: u.span })
    }

    /// Resolves the algorithm that is used. What walks over algorithms calls itself for each block, so blocks in blocks
    /// are limited, wherever they are written.
    fn used(
        &mut self,
        r: &mut ProgramResolver<'_>,
        collective: &str,
        u: &ast::UseStmt,
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

    pub(super) fn schedule(
        &mut self,
        r: &mut ProgramResolver<'_>,
        s: Option<&ast::ScheduleClause>,
    ) -> Option<ProgramSchedule> {
        let s = s?;
        let mut out = ProgramSchedule { span: Some(s.span), ..default_schedule() };
        for (key, value) in &s.entries {
            let bad = |r: &mut ProgramResolver<'_>, message: String, help: &str| {
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

/// Returns the default schedule.
pub(super) fn default_schedule() -> ProgramSchedule {
    ProgramSchedule {
        pipeline: None,
        channels: None,
        slots: None,
        protocol: CopyPolicy::Auto,
        span: None,
    }
}
