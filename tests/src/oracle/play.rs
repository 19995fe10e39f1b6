//! Statements: what outside of rounds happens in order, and what a round gathers.

use roundelay_dsl::ast::{Algorithm, Each, Expr, Index, Rank, Region, Split, Stmt, Transfer, Use};

use super::collective::Kind;
use super::number::Datum;
use super::round::{Memory, Move};
use super::{Frame, Stop, axes_of, find, wrong};

/// All regions that statements name, of what they use too.
fn buffers<'a>(body: &'a [Stmt], found: &mut Vec<&'a str>) {
    for stmt in body {
        match stmt {
            Stmt::For(f) => buffers(&f.body, found),
            Stmt::If(i) => {
                buffers(&i.then, found);
                buffers(&i.otherwise, found);
            }
            Stmt::Each(e) => buffers(&e.body, found),
            Stmt::Transfer(t) => {
                found.push(&t.from.buffer.text);
                found.extend(t.to.as_ref().map(|r| r.buffer.text.as_str()));
            }
            Stmt::Use(u) => {
                found.extend(u.on.as_ref().map(|r| r.buffer.text.as_str()));
                found.extend(u.to.as_ref().map(|r| r.buffer.text.as_str()));
            }
            Stmt::Split(s) => buffers(&s.body, found),
            Stmt::Let(..) | Stmt::Ensure(_) => {}
        }
    }
}

/// Whether an algorithm uses `data`; one that names no buffer does.
pub(super) fn in_place(algorithm: &Algorithm) -> Result<bool, Stop> {
    let mut found = Vec::new();
    buffers(&algorithm.body, &mut found);
    let apart = found.iter().any(|b| *b == "input" || *b == "output");
    match (found.contains(&"data"), apart) {
        (true, true) => Err(wrong("both kinds of buffers")),
        (_, apart) => Ok(!apart),
    }
}

fn size(v: i64, why: &str) -> Result<usize, Stop> {
    usize::try_from(v).map_err(|_| wrong(why))
}

fn small(v: usize) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

/// How much finer `pieces` must be cut to give `parts` of the same length.
fn cut(pieces: usize, parts: usize) -> Result<usize, Stop> {
    let (mut a, mut b) = (pieces, parts);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == parts { Ok(pieces / parts) } else { Err(Stop::Finer(parts / a.max(1))) }
}

