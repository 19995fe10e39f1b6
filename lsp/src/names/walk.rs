//! Follows the scopes of a syntax tree.

use std::collections::HashMap;

use roundelay_dsl::ast::{
    AlgorithmDecl, AxesClause, CollectiveDecl, EnsureClause, Expr, ExprKind, FileDeclaration,
    FnDef, RankRef, RegionIndex, RegionRef, SourceFile, SpannedName, Stmt, TransferStmt, UseStmt,
};
use roundelay_dsl::span::Span;

use super::table::{NameDefinition, NameKind, NameMeaning, NameTable, NameUse};

/// The table that grows, and the names that are known at the place that was reached.
struct ScopeWalk {
    table: NameTable,
    /// Innermost last.
    scopes: Vec<HashMap<String, usize>>,
    /// The declaration that is walked.
    scope: Span,
    /// The collective of the algorithm that is walked: a `use` without one means it.
    collective: String,
}

/// Returns the names of a file.
pub(crate) fn names(file: &SourceFile) -> NameTable {
    let mut walk = ScopeWalk {
        table: NameTable::default(),
        scopes: vec![HashMap::new()],
        scope: file.span,
        collective: String::new(),
    };
    for item in &file.items {
        match item {
            FileDeclaration::Import(i) => walk.table.imports.push((i.path.clone(), i.path_span)),
            FileDeclaration::Fn(f) => walk.define(&f.name, NameKind::Function, &f.docs),
            FileDeclaration::Collective(c) => walk.define(&c.name, NameKind::Collective, &c.docs),
            // Two may have one name, for two collectives: `use` finds them by both.
            FileDeclaration::Algorithm(a) => {
                let docs = if a.docs.is_empty() { &file.docs } else { &a.docs };
                walk.add(&a.name, NameKind::Algorithm, docs);
            }
            FileDeclaration::Constant(c) => walk.define(&c.name, NameKind::Constant, &c.docs),
        }
    }
    for item in &file.items {
        walk.scope = item.span();
        match item {
            FileDeclaration::Import(_) => {}
            FileDeclaration::Constant(c) => walk.expr(&c.value),
            FileDeclaration::Fn(f) => walk.inside(|walk| walk.function(f)),
            FileDeclaration::Collective(c) => walk.inside(|walk| walk.contract(c)),
            FileDeclaration::Algorithm(a) => walk.inside(|walk| walk.algorithm(a, file)),
        }
    }
    walk.table.uses.sort_by_key(|u| u.span);
    walk.table
}

impl ScopeWalk {
    /// Walks something whose names are known in it alone.
    fn inside(&mut self, walk: impl FnOnce(&mut Self)) {
        self.scopes.push(HashMap::new());
        walk(self);
        self.scopes.pop();
    }

    /// Adds a definition that no name in scope finds.
    fn add(&mut self, name: &SpannedName, kind: NameKind, docs: &[String]) -> usize {
        self.table.definitions.push(NameDefinition {
            name: name.text.clone(),
            kind,
            span: name.span,
            scope: self.scope,
            docs: docs.to_vec(),
        });
        self.table.definitions.len() - 1
    }

