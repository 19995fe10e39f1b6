//! Runs statements: what outside of rounds happens in order, and what a round gathers.

use roundelay_dsl::ast::{
    AlgorithmDecl, EachStmt, Expr, RankRef, RegionIndex, RegionRef, SourceFile, Stmt, TransferStmt,
};

use super::collective::OracleKind;
use super::files::EvaluationScope;
use super::number::{NameScope, OracleValue};
use super::round::{OracleMemory, RoundMove};
use super::{EarlyStop, RunFrame, axes_of, wrong};

impl<'a> EvaluationScope<'a> {
    /// Finds all buffers that statements of a file name, those of parts that are given none too.
    fn buffers(
        &self,
        file: &'a SourceFile,
        of: &'a AlgorithmDecl,
        body: &'a [Stmt],
        found: &mut Vec<&'a str>,
    ) -> Result<(), EarlyStop> {
        self.spend(1)?;
        for stmt in body {
            match stmt {
                Stmt::For(f) => self.buffers(file, of, &f.body, found)?,
                Stmt::If(i) => {
                    self.buffers(file, of, &i.then, found)?;
                    self.buffers(file, of, &i.otherwise, found)?;
                }
                Stmt::Each(e) => self.buffers(file, of, &e.body, found)?,
                Stmt::Transfer(t) => {
                    found.push(&t.from.buffer.text);
                    found.extend(t.to.as_ref().map(|r| r.buffer.text.as_str()));
                }
                Stmt::Use(u) => {
                    found.extend(u.on.as_ref().map(|r| r.buffer.text.as_str()));
                    found.extend(u.to.as_ref().map(|r| r.buffer.text.as_str()));
                    let collective = u.collective.as_ref().unwrap_or(&of.collective);
                    if u.on.is_none() {
                        let used = self.algorithm(file, &collective.text, &u.name.text)?;
                        found.push(if self.in_place(used)? { "data" } else { "input" });
                    }
                }
                Stmt::Split(s) => self.buffers(file, of, &s.body, found)?,
                Stmt::Let(..) | Stmt::Ensure(_) => {}
            }
        }
        Ok(())
    }

    /// Returns true if an algorithm of a file uses `data`; one that names no buffer does, but of a declared
    /// collective.
    pub(super) fn in_place(
        &self,
        (file, algorithm): (&'a SourceFile, &'a AlgorithmDecl),
    ) -> Result<bool, EarlyStop> {
        let mut found = Vec::new();
        self.buffers(file, algorithm, &algorithm.body, &mut found)?;
        let apart = found.iter().any(|b| *b == "input" || *b == "output");
        match (found.contains(&"data"), apart) {
            (true, true) => Err(wrong("RL0211 both kinds of buffers")),
            (_, apart) => {
                Ok(!apart && OracleKind::of(&algorithm.collective.text) != OracleKind::Declared)
            }
        }
    }
}

pub(super) fn size(v: i64, why: &str) -> Result<usize, EarlyStop> {
    usize::try_from(v).map_err(|_| wrong(why))
}

pub(super) fn small(v: usize) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

/// Cuts `pieces` into `parts` of equal length; the error says how much finer the pieces must be for that.
pub(super) fn cut(pieces: usize, parts: usize) -> Result<usize, EarlyStop> {
    let (mut a, mut b) = (pieces, parts);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == parts { Ok(pieces / parts) } else { Err(EarlyStop::Finer(parts / a.max(1))) }
}