impl Frame<'_> {
    /// Plays an algorithm on a vector of so many pieces.
    pub(super) fn play(
        &mut self,
        memory: &mut Memory,
        root: Option<usize>,
        pieces: usize,
    ) -> Result<(), Stop> {
        let algorithm = self.algorithm;
        let kind = Kind::of(&algorithm.collective.text)?;
        let n = self.ranks.len();
        self.env = match self.axes.as_slice() {
            [(name, n)] => vec![(name.clone(), Datum::Int(*n))],
            _ => Vec::new(),
        };
        if kind.rooted() {
            let root = root.ok_or(Stop::Unsupported("a part without its root"))?;
            self.env.push(("root".to_string(), Datum::Int(small(root))));
        }
        for e in &algorithm.requires {
            if !self.truth(e)? {
                return Err(Stop::Unfit);
            }
        }
        for (key, e) in algorithm.schedule.iter().flat_map(|s| &s.entries) {
            // Copies side by side, each with a part of the data: as many times the messages.
            if key.text == "channels" && self.depth == 0 {
                memory.channels = u64::try_from(self.int(e)?).map_err(|_| wrong("channels"))?;
            }
        }
        // A sendrecv is between two ranks.
        if kind == Kind::SendRecv && n != 2 {
            return Err(Stop::Unfit);
        }
        self.blocks = if kind.blocked() { n } else { 1 };
        let chunks = match &algorithm.chunks {
            Some(e) => size(self.int(e)?, "RL0604 chunks")?,
            None => self.blocks,
        };
        if chunks == 0 || chunks % self.blocks != 0 {
            return Err(wrong("RL0604 chunks"));
        }
        self.unit = cut(pieces, chunks)?;
        for s in &algorithm.scratch {
            let count = size(self.int(&s.chunks)?, "scratch of less than nothing")?;
            let count = count.checked_mul(self.unit).ok_or_else(|| wrong("much scratch"))?;
            let places = memory.more(count)?;
            self.views.insert(s.name.text.clone(), places);
        }
        self.block(memory, &algorithm.body)
    }

    fn block(&mut self, memory: &mut Memory, body: &[Stmt]) -> Result<(), Stop> {
        let known = self.env.len();
        for stmt in body {
            memory.spend(1)?;
            match stmt {
                Stmt::Let(name, e) => {
                    let value = self.value(&self.env, e, 0)?;
                    self.env.push((name.text.clone(), value));
                }
                Stmt::For(f) => {
                    let at = self.env.len();
                    for v in self.int(&f.from)?..self.int(&f.to)? {
                        memory.spend(1)?;
                        self.env.push((f.var.text.clone(), Datum::Int(v)));
                        if f.filter.as_ref().map_or(Ok(true), |e| self.truth(e))? {
                            self.block(memory, &f.body)?;
                        }
                        self.env.truncate(at);
                    }
                }
                Stmt::If(i) => {
                    let arm = if self.truth(&i.cond)? { &i.then } else { &i.otherwise };
                    self.block(memory, arm)?;
                }
                Stmt::Each(e) => self.each(memory, e)?,
                Stmt::Transfer(t) => {
                    let m = self.transfer(t)?;
                    memory.round(&[m])?;
                }
                Stmt::Use(u) => self.part(memory, u)?,
                Stmt::Split(s) => self.split(memory, s)?,
                Stmt::Ensure(_) => return Err(wrong("a postcondition in an algorithm")),
            }
        }
        self.env.truncate(known);
        Ok(())
    }

    /// The coordinates of a rank, slowest first.
    fn coordinates(&self, mut rank: usize) -> Vec<i64> {
        let mut all = Vec::new();
        for (_, length) in self.axes.iter().rev() {
            let length = usize::try_from(*length).unwrap_or(1).max(1);
            all.insert(0, small(rank % length));
            rank /= length;
        }
        all
    }

    fn each(&mut self, memory: &mut Memory, each: &Each) -> Result<(), Stop> {
        let known = self.env.len();
        let mut moves = Vec::new();
        for rank in 0..self.ranks.len() {
            match each.vars.as_slice() {
                [name] => self.env.push((name.text.clone(), Datum::Int(small(rank)))),
                names => {
                    let all = self.coordinates(rank).into_iter().zip(names);
                    self.env.extend(all.map(|(c, name)| (name.text.clone(), Datum::Int(c))));
                }
            }
            if each.filter.as_ref().map_or(Ok(true), |e| self.truth(e))? {
                self.gather(memory, &each.body, &mut moves)?;
            }
            self.env.truncate(known);
        }
        memory.round(&moves)
    }

    /// The transfers of one rank in a round.
    fn gather(
        &mut self,
        memory: &mut Memory,
        body: &[Stmt],
        moves: &mut Vec<Move>,
    ) -> Result<(), Stop> {
        let known = self.env.len();
        for stmt in body {
            memory.spend(1)?;
            match stmt {
                Stmt::Let(name, e) => {
                    let value = self.value(&self.env, e, 0)?;
                    self.env.push((name.text.clone(), value));
                }
                Stmt::For(f) => {
                    let at = self.env.len();
                    for v in self.int(&f.from)?..self.int(&f.to)? {
                        memory.spend(1)?;
                        self.env.push((f.var.text.clone(), Datum::Int(v)));
                        if f.filter.as_ref().map_or(Ok(true), |e| self.truth(e))? {
                            self.gather(memory, &f.body, moves)?;
                        }
                        self.env.truncate(at);
                    }
                }
                Stmt::If(i) => {
                    let arm = if self.truth(&i.cond)? { &i.then } else { &i.otherwise };
                    self.gather(memory, arm, moves)?;
                }
                Stmt::Transfer(t) => moves.push(self.transfer(t)?),
                _ => return Err(wrong("no statement of a round")),
            }
        }
        self.env.truncate(known);
        Ok(())
    }

    fn rank(&self, rank: &Rank) -> Result<usize, Stop> {
        let none = || wrong("RL0402 no rank");
        let local = match rank {
            Rank::One(e) => usize::try_from(self.int(e)?).map_err(|_| none())?,
            Rank::Tuple(all, _) => {
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

    fn transfer(&self, t: &Transfer) -> Result<Move, Stop> {
        Ok(Move {
            src: self.rank(&t.src)?,
            dst: self.rank(&t.dst)?,
            op: t.op,
            from: self.region(&t.from)?,
            to: self.region(t.to.as_ref().unwrap_or(&t.from))?,
            rounded: t.wire.is_some(),
        })
    }

    fn or_one(&self, e: &Option<Expr>) -> Result<i64, Stop> {
        let v = e.as_ref().map_or(Ok(1), |e| self.int(e))?;
        if v < 1 { Err(wrong("RL0409 a stride or block of nothing")) } else { Ok(v) }
    }

    /// The places of a region, in its order.
    fn region(&self, region: &Region) -> Result<Vec<usize>, Stop> {
        let view = self.views.get(&region.buffer.text);
        let view = view.ok_or(Stop::Unsupported("a buffer that the part does not have"))?;
        let Some(index) = &region.index else { return Ok(view.clone()) };
        let length = small(view.len() / self.unit.max(1));
        let mut chunks: Vec<i64> = Vec::new();
        let outside = || wrong("RL0401 no chunk");
        match index {
            Index::At(e) => chunks.push(self.int(e)?),
            Index::Range { from, to, by, take } => {
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
            Index::Cyclic { from, count, by, take } => {
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

    /// A part for each value; in it `data` is a part of every block.
    fn split(&mut self, memory: &mut Memory, split: &Split) -> Result<(), Stop> {
        let (Some((from, to)), None) = (&split.range, &split.by) else {
            return Err(Stop::Unsupported("splits in paths or by weight"));
        };
        let (from, to) = (self.int(from)?, self.int(to)?);
        if self.algorithm.collective.text == "barrier" {
            return Err(Stop::Unsupported("parts of a barrier"));
        }
        let whole = self.views.clone();
        let data = whole.get("data").ok_or(Stop::Unsupported("splits of other buffers"))?;
        let parts = size(to.saturating_sub(from), "no parts")?;
        if parts == 0 {
            return Ok(());
        }
        let (unit, known) = (self.unit, self.env.len());
        let block = data.len() / self.blocks;
        let (short, of) = (cut(block, parts)?, data.len() / unit.max(1));
        for (i, value) in (from..to).enumerate() {
            let part: Vec<usize> =
                data.chunks(block).flat_map(|b| b[i * short..(i + 1) * short].to_vec()).collect();
            self.unit = cut(part.len(), of)?;
            self.views = [("data".to_string(), part)].into();
            self.env.push((split.var.text.clone(), Datum::Int(value)));
            self.block(memory, &split.body)?;
            self.env.truncate(known);
        }
        (self.unit, self.views) = (unit, whole);
        Ok(())
    }

    /// Another algorithm, in every group one after the other: groups share nothing.
    fn part(&mut self, memory: &mut Memory, part: &Use) -> Result<(), Stop> {
        if part.via.is_some() || self.depth > 8 {
            return Err(Stop::Unsupported("paths and deep uses"));
        }
        let collective = part.collective.as_ref().unwrap_or(&self.algorithm.collective);
        let (of, name) = (collective.text.as_str(), part.name.text.as_str());
        let (file, algorithm) = match find(self.file, name, Some(of)) {
            Some(algorithm) => (self.file, algorithm),
            None => {
                let file = self.shelves.files.get(&(of.to_string(), name.to_string()));
                let file = file.ok_or(Stop::Unsupported("algorithms that it does not find"))?;
                (file, find(file, name, Some(of)).ok_or(Stop::Unsupported("no such algorithm"))?)
            }
        };
        if !in_place(algorithm)? || part.to.is_some() {
            return Err(Stop::Unsupported("parts with two buffers"));
        }
        let known = self.env.len();
        for (shape, ranks, fixed) in self.groups(part)? {
            self.env.extend(fixed);
            let data = match &part.on {
                Some(region) => self.region(region)?,
                None => {
                    let all = self.views.get("data").cloned();
                    all.ok_or(Stop::Unsupported("parts without a buffer"))?
                }
            };
            let root = part.root.as_ref().map(|e| self.int(e)).transpose()?;
            let root = root.map(|r| size(r, "RL0605 no root")).transpose()?;
            if root.is_some_and(|r| r >= ranks.len()) {
                return Err(wrong("RL0605 no root"));
            }
            self.env.truncate(known);
            if data.is_empty() {
                continue;
            }
            let pieces = data.len();
            let mut frame = Frame {
                file,
                algorithm,
                shelves: self.shelves,
                axes: axes_of(&algorithm.axes, &shape)?,
                ranks,
                views: [("data".to_string(), data)].into(),
                unit: 0,
                blocks: 1,
                env: Vec::new(),
                depth: self.depth + 1,
            };
            frame.play(memory, root, pieces)?;
        }
        Ok(())
    }

    /// The groups along an axis: their shape, their ranks, and the coordinates that are fixed.
    #[allow(clippy::type_complexity, reason = "it is used once")]
    fn groups(
        &self,
        part: &Use,
    ) -> Result<Vec<(Vec<usize>, Vec<usize>, Vec<(String, Datum)>)>, Stop> {
        let Some(over) = &part.over else {
            let shape = match self.algorithm.axes {
                roundelay_dsl::ast::Axes::Flat(_) => vec![self.ranks.len()],
                roundelay_dsl::ast::Axes::Grid(..) => {
                    return Err(Stop::Unsupported("parts on a whole grid"));
                }
            };
            return Ok(vec![(shape, self.ranks.clone(), Vec::new())]);
        };
        let axis = self.axes.iter().position(|(n, _)| *n == over.text);
        let axis = axis.ok_or(Stop::Unsupported("groups along no axis"))?;
        let mut groups = std::collections::BTreeMap::<Vec<i64>, Vec<usize>>::new();
        for (local, rank) in self.ranks.iter().enumerate() {
            let mut fixed = self.coordinates(local);
            fixed.remove(axis);
            groups.entry(fixed).or_default().push(*rank);
        }
        let others: Vec<&String> =
            self.axes.iter().map(|a| &a.0).filter(|n| **n != over.text).collect();
        let named = |fixed: Vec<i64>| {
            others.iter().zip(fixed).map(|(n, c)| ((*n).clone(), Datum::Int(c))).collect()
        };
        Ok(groups.into_iter().map(|(f, ranks)| (vec![ranks.len()], ranks, named(f))).collect())
    }
}
