//! Runs parts: splits of the vector, and other algorithms that are used.

use std::collections::BTreeMap;

use roundelay_dsl::ast::{AlgorithmDecl, AxesClause, RegionRef, SourceFile, SplitStmt, UseStmt};

use super::collective::OracleKind;
use super::number::OracleValue;
use super::round::OracleMemory;
use super::statements::{cut, size};
use super::{EarlyStop, RunFrame, wrong};

/// A group of ranks that runs an algorithm: its shape, its ranks, and the coordinates that are fixed.
struct RankGroup {
    shape: Vec<usize>,
    ranks: Vec<usize>,
    fixed: Vec<(String, i64)>,
}

impl<'a> RunFrame<'a> {
    /// Runs a part for each value; in it each buffer is a part of every block, and scratch is the part's own.
    pub(super) fn split(
        &mut self,
        memory: &mut OracleMemory,
        algorithm: &'a AlgorithmDecl,
        split: &'a SplitStmt,
    ) -> Result<(), EarlyStop> {
        if self.kind == OracleKind::Barrier {
            return Err(EarlyStop::Unsupported("parts of a barrier"));
        }
        let (from, to) = match &split.range {
            Some((from, to)) => (self.int(from)?, self.int(to)?),
            // Parts by bandwidth may have any lengths: the same ones, here.
            None => (0, i64::try_from(self.world.paths).unwrap_or(0)),
        };
        let parts = size(to.saturating_sub(from), "RL0604 no parts")?;
        if parts == 0 {
            return Err(wrong("RL0604 no parts"));
        }
        let (views, unit, block, known) =
            (self.views.clone(), self.unit, self.block, self.env.len());
        let (part_unit, part_block) = (cut(unit, parts)?, cut(block, parts)?);
        for (i, value) in (from..to).enumerate() {
            (self.unit, self.block) = (part_unit, part_block);
            let at = i * part_block..(i + 1) * part_block;
            let part = |view: &Vec<usize>| -> Vec<usize> {
                view.chunks(block).flat_map(|b| b[at.clone()].to_vec()).collect()
            };
            let seen = ["data", "input", "output"].into_iter();
            self.views =
                seen.filter_map(|name| Some((name.to_string(), part(views.get(name)?)))).collect();
            self.scratch(memory, algorithm)?;
            self.env.push(&split.var.text, OracleValue::Int(value));
            self.block(memory, algorithm, &split.body)?;
            self.env.truncate(known);
        }
        (self.views, self.unit, self.block) = (views, unit, block);
        Ok(())
    }

    /// Runs another algorithm, in every group one after the other: groups share nothing.
    pub(super) fn part(
        &mut self,
        memory: &mut OracleMemory,
        part: &'a UseStmt,
    ) -> Result<(), EarlyStop> {
        if self.depth > 8 {
            return Err(EarlyStop::Unsupported("deep uses"));
        }
        let of = part.collective.as_ref().map_or(self.collective, |c| c.text.as_str());
        let (file, algorithm) = self.world.algorithm(self.env.file, of, &part.name.text)?;
        if OracleKind::of(&algorithm.collective.text) == OracleKind::Declared {
            return Err(wrong("RL0208 a part that is of a declared collective"));
        }
        let mut arguments = Vec::new();
        for (name, e) in &part.arguments {
            arguments.push((name.text.clone(), self.value(&self.env, e, 0)?));
        }
        let known = self.env.len();
        for group in self.groups(part, algorithm)? {
            for (name, c) in &group.fixed {
                self.env.push(name, OracleValue::Int(*c));
            }
            let views = self.handed(part, (file, algorithm))?;
            self.env.truncate(known);
            let root = match (&part.root, self.root) {
                (Some(e), _) => size(self.int(e)?, "RL0605 no root")?,
                (None, Some(root)) if part.over.is_none() => root,
                (None, _) => 0,
            };
            if root >= group.ranks.len() {
                return Err(wrong("RL0605 no root"));
            }
            let path = part.via.as_ref().map(|e| self.int(e)).transpose()?;
            if path.is_some_and(|p| usize::try_from(p).map_or(true, |p| p >= self.world.paths)) {
                return Err(wrong("RL0606 no path"));
            }
            let (shape, ranks) = (group.shape, group.ranks);
            let mut frame = RunFrame::of(self.world, file, algorithm, &shape, ranks)?;
            frame.depth = self.depth + 1;
            frame.enter(algorithm, root, &arguments)?;
            if views.values().all(Vec::is_empty) {
                continue;
            }
            let blocks = frame.kind.blocks(frame.ranks.len(), None);
            let pieces = whole(&views, frame.kind, blocks)?;
            frame.views = views;
            frame.run(memory, algorithm, pieces, blocks)?;
        }
        Ok(())
    }