impl<'a> RunFrame<'a> {
    /// Returns an algorithm of a file, with nothing to run on yet.
    pub(super) fn of(
        world: &'a EvaluationScope<'a>,
        file: &'a SourceFile,
        algorithm: &'a AlgorithmDecl,
        shape: &[usize],
        ranks: Vec<usize>,
    ) -> Result<RunFrame<'a>, EarlyStop> {
        let collective = algorithm.collective.text.as_str();
        let axes = axes_of(&algorithm.axes, shape)?;
        let frame = RunFrame::new(
            world,
            collective,
            OracleKind::of(collective),
            NameScope::new(file),
            axes,
        );
        Ok(RunFrame { ranks, ..frame })
    }

    /// Names the number of ranks, where there is one axis.
    pub(super) fn name_size(&mut self) {
        if let [(name, n)] = self.axes.as_slice() {
            self.env.push(name, OracleValue::Int(*n));
        }
    }

    /// Names what every statement sees, and asks whether the ranks fit.
    pub(super) fn enter(
        &mut self,
        algorithm: &AlgorithmDecl,
        root: usize,
        arguments: &[(String, OracleValue)],
    ) -> Result<(), EarlyStop> {
        self.name_size();
        if self.kind.rooted() {
            self.root = Some(root);
            self.env.push("root", OracleValue::Int(small(root)));
        }
        self.bind(algorithm, arguments)?;
        for e in &algorithm.requires {
            if !self.truth(e)? {
                return Err(EarlyStop::Unfit);
            }
        }
        // A sendrecv is between two ranks.
        if self.kind == OracleKind::SendRecv && self.ranks.len() != 2 {
            return Err(EarlyStop::Unfit);
        }
        Ok(())
    }

    /// Gives the parameters their values, and then the `let`s of the clauses.
    fn bind(
        &mut self,
        algorithm: &AlgorithmDecl,
        arguments: &[(String, OracleValue)],
    ) -> Result<(), EarlyStop> {
        for p in &algorithm.parameters {
            let constants = NameScope::new(self.env.file);
            let default = self.value(&constants, &p.default, 0)?;
            let given = arguments.iter().find(|(name, _)| *name == p.name.text).map(|(_, v)| *v);
            let value = given.unwrap_or(default);
            if let (Some((least, most)), OracleValue::Int(v)) = (&p.bounds, value) {
                let bound = |e| match self.value(&constants, e, 0)? {
                    OracleValue::Int(v) => Ok(v),
                    OracleValue::Truth(_) => Err(wrong("RL0206 a bound that is no number")),
                };
                if v < bound(least)? || v > bound(most)? {
                    return Err(wrong("RL0215 out of the bounds"));
                }
            }
            self.env.push(&p.name.text, value);
        }
        for (name, e) in &algorithm.lets {
            let value = self.value(&self.env, e, 0)?;
            self.env.push(&name.text, value);
        }
        Ok(())
    }

    /// Runs an algorithm on a vector of a number of pieces and blocks.
    pub(super) fn run(
        &mut self,
        memory: &mut OracleMemory,
        algorithm: &'a AlgorithmDecl,
        pieces: usize,
        blocks: usize,
    ) -> Result<(), EarlyStop> {
        for (key, e) in algorithm.schedule.iter().flat_map(|s| &s.entries) {
            // Copies side by side, each with a part of the data: as many times the messages.
            if key.text == "channels" && self.depth == 0 {
                let channels = u64::try_from(self.int(e)?).ok().filter(|c| (1..=64).contains(c));
                memory.channels = channels.ok_or_else(|| wrong("RL0209 channels"))?;
            }
        }
        let chunks = match &algorithm.chunks {
            Some(_) if self.kind == OracleKind::Declared => {
                return Err(EarlyStop::Unsupported("chunks of a declared collective"));
            }
            Some(e) => size(self.int(e)?, "RL0604 chunks")?,
            None => blocks,
        };
        if chunks == 0 || chunks % blocks != 0 {
            return Err(wrong("RL0604 chunks"));
        }
        self.unit = cut(pieces, chunks)?;
        self.block = pieces / blocks;
        self.scratch(memory, algorithm)?;
        self.block(memory, algorithm, &algorithm.body)
    }

    /// Makes scratch that holds nothing yet.
    pub(super) fn scratch(
        &mut self,
        memory: &mut OracleMemory,
        algorithm: &AlgorithmDecl,
    ) -> Result<(), EarlyStop> {
        for s in &algorithm.scratch {
            let count = size(self.int(&s.chunks)?, "scratch of less than nothing")?;
            let count = count.checked_mul(self.unit).ok_or_else(|| wrong("much scratch"))?;
            self.world.spend(u64::try_from(count).unwrap_or(u64::MAX))?;
            self.views.insert(s.name.text.clone(), memory.more(count));
        }
        Ok(())
    }

    /// Statements outside of rounds.
    pub(super) fn block(
        &mut self,
        memory: &mut OracleMemory,
        algorithm: &'a AlgorithmDecl,
        body: &'a [Stmt],
    ) -> Result<(), EarlyStop> {
        self.walk(body, &mut |frame, stmt| match stmt {
            Stmt::Each(each) => {
                let mut moves = Vec::new();
                frame.ranks_of(each, &mut |frame, _, stmt| match stmt {
                    Stmt::Transfer(t) => {
                        moves.push(frame.transfer(t)?);
                        Ok(())
                    }
                    _ => Err(wrong("no statement of a round")),
                })?;
                memory.round(&moves)
            }
            Stmt::Transfer(t) => memory.round(&[frame.transfer(t)?]),
            Stmt::Use(u) => frame.part(memory, u),
            Stmt::Split(s) => frame.split(memory, algorithm, s),
            _ => Err(wrong("a postcondition in an algorithm")),
        })
    }

    /// Follows `let`, `for` and `if`, and hands over every other statement that it comes to.
    pub(super) fn walk(
        &mut self,
        body: &'a [Stmt],
        act: &mut dyn FnMut(&mut Self, &'a Stmt) -> Result<(), EarlyStop>,
    ) -> Result<(), EarlyStop> {
        let known = self.env.len();
        for stmt in body {
            self.world.spend(1)?;
            match stmt {
                Stmt::Let(name, e) => {
                    let value = self.value(&self.env, e, 0)?;
                    self.env.push(&name.text, value);
                }
                Stmt::For(f) => {
                    let at = self.env.len();
                    for v in self.int(&f.from)?..self.int(&f.to)? {
                        self.world.spend(1)?;
                        self.env.push(&f.var.text, OracleValue::Int(v));
                        if self.passes(&f.filter)? {
                            self.walk(&f.body, act)?;
                        }
                        self.env.truncate(at);
                    }
                }
                Stmt::If(i) => {
                    let arm = if self.truth(&i.cond)? { &i.then } else { &i.otherwise };
                    self.walk(arm, act)?;
                }
                other => act(self, other)?,
            }
        }
        self.env.truncate(known);
        Ok(())
    }

    /// Walks what an `each` says of each of its ranks.
    pub(super) fn ranks_of(
        &mut self,
        each: &'a EachStmt,
        act: &mut dyn FnMut(&mut Self, usize, &'a Stmt) -> Result<(), EarlyStop>,
    ) -> Result<(), EarlyStop> {
        let known = self.env.len();
        for rank in 0..self.ranks.len() {
            match each.vars.as_slice() {
                [name] => self.env.push(&name.text, OracleValue::Int(small(rank))),
                names => {
                    for (c, name) in self.coordinates(rank).into_iter().zip(names) {
                        self.env.push(&name.text, OracleValue::Int(c));
                    }
                }
            }
            if self.axes.len() > 1 {
                let names = self.axes.iter().map(|(name, _)| name.clone());
                self.env.coordinates = names.zip(self.coordinates(rank)).collect();
            }
            if self.passes(&each.filter)? {
                self.walk(&each.body, &mut |frame, stmt| act(frame, rank, stmt))?;
            }
            self.env.truncate(known);
        }
        self.env.coordinates.clear();
        Ok(())
    }

    /// Returns true if there is no `where`, or if it holds.
    pub(super) fn passes(&self, filter: &Option<Expr>) -> Result<bool, EarlyStop> {
        filter.as_ref().map_or(Ok(true), |e| self.truth(e))
    }

    /// Returns the coordinates of a rank, slowest first.
    pub(super) fn coordinates(&self, mut rank: usize) -> Vec<i64> {
        let mut all = Vec::new();
        for (_, length) in self.axes.iter().rev() {
            let length = usize::try_from(*length).unwrap_or(1).max(1);
            all.insert(0, small(rank % length));
            rank /= length;
        }
        all
    }

    pub(super) fn rank(&self, rank: &RankRef) -> Result<usize, EarlyStop> {
        let none = || wrong("RL0402 no rank");
        let local = match rank {
            RankRef::One(e) => usize::try_from(self.int(e)?).map_err(|_| none())?,
            RankRef::Tuple(all, _) => {
                let mut linear = 0;
                for (e, (_, length)) in all.iter().zip(&self.axes) {
                    let c = self.int(e)?;
                    if !(0..*length).contains(&c) {
                        return Err(none());
                    }
                    linear = linear * length + c;
                }
                size(linear, "RL0402")?
            }
        };
        self.ranks.get(local).copied().ok_or_else(none)
    }

    fn transfer(&self, t: &TransferStmt) -> Result<RoundMove, EarlyStop> {
        let from = self.region(&t.from)?;
        self.world.spend(1 + u64::try_from(from.len()).unwrap_or(u64::MAX))?;
        Ok(RoundMove {
            src: self.rank(&t.src)?,
            dst: self.rank(&t.dst)?,
            op: t.op,
            from,
            to: self.region(t.to.as_ref().unwrap_or(&t.from))?,
            rounded: t.wire.is_some(),
        })
    }

    fn or_one(&self, e: &Option<Expr>) -> Result<i64, EarlyStop> {
        let v = e.as_ref().map_or(Ok(1), |e| self.int(e))?;
        if v < 1 { Err(wrong("RL0409 a stride or block of nothing")) } else { Ok(v) }
    }

    /// Returns the places of a region, in its order.
    pub(super) fn region(&self, region: &RegionRef) -> Result<Vec<usize>, EarlyStop> {
        let view = self.views.get(&region.buffer.text);
        let view = view.ok_or(EarlyStop::Unsupported("a buffer that the part does not have"))?;
        let Some(index) = &region.index else { return Ok(view.clone()) };
        let length = small(view.len() / self.unit.max(1));
        let mut chunks: Vec<i64> = Vec::new();
        let outside = || wrong("RL0401 no chunk");
        match index {
            RegionIndex::At(e) => chunks.push(self.int(e)?),
            RegionIndex::Range { from, to, by, take } => {
                let (from, to) = (self.int(from)?, self.int(to)?);
                let take = self.or_one(take)?;
                let by = by.as_ref().map_or(Ok(1), |_| self.or_one(by))?;
                if from < to && (from < 0 || to > length) {
                    return Err(outside());
                }
                let mut block = from;
                while block < to {
                    chunks.extend(block..to.min(block.saturating_add(take)));
                    block = block.saturating_add(by);
                }
            }
            RegionIndex::Cyclic { from, count, by, take } => {
                let (from, count) = (self.int(from)?, self.int(count)?);
                let (by, take) = (self.or_one(by)?, self.or_one(take)?);
                if count > 0 && !(0..length).contains(&from) {
                    return Err(outside());
                }
                if count > length {
                    return Err(wrong("RL0405 a chunk twice"));
                }
                for i in 0..count {
                    let at = i128::from(from) + i128::from(i / take) * i128::from(by);
                    let at = (at + i128::from(i % take)) % i128::from(length);
                    chunks.push(i64::try_from(at).map_err(|_| outside())?);
                }
            }
        }
        let mut once = chunks.clone();
        once.sort_unstable();
        once.dedup();
        if once.len() != chunks.len() {
            return Err(wrong("RL0405 a chunk twice"));
        }
        let mut places = Vec::new();
        for chunk in chunks {
            let first = usize::try_from(chunk).ok().filter(|_| chunk < length);
            let first = first.ok_or_else(outside)? * self.unit;
            places.extend_from_slice(&view[first..first + self.unit]);
        }
        Ok(places)
    }
}
