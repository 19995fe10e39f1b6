//! Algorithms that Rust code builds at run time, for one number of ranks: searched, measured, computed.
//! It can express what `#[algorithm]` cannot; the proofs are the same, when the algorithm first runs.

use std::ops::Range;
use std::panic::Location;

use roundelay_compiler::plan::WireType;
use roundelay_compiler::resolve_tree;
use roundelay_dsl::ast::{self, BinOp, ExprKind, RegionIndex, SpannedName, TransferOp};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use crate::custom::{Algorithm, AlgorithmFiles};
use roundelay_support::error::Error;

/// The transfers of an algorithm, under construction. Diagnostics point at the lines of Rust that called it.
pub struct AlgorithmBuilder {
    sources: SourceMap,
    algorithm: ast::AlgorithmDecl,
}

/// One round: what is added to it happens on all ranks at once, and every read sees the state before.
pub struct BuilderRound<'b> {
    sources: &'b mut SourceMap,
    body: Vec<ast::Stmt>,
}

/// `round.to(a, b)`, a transfer whose source is still to be given.
#[must_use = "say what is moved: `copy` or `reduce`"]
pub struct RoundHop<'r, 'b> {
    round: &'r mut BuilderRound<'b>,
    at: &'static Location<'static>,
    from: u32,
    to: u32,
}

/// A transfer that is in its round.
pub struct RoundTransfer<'r> {
    transfer: Option<&'r mut ast::TransferStmt>,
}

/// A buffer of every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuilderBuffer(String);

/// Some chunks of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuilderRegion {
    buffer: String,
    /// First and one past the last, or first and count, cyclic.
    index: Option<(u32, u32, bool)>,
}

/// The buffer that is input and output in one, in place.
pub fn data() -> BuilderBuffer {
    BuilderBuffer("data".into())
}

/// The buffer that a rank brings; it is only read.
pub fn input() -> BuilderBuffer {
    BuilderBuffer("input".into())
}

/// The buffer that a rank ends with.
pub fn output() -> BuilderBuffer {
    BuilderBuffer("output".into())
}

impl BuilderBuffer {
    /// Returns one chunk.
    pub fn at(&self, chunk: u32) -> BuilderRegion {
        BuilderRegion {
            buffer: self.0.clone(),
            index: Some((chunk, chunk.saturating_add(1), false)),
        }
    }

    /// Returns these chunks.
    pub fn range(&self, chunks: Range<u32>) -> BuilderRegion {
        BuilderRegion { buffer: self.0.clone(), index: Some((chunks.start, chunks.end, false)) }
    }

    /// Returns `count` chunks from `first` on, going on at 0 where the buffer ends.
    pub fn cyclic(&self, first: u32, count: u32) -> BuilderRegion {
        BuilderRegion { buffer: self.0.clone(), index: Some((first, count, true)) }
    }
}

impl From<BuilderBuffer> for BuilderRegion {
    fn from(buffer: BuilderBuffer) -> Self {
        BuilderRegion { buffer: buffer.0, index: None }
    }
}

