//! Algorithms: clauses, statements, and `each` bodies flattened into rules.

use roundelay_dsl::ast::{self, ExprKind};
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::SourceId;

use super::{Names, Resolver, axes, no_schedule, style};
use crate::collective::Kind;
use crate::plan::{Protocol, Wire};
use crate::program::{
    Axes, Binder, Buffer, Each, Expr, Index, Node, Program, Rank, Region, Rule, Schedule, Slot,
    Split, Stmt, Style, Use,
};

/// What statements of one algorithm share.
struct Body {
    id: SourceId,
    names: Names,
    axes: Axes,
    scratch: Vec<String>,
    /// Spans of the first use of `data`, and of `input` or `output`.
    data: Option<roundelay_dsl::span::Span>,
    split_buffers: Option<roundelay_dsl::span::Span>,
    composed: bool,
    collective: String,
    /// Texts of the programs used.
    used: Vec<SourceId>,
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
    let chunks = match &a.chunks {
        Some(e) => Some(r.number(id, &mut body.names, e)?),
        None => None,
    };
    let mut scratch = Vec::new();
    for s in &a.scratch {
        if ["data", "input", "output"].contains(&s.name.text.as_str())
            || a.scratch.iter().filter(|o| o.name.text == s.name.text).count() > 1
        {
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
        chunks,
        scratch,
        body: stmts,
        schedule: schedule.unwrap_or_else(no_schedule),
        slots: body.names.slots,
        root,
        coordinates,
        header: a.header,
        composed: body.composed,
        sources,
    })
}

/// An `each` while its body is being flattened.
struct Flat {
    var: Slot,
    binders: Vec<Binder>,
    /// Slots that depend on the rank.
    dependent: Vec<Slot>,
    defs: Vec<(Slot, Expr)>,
    rules: Vec<Rule>,
}

impl Body {
    fn block(&mut self, r: &mut Resolver<'_>, stmts: &[ast::Stmt]) -> Vec<Stmt> {
        let depth = self.names.visible.len();
        let out = stmts.iter().filter_map(|s| self.stmt(r, s)).collect();
        self.names.visible.truncate(depth);
        out
    }