    fn define(&mut self, name: &SpannedName, kind: NameKind, docs: &[String]) {
        let index = self.add(name, kind, docs);
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.text.clone(), index);
        }
    }

    fn known(&self, name: &str) -> Option<usize> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    /// Adds a use, of the definition that is known if there is one.
    fn uses(&mut self, name: &str, span: Span, otherwise: NameMeaning) {
        let meaning = self.known(name).map_or(otherwise, NameMeaning::Defined);
        self.table.uses.push(NameUse { name: name.into(), span, meaning });
    }

    fn function(&mut self, f: &FnDef) {
        f.params.iter().for_each(|p| self.define(p, NameKind::Parameter, &[]));
        for (name, value) in &f.lets {
            self.expr(value);
            self.define(name, NameKind::Variable, &[]);
        }
        self.expr(&f.value);
    }

    fn axes(&mut self, axes: &AxesClause) {
        match axes {
            AxesClause::Flat(name) => self.define(name, NameKind::Axis, &[]),
            AxesClause::Grid(names, _) => {
                names.iter().for_each(|name| self.define(name, NameKind::Axis, &[]));
            }
        }
    }

    fn contract(&mut self, c: &CollectiveDecl) {
        self.axes(&c.axes);
        c.input.iter().chain(&c.output).for_each(|e| self.expr(e));
        self.statements(&c.body);
    }

    fn algorithm(&mut self, a: &AlgorithmDecl, file: &SourceFile) {
        self.collective.clone_from(&a.collective.text);
        self.uses(&a.collective.text, a.collective.span, NameMeaning::Collective);
        self.axes(&a.axes);
        for p in &a.parameters {
            self.expr(&p.default);
            p.bounds.iter().for_each(|(least, most)| {
                self.expr(least);
                self.expr(most);
            });
            self.define(&p.name, NameKind::Parameter, &[]);
        }
        for (name, value) in &a.lets {
            self.expr(value);
            self.define(name, NameKind::Variable, &[]);
        }
        a.requires.iter().chain(&a.tolerates).chain(&a.chunks).for_each(|e| self.expr(e));
        for buffer in &a.scratch {
            self.expr(&buffer.chunks);
            self.define(&buffer.name, NameKind::Buffer, &[]);
        }
        self.statements(&a.body);
        for (name, value) in a.schedule.iter().flat_map(|s| &s.entries) {
            self.word(&name.text, name.span);
            // A word that stands for itself, such as `direct`.
            match &value.kind {
                ExprKind::Name(word) if self.known(word).is_none() => self.word(word, value.span),
                _ => self.expr(value),
            }
        }
        self.own_algorithms(file);
    }

    fn word(&mut self, name: &str, span: Span) {
        let meaning = NameMeaning::Argument;
        self.table.uses.push(NameUse { name: name.into(), span, meaning });
    }

    /// Finds the algorithms of this file among those that were used, by collective and name.
    fn own_algorithms(&mut self, file: &SourceFile) {
        for found in &mut self.table.uses {
            let NameMeaning::Algorithm(collective) = &found.meaning else { continue };
            let own = file.items.iter().find_map(|item| match item {
                FileDeclaration::Algorithm(a)
                    if a.name.text == found.name && a.collective.text == *collective =>
                {
                    Some(a.name.span)
                }
                _ => None,
            });
            let index = self.table.definitions.iter().position(|d| Some(d.span) == own);
            if let Some(index) = index {
                found.meaning = NameMeaning::Defined(index);
            }
        }
    }

    fn statements(&mut self, body: &[Stmt]) {
        for statement in body {
            self.statement(statement);
        }
    }

    fn block(&mut self, body: &[Stmt]) {
        self.inside(|walk| walk.statements(body));
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Let(name, value) => {
                self.expr(value);
                self.define(name, NameKind::Variable, &[]);
            }
            Stmt::For(f) => {
                self.expr(&f.from);
                self.expr(&f.to);
                self.inside(|walk| {
                    walk.define(&f.var, NameKind::Variable, &[]);
                    f.filter.iter().for_each(|e| walk.expr(e));
                    walk.statements(&f.body);
                });
            }
            Stmt::If(i) => {
                self.expr(&i.cond);
                self.block(&i.then);
                self.block(&i.otherwise);
            }
            Stmt::Each(each) => self.inside(|walk| {
                each.vars.iter().for_each(|v| walk.define(v, NameKind::Rank, &[]));
                each.filter.iter().for_each(|e| walk.expr(e));
                walk.statements(&each.body);
            }),
            Stmt::Transfer(t) => self.transfer(t),
            Stmt::Use(u) => self.used(u),
            Stmt::Split(s) => {
                self.uses(&s.buffer.text, s.buffer.span, NameMeaning::Buffer);
                s.range.iter().for_each(|(from, to)| {
                    self.expr(from);
                    self.expr(to);
                });
                self.inside(|walk| {
                    walk.define(&s.var, NameKind::Variable, &[]);
                    s.by.iter().for_each(|e| walk.expr(e));
                    walk.statements(&s.body);
                });
            }
            Stmt::Ensure(e) => self.inside(|walk| walk.ensure(e)),
        }
    }

    fn ensure(&mut self, e: &EnsureClause) {
        self.region(&e.target);
        if let Some(r) = &e.reduce {
            self.expr(&r.from);
            self.expr(&r.to);
            self.define(&r.var, NameKind::Variable, &[]);
            r.filter.iter().for_each(|e| self.expr(e));
        }
        self.region(&e.source);
        self.rank(&e.at);
    }

    fn transfer(&mut self, t: &TransferStmt) {
        self.rank(&t.src);
        self.rank(&t.dst);
        self.region(&t.from);
        t.to.iter().for_each(|r| self.region(r));
        if let Some(wire) = &t.wire {
            self.word(&wire.text, wire.span);
        }
    }

    fn used(&mut self, u: &UseStmt) {
        let collective = match &u.collective {
            Some(c) => {
                self.uses(&c.text, c.span, NameMeaning::Collective);
                c.text.clone()
            }
            None => self.collective.clone(),
        };
        let meaning = NameMeaning::Algorithm(collective);
        self.table.uses.push(NameUse { name: u.name.text.clone(), span: u.name.span, meaning });
        for (name, value) in &u.arguments {
            self.word(&name.text, name.span);
            self.expr(value);
        }
        if let Some(axis) = &u.over {
            self.uses(&axis.text, axis.span, NameMeaning::Word);
        }
        u.on.iter().chain(&u.to).for_each(|r| self.region(r));
        u.root.iter().chain(&u.via).for_each(|e| self.expr(e));
    }

    fn rank(&mut self, rank: &RankRef) {
        match rank {
            RankRef::One(e) => self.expr(e),
            RankRef::Tuple(all, _) => all.iter().for_each(|e| self.expr(e)),
        }
    }

    fn region(&mut self, region: &RegionRef) {
        self.uses(&region.buffer.text, region.buffer.span, NameMeaning::Buffer);
        match &region.index {
            None => {}
            Some(RegionIndex::At(e)) => self.expr(e),
            Some(RegionIndex::Range { from, to: end, by, take })
            | Some(RegionIndex::Cyclic { from, count: end, by, take }) => {
                [from, end].into_iter().chain(by).chain(take).for_each(|e| self.expr(e));
            }
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Truth(_) => {}
            ExprKind::Name(name) => self.uses(name, e.span, NameMeaning::Word),
            ExprKind::Field(axis, size) => {
                self.uses(&axis.text, axis.span, NameMeaning::Word);
                self.word(&size.text, size.span);
            }
            ExprKind::Unary(_, a) => self.expr(a),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Call(name, arguments) => {
                self.uses(&name.text, name.span, NameMeaning::Function);
                arguments.iter().for_each(|a| self.expr(a));
            }
            ExprKind::If(a, b, c) => {
                [a, b, c].into_iter().for_each(|e| self.expr(e));
            }
        }
    }
}