impl Algorithm {
    /// Builds an algorithm of a collective for this many ranks. Names are resolved now; it is proved when
    /// it first runs.
    ///
    /// ```
    /// use roundelay_engine::custom::Algorithm;
    /// use roundelay_engine::build::data;
    ///
    /// // Any order of the ranks that a search may have found.
    /// let order = [0, 2, 3, 1];
    /// let ring = Algorithm::build("found", "all_gather", 4, |b| {
    ///     for s in 0..3 {
    ///         b.each(|round| {
    ///             for p in 0..4 {
    ///                 let held = order[(p + 4 - s) % 4];
    ///                 round.to(order[p], order[(p + 1) % 4]).copy(data().at(held));
    ///             }
    ///         });
    ///     }
    /// })?;
    /// # Ok::<(), roundelay_support::error::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is no such collective, or no such buffer.
    #[track_caller]
    pub fn build(
        name: &str,
        collective: &str,
        ranks: u32,
        body: impl FnOnce(&mut AlgorithmBuilder),
    ) -> Result<Self, Error> {
        let mut sources = SourceMap::new();
        let head = format!("algorithm {name} implements {collective} on n ranks");
        let span =
            piece(&mut sources, Location::caller(), &format!("{head} {{ requires n == {ranks} }}"));
        let part = |from: usize, len: usize| Span {
            start: span.start + from as u32,
            end: span.start + (from + len) as u32,
            ..span
        };
        let named = |text: &str, span| SpannedName { text: text.into(), span };
        let only = part(head.len() + 12, format!("n == {ranks}").len());
        let n = ast::Expr { kind: ExprKind::Name("n".into()), span: only };
        let algorithm = ast::AlgorithmDecl {
            docs: Vec::new(),
            name: named(name, part(10, name.len())),
            parameters: Vec::new(),
            collective: named(collective, part(21 + name.len() + 1, collective.len())),
            axes: ast::AxesClause::Flat(named("n", part(head.len() - 7, 1))),
            requires: vec![binary(BinOp::Eq, n, number(ranks, only))],
            tolerates: None,
            chunks: None,
            scratch: Vec::new(),
            lets: Vec::new(),
            body: Vec::new(),
            schedule: None,
            header: part(0, head.len()),
            span,
        };
        let mut builder = AlgorithmBuilder { sources, algorithm };
        body(&mut builder);
        let AlgorithmBuilder { mut sources, algorithm } = builder;
        let file = ast::SourceFile {
            docs: Vec::new(),
            items: vec![ast::FileDeclaration::Algorithm(algorithm)],
            span,
        };
        let resolved = resolve_tree(&mut sources, SourceId(0), &file, &AlgorithmFiles);
        Self::resolved(name, sources, resolved)
    }
}

impl AlgorithmBuilder {
    /// Sets the number of chunks into which the whole vector is cut.
    #[track_caller]
    pub fn chunks(&mut self, count: u32) {
        let span = self.piece(Location::caller(), &format!("chunks {count}"));
        self.algorithm.chunks = Some(number(count, span));
    }

    /// Adds a buffer of this many chunks on every rank.
    #[track_caller]
    pub fn scratch(&mut self, name: &str, chunks: u32) -> BuilderBuffer {
        let span = self.piece(Location::caller(), &format!("scratch {name}[{chunks}]"));
        let chunks = number(chunks, span);
        self.algorithm
            .scratch
            .push(ast::ScratchDecl { name: SpannedName { text: name.into(), span }, chunks });
        BuilderBuffer(name.into())
    }