    fn stmt(&mut self, r: &mut Resolver<'_>, s: &ast::Stmt) -> Option<Stmt> {
        Some(match s {
            ast::Stmt::Let(name, e) => {
                let (e, truth) = r.any(self.id, &mut self.names, e)?;
                Stmt::Let(self.names.bind(&name.text, truth), e)
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
                Stmt::For { slot, from: from?, to: to?, filter, body }
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
                let mut flat = Flat {
                    var,
                    binders: Vec::new(),
                    dependent: vec![var],
                    defs: Vec::new(),
                    rules: Vec::new(),
                };
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
                self.data.get_or_insert(s.buffer.span);
                let range = match &s.range {
                    Some((a, b)) => Some((
                        r.number(self.id, &mut self.names, a)?,
                        r.number(self.id, &mut self.names, b)?,
                    )),
                    None => None,
                };
                let depth = self.names.visible.len();
                let slot = self.names.bind(&s.var.text, false);
                if let Some(by) = &s.by
                    && !matches!(&by.kind, ExprKind::Call(f, a) if f.text == "bandwidth" && a.len() == 1)
                {
                    r.number(self.id, &mut self.names, by);
                }
                let body = self.block(r, &s.body);
                self.names.visible.truncate(depth);
                Stmt::Split(Box::new(Split { slot, range, body, span: s.span }))
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
        let program = r.program(self.id, &collective, &u.name.text, u.name.span);
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
        let mut flat = Flat {
            var: self.names.hidden(),
            binders: Vec::new(),
            dependent: Vec::new(),
            defs: Vec::new(),
            rules: Vec::new(),
        };
        let on = match &u.on {
            Some(region) => Some(self.region(r, region, &mut flat)?),
            None => None,
        };
        let to = match &u.to {
            Some(region) => Some(self.region(r, region, &mut flat)?),
            None => None,
        };
        self.names.visible.truncate(depth);
        let root = match &u.root {
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
        Some(Use { program, over, on, to, root, span: u.span })
    }

    /// Slots of the coordinates, as [`program`] allocated them: right after the root.
    fn coordinate_slots(&self) -> Vec<Slot> {
        let first = 1 + if self.axes.grid { self.axes.names.len() as Slot } else { 0 } + 1;
        (first..first + self.axes.names.len() as Slot).collect()
    }

    fn each(&mut self, r: &mut Resolver<'_>, e: &ast::Each) -> Option<Each> {
        let depth = self.names.visible.len();
        let mut flat = if e.vars.len() == 1 {
            let var = self.names.bind(&e.vars[0].text, false);
            Flat {
                var,
                binders: Vec::new(),
                dependent: vec![var],
                defs: Vec::new(),
                rules: Vec::new(),
            }
        } else {
            if e.vars.len() != self.axes.names.len() {
                r.report(
                    Diagnostic::error(
                        codes::SHAPE,
                        format!("{} coordinates, but {} axes", e.vars.len(), self.axes.names.len()),
                    )
                    .label(e.span, "one name an axis, or one for the linear rank"),
                );
                return None;
            }
            let var = self.names.hidden();
            let mut flat = Flat {
                var,
                binders: Vec::new(),
                dependent: vec![var],
                defs: Vec::new(),
                rules: Vec::new(),
            };
            let span = e.span;
            let v = |slot| Expr { node: Node::Var(slot), span };
            let op = |op, a, b| Expr { node: Node::Binary(op, Box::new(a), Box::new(b)), span };
            for (i, name) in e.vars.iter().enumerate() {
                let mut value = v(var);
                for &size in self.axes.sizes[i + 1..].iter().rev() {
                    value = op(ast::BinOp::Div, value, v(size));
                }
                if i > 0 {
                    value = op(ast::BinOp::Mod, value, v(self.axes.sizes[i]));
                }
                let slot = self.names.bind(&name.text, false);
                flat.dependent.push(slot);
                flat.defs.push((slot, value.clone()));
                flat.binders.push(Binder::Let(slot, value));
            }
            flat
        };
        if let Some(filter) = &e.filter
            && let Some(f) = r.truth(self.id, &mut self.names, filter)
        {
            flat.binders.push(Binder::Where(f));
        }
        self.flatten(r, &e.body, &mut flat);
        self.names.visible.truncate(depth);
        Some(Each { var: flat.var, rules: flat.rules, defs: flat.defs, once: false, span: e.span })
    }

    /// Flattens statements of an `each` into rules.
    fn flatten(&mut self, r: &mut Resolver<'_>, stmts: &[ast::Stmt], flat: &mut Flat) {
        let (depth, binders) = (self.names.visible.len(), flat.binders.len());
        for s in stmts {
            match s {
                ast::Stmt::Let(name, e) => {
                    if let Some((e, truth)) = r.any(self.id, &mut self.names, e) {
                        let slot = self.names.bind(&name.text, truth);
                        if depends(&e, &flat.dependent) {
                            flat.dependent.push(slot);
                            flat.defs.push((slot, e.clone()));
                        }
                        flat.binders.push(Binder::Let(slot, e));
                    }
                }
                ast::Stmt::For(f) => {
                    let from = r.number(self.id, &mut self.names, &f.from);
                    let to = r.number(self.id, &mut self.names, &f.to);
                    let inner = (self.names.visible.len(), flat.binders.len());
                    let slot = self.names.bind(&f.var.text, false);
                    if let (Some(from), Some(to)) = (from, to) {
                        flat.binders.push(Binder::For(slot, from, to));
                        if let Some(filter) = &f.filter
                            && let Some(filter) = r.truth(self.id, &mut self.names, filter)
                        {
                            flat.binders.push(Binder::Where(filter));
                        }
                        self.flatten(r, &f.body, flat);
                    }
                    self.names.visible.truncate(inner.0);
                    flat.binders.truncate(inner.1);
                }
                ast::Stmt::If(i) => {
                    if let Some(cond) = r.truth(self.id, &mut self.names, &i.cond) {
                        let at = flat.binders.len();
                        flat.binders.push(Binder::Where(cond.clone()));
                        self.flatten(r, &i.then, flat);
                        flat.binders.truncate(at);
                        let span = cond.span;
                        let not = Node::Unary(ast::UnOp::Not, Box::new(cond));
                        flat.binders.push(Binder::Where(Expr { node: not, span }));
                        self.flatten(r, &i.otherwise, flat);
                        flat.binders.truncate(at);
                    }
                }
                ast::Stmt::Transfer(t) => self.transfer(r, t, flat),
                ast::Stmt::Each(e) => self.misplaced(
                    r,
                    e.span,
                    "an `each` cannot stand in another",
                    "use `for p in 0..n` inside an `each`",
                ),
                ast::Stmt::Use(u) => self.misplaced(
                    r,
                    u.span,
                    "a `use` cannot stand in an `each`",
                    "write it outside; it runs on every group at once",
                ),
                ast::Stmt::Split(s) => self.misplaced(
                    r,
                    s.span,
                    "a `split` cannot stand in an `each`",
                    "write the `each` inside the `split`",
                ),
                ast::Stmt::Ensure(e) => self.misplaced(
                    r,
                    e.span,
                    "a postcondition belongs into a `collective`",
                    "write `a -> b : copy …` to move data",
                ),
            }
        }
        self.names.visible.truncate(depth);
        flat.binders.truncate(binders);
    }

    fn misplaced(
        &self,
        r: &mut Resolver<'_>,
        span: roundelay_dsl::span::Span,
        what: &str,
        help: &str,
    ) {
        r.report(Diagnostic::error(codes::MISPLACED, what).label(span, "here").help(help));
    }

    fn transfer(&mut self, r: &mut Resolver<'_>, t: &ast::Transfer, flat: &mut Flat) {
        let src = self.rank(r, &t.src);
        let dst = self.rank(r, &t.dst);
        let from = self.region(r, &t.from, flat);
        let to = match &t.to {
            Some(region) => self.region(r, region, flat),
            None => from.clone(),
        };
        let wire = match &t.wire {
            None => None,
            Some(w) => {
                let wire =
                    [Wire::F16, Wire::Bf16, Wire::F32].into_iter().find(|k| k.name() == w.text);
                if wire.is_none() {
                    r.report(
                        Diagnostic::error(
                            codes::UNKNOWN_WIRE,
                            format!("no wire type is named `{}`", w.text),
                        )
                        .label(w.span, "not known")
                        .help("wire types are f16, bf16 and f32"),
                    );
                }
                wire
            }
        };
        let (Some(src), Some(dst), Some(from), Some(to)) = (src, dst, from, to) else { return };
        if to.buf == Buffer::Input {
            r.report(
                Diagnostic::error(codes::MISPLACED, "`input` is never written")
                    .label(to.span, "written here")
                    .help("move to `output` or a scratch buffer: `copy input[…] -> output[…]`"),
            );
            return;
        }
        let uniform = flat.binders.iter().all(|b| match b {
            Binder::For(_, from, to) => {
                !depends(from, &flat.dependent) && !depends(to, &flat.dependent)
            }
            _ => true,
        });
        flat.rules.push(Rule {
            binders: flat.binders.clone(),
            uniform,
            src,
            dst,
            op: t.op,
            from,
            to,
            wire,
            span: t.span,
        });
    }

    fn rank(&mut self, r: &mut Resolver<'_>, rank: &ast::Rank) -> Option<Rank> {
        rank_expr(r, self.id, &mut self.names, &self.axes, rank)
    }

    fn region(
        &mut self,
        r: &mut Resolver<'_>,
        region: &ast::Region,
        _flat: &mut Flat,
    ) -> Option<Region> {
        let name = region.buffer.text.as_str();
        let buf = match name {
            "data" => {
                self.data.get_or_insert(region.buffer.span);
                Buffer::Data
            }
            "input" | "output" => {
                self.split_buffers.get_or_insert(region.buffer.span);
                if name == "input" { Buffer::Input } else { Buffer::Output }
            }
            _ => match self.scratch.iter().position(|s| s == name) {
                Some(i) => Buffer::Scratch(i as u16),
                None => {
                    let known = ["data", "input", "output"];
                    let all = known.iter().copied().chain(self.scratch.iter().map(String::as_str));
                    let mut d = Diagnostic::error(
                        codes::UNKNOWN_NAME,
                        format!("no buffer is named `{name}`"),
                    )
                    .label(region.buffer.span, "not known");
                    d = match similar(name, all) {
                        Some(near) => d.help(format!("did you mean `{near}`?")),
                        None => d.help(format!(
                            "buffers are data, input, output; declare others: `scratch {name}[…]`"
                        )),
                    };
                    r.report(d);
                    return None;
                }
            },
        };
        let index = index(r, self.id, &mut self.names, region.index.as_ref())?;
        Some(Region { buf, index, span: region.span })
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
                    ExprKind::Name(n) if n == "auto" => out.protocol = Protocol::Auto,
                    ExprKind::Name(n) if n == "staged" => out.protocol = Protocol::Staged,
                    ExprKind::Name(n) if n == "direct" => out.protocol = Protocol::Direct,
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

/// A rank expression; a tuple becomes its linear number.
pub(super) fn rank_expr(
    r: &mut Resolver<'_>,
    id: SourceId,
    names: &mut Names,
    axes: &Axes,
    rank: &ast::Rank,
) -> Option<Rank> {
    match rank {
        ast::Rank::One(e) => {
            Some(Rank { linear: r.number(id, names, e)?, coordinates: Vec::new(), span: e.span })
        }
        ast::Rank::Tuple(list, span) => {
            if list.len() != axes.names.len() {
                r.report(
                    Diagnostic::error(
                        codes::SHAPE,
                        format!("{} coordinates, but {} axes", list.len(), axes.names.len()),
                    )
                    .label(*span, "one coordinate an axis, or one linear rank"),
                );
                return None;
            }
            let mut coordinates = Vec::new();
            let mut linear: Option<Expr> = None;
            for (e, &size) in list.iter().zip(&axes.sizes) {
                let e = r.number(id, names, e)?;
                let op = |op, a, b| Expr {
                    node: Node::Binary(op, Box::new(a), Box::new(b)),
                    span: *span,
                };
                linear = Some(match linear {
                    None => e.clone(),
                    Some(l) => op(
                        ast::BinOp::Add,
                        op(ast::BinOp::Mul, l, Expr { node: Node::Var(size), span: *span }),
                        e.clone(),
                    ),
                });
                coordinates.push((e, size));
            }
            Some(Rank { linear: linear?, coordinates, span: *span })
        }
    }
}

/// An index.
pub(super) fn index(
    r: &mut Resolver<'_>,
    id: SourceId,
    names: &mut Names,
    index: Option<&ast::Index>,
) -> Option<Index> {
    let optional = |r: &mut Resolver<'_>, names: &mut Names, e: &Option<ast::Expr>| match e {
        Some(e) => r.number(id, names, e).map(Some),
        None => Some(None),
    };
    Some(match index {
        None => Index::All,
        Some(ast::Index::At(e)) => Index::At(r.number(id, names, e)?),
        Some(ast::Index::Range { from, to, by, take }) => {
            let (from, to) = (r.number(id, names, from), r.number(id, names, to));
            let (by, take) = (optional(r, names, by)?, optional(r, names, take)?);
            Index::Range { from: from?, to: to?, by, take }
        }
        Some(ast::Index::Cyclic { from, count, by, take }) => {
            let (from, count) = (r.number(id, names, from), r.number(id, names, count));
            let (by, take) = (optional(r, names, by)?, optional(r, names, take)?);
            Index::Cyclic { from: from?, count: count?, by, take }
        }
    })
}

/// Whether an expression reads one of the slots.
pub(super) fn depends(e: &Expr, slots: &[Slot]) -> bool {
    match &e.node {
        Node::Int(_) => false,
        Node::Var(s) => slots.contains(s),
        Node::Unary(_, a) => depends(a, slots),
        Node::Binary(_, a, b) => depends(a, slots) || depends(b, slots),
        Node::Call(_, args) => args.iter().any(|a| depends(a, slots)),
        Node::If(a, b, c) => depends(a, slots) || depends(b, slots) || depends(c, slots),
        Node::Let(_, a, b) => depends(a, slots) || depends(b, slots),
    }
}