    /// Returns the buffers of an algorithm that is used.
    fn handed(
        &self,
        part: &UseStmt,
        used: (&'a SourceFile, &'a AlgorithmDecl),
    ) -> Result<BTreeMap<String, Vec<usize>>, EarlyStop> {
        let region = |of: Option<&RegionRef>, name: &str| match (of, self.views.get(name)) {
            (Some(region), _) => self.region(region),
            (None, Some(all)) => Ok(all.clone()),
            (None, None) => Err(wrong("RL0211 both kinds of buffers")),
        };
        if self.world.in_place(used)? {
            if part.to.is_some() {
                return Err(EarlyStop::Unsupported("two regions for one buffer"));
            }
            return Ok([("data".to_string(), region(part.on.as_ref(), "data")?)].into());
        }
        let input = region(part.on.as_ref(), "input")?;
        let output = region(part.to.as_ref().or(part.on.as_ref()), "output")?;
        Ok([("input".to_string(), input), ("output".to_string(), output)].into())
    }

    /// Returns the groups along an axis, or all ranks.
    fn groups(&self, part: &UseStmt, used: &AlgorithmDecl) -> Result<Vec<RankGroup>, EarlyStop> {
        let Some(over) = &part.over else {
            let lengths = self.axes.iter().map(|a| usize::try_from(a.1).unwrap_or(0));
            let shape = match used.axes {
                AxesClause::Flat(_) => vec![self.ranks.len()],
                AxesClause::Grid(..) => lengths.collect(),
            };
            return Ok(vec![RankGroup { shape, ranks: self.ranks.clone(), fixed: Vec::new() }]);
        };
        let axis = self.axes.iter().position(|(n, _)| *n == over.text);
        let axis = axis.ok_or(EarlyStop::Unsupported("groups along no axis"))?;
        let mut groups = BTreeMap::<Vec<i64>, Vec<usize>>::new();
        for (local, rank) in self.ranks.iter().enumerate() {
            let mut fixed = self.coordinates(local);
            fixed.remove(axis);
            groups.entry(fixed).or_default().push(*rank);
        }
        let others = self.axes.iter().map(|a| a.0.clone()).filter(|n| *n != over.text);
        let others: Vec<String> = others.collect();
        let group = |(fixed, ranks): (Vec<i64>, Vec<usize>)| RankGroup {
            shape: vec![ranks.len()],
            ranks,
            fixed: others.iter().cloned().zip(fixed).collect(),
        };
        Ok(groups.into_iter().map(group).collect())
    }
}

/// Returns the number of pieces of the whole vector, of `blocks` blocks, whose buffers these are.
fn whole(
    views: &BTreeMap<String, Vec<usize>>,
    kind: OracleKind,
    blocks: usize,
) -> Result<usize, EarlyStop> {
    let len = |name: &str| views.get(name).map_or(0, Vec::len);
    if views.contains_key("data") {
        return Ok(len("data"));
    }
    let (input, output) = match kind {
        OracleKind::AllGather | OracleKind::Gather => (1, blocks),
        OracleKind::ReduceScatter | OracleKind::Scatter => (blocks, 1),
        _ => (blocks, blocks),
    };
    let block = cut(len("input"), input)?;
    if block != cut(len("output"), output)? {
        return Err(wrong("RL0406 regions of different lengths"));
    }
    Ok(block * blocks)
}