    /// Adds a round.
    #[track_caller]
    pub fn each(&mut self, body: impl FnOnce(&mut BuilderRound<'_>)) {
        let span = self.piece(Location::caller(), "each r");
        let mut round = BuilderRound { sources: &mut self.sources, body: Vec::new() };
        body(&mut round);
        let body = round.body;
        let vars = vec![SpannedName { text: "r".into(), span }];
        self.algorithm.body.push(ast::Stmt::Each(ast::EachStmt { vars, filter: None, body, span }));
    }

    /// Adds an algorithm of the library, as a part of this one.
    #[track_caller]
    pub fn run(&mut self, collective: &str, name: &str) {
        let span = self.piece(Location::caller(), &format!("use {collective}.{name}"));
        let named = |text: &str| SpannedName { text: text.into(), span };
        self.algorithm.body.push(ast::Stmt::Use(ast::UseStmt {
            collective: Some(named(collective)),
            name: named(name),
            arguments: Vec::new(),
            over: None,
            on: None,
            to: None,
            root: None,
            via: None,
            span,
        }));
    }

    /// The former name of [`run`](Self::run).
    #[doc(hidden)]
    #[track_caller]
    pub fn play(&mut self, collective: &str, name: &str) {
        self.run(collective, name);
    }

    fn piece(&mut self, at: &Location<'_>, text: &str) -> Span {
        piece(&mut self.sources, at, text)
    }
}

impl<'b> BuilderRound<'b> {
    /// Begins a transfer from one rank to another.
    #[track_caller]
    pub fn to(&mut self, from: u32, to: u32) -> RoundHop<'_, 'b> {
        RoundHop { round: self, at: Location::caller(), from, to }
    }
}

impl<'r> RoundHop<'r, '_> {
    /// Overwrites what the target has.
    pub fn copy(self, from: impl Into<BuilderRegion>) -> RoundTransfer<'r> {
        self.moved(TransferOp::Copy, from.into())
    }

    /// Combines with what the target has.
    pub fn reduce(self, from: impl Into<BuilderRegion>) -> RoundTransfer<'r> {
        self.moved(TransferOp::Reduce, from.into())
    }

    fn moved(self, op: TransferOp, from: BuilderRegion) -> RoundTransfer<'r> {
        let word = if op == TransferOp::Copy { "copy" } else { "reduce" };
        let text = format!("{} -> {} : {word} {}", self.from, self.to, from.text());
        let span = piece(self.round.sources, self.at, &text);
        let (src, dst) = (number(self.from, span), number(self.to, span));
        let r = ast::Expr { kind: ExprKind::Name("r".into()), span };
        let cond = binary(BinOp::Eq, r, src.clone());
        let transfer = ast::Stmt::Transfer(ast::TransferStmt {
            src: ast::RankRef::One(src),
            dst: ast::RankRef::One(dst),
            op,
            from: from.tree(span),
            to: None,
            wire: None,
            span,
        });
        let (then, otherwise) = (vec![transfer], Vec::new());
        self.round.body.push(ast::Stmt::If(ast::IfStmt { cond, then, otherwise, span }));
        let transfer = match self.round.body.last_mut() {
            Some(ast::Stmt::If(ast::IfStmt { then, .. })) => match then.last_mut() {
                Some(ast::Stmt::Transfer(t)) => Some(t),
                _ => None,
            },
            _ => None,
        };
        RoundTransfer { transfer }
    }
}

impl RoundTransfer<'_> {
    /// Sets the place at the target, if it is another than the one read.
    #[allow(clippy::should_implement_trait, reason = "it is a word of the language")]
    pub fn into(self, to: impl Into<BuilderRegion>) -> Self {
        let RoundTransfer { mut transfer } = self;
        if let Some(t) = &mut transfer {
            t.to = Some(to.into().tree(t.span));
        }
        RoundTransfer { transfer }
    }

    /// Sets the type on the wire. The plan is checked with its rounding.
    pub fn wire(self, wire: WireType) -> Self {
        let RoundTransfer { mut transfer } = self;
        if let Some(t) = &mut transfer {
            t.wire = Some(SpannedName { text: wire.name().into(), span: t.span });
        }
        RoundTransfer { transfer }
    }
}

impl BuilderRegion {
    fn text(&self) -> String {
        match self.index {
            None => self.buffer.clone(),
            Some((first, count, true)) => format!("{}[{first} ..+ {count}]", self.buffer),
            Some((from, to, false)) => format!("{}[{from}..{to}]", self.buffer),
        }
    }

    fn tree(self, span: Span) -> ast::RegionRef {
        let index = self.index.map(|(a, b, cyclic)| {
            let (from, end) = (number(a, span), number(b, span));
            let (by, take) = (None, None);
            match cyclic {
                true => RegionIndex::Cyclic { from, count: end, by, take },
                false => RegionIndex::Range { from, to: end, by, take },
            }
        });
        ast::RegionRef { buffer: SpannedName { text: self.buffer, span }, index, span }
    }
}

/// Adds a text that stands where a call stands, and returns its span.
fn piece(sources: &mut SourceMap, at: &Location<'_>, text: &str) -> Span {
    let indent = at.column().saturating_sub(1) as usize;
    let line = format!("{}{text}\n", " ".repeat(indent));
    let source = sources.add_piece(at.file(), line, at.line());
    Span::new(source, indent, indent + text.len())
}

fn number(value: u32, span: Span) -> ast::Expr {
    ast::Expr { kind: ExprKind::Int(value.into()), span }
}

fn binary(op: BinOp, a: ast::Expr, b: ast::Expr) -> ast::Expr {
    let span = a.span;
    ast::Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), span }
}
