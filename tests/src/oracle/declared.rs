//! Evaluates what declared collectives ask for: their postconditions, one after the other.

use roundelay_dsl::ast::{CollectiveDecl, EnsureClause, SourceFile, Stmt};

use super::collective::OracleKind;
use super::files::EvaluationScope;
use super::number::{NameScope, OracleValue};
use super::statements::size;
use super::{EarlyStop, RunFrame, axes_of, wrong};

/// The contributions that a place must hold, as ranks and chunks of their inputs, ascending; `None` where
/// nothing is asked for.
pub type Asked = Option<Vec<(usize, usize)>>;

/// A declared collective at one shape, in the chunks of its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTask {
    /// Chunks of every rank's input.
    pub input: usize,
    /// Chunks of every rank's output.
    pub output: usize,
    /// The contributions that it asks for, by rank and chunk of the output.
    pub asked: Vec<Vec<Asked>>,
    /// True if it has sums.
    pub sums: bool,
}

impl DeclaredTask {
    /// Returns the number of its blocks: a chunk of the declaration each.
    pub(super) fn blocks(&self) -> usize {
        self.input.max(self.output).max(1)
    }

    /// Evaluates all that it asks for at a shape.
    pub(super) fn at<'a>(
        world: &'a EvaluationScope<'a>,
        (file, of): (&'a SourceFile, &'a CollectiveDecl),
        shape: &[usize],
    ) -> Result<DeclaredTask, EarlyStop> {
        let n = shape.iter().product();
        let axes = axes_of(&of.axes, shape)?;
        let mut frame =
            RunFrame::new(world, &of.name.text, OracleKind::Declared, NameScope::new(file), axes);
        frame.ranks = (0..n).collect();
        frame.unit = 1;
        frame.name_size();
        let count = |e: &Option<_>| match e {
            Some(e) => size(frame.int(e)?, "RL0604 chunks of a declared collective"),
            None => Ok(1),
        };
        let (input, output) = (count(&of.input)?, count(&of.output)?);
        world.spend(u64::try_from(input.saturating_add(output)).unwrap_or(u64::MAX))?;
        let asked = vec![vec![None; output]; n];
        let mut found = DeclaredTask { input, output, asked, sums: sums(&of.body) };
        let view = |name: &str, chunks| (name.to_string(), (0..chunks).collect());
        frame.views = [view("input", found.input), view("output", found.output)].into();
        frame.walk(&of.body, &mut |frame, stmt| match stmt {
            Stmt::Each(each) => frame.ranks_of(each, &mut |frame, rank, stmt| match stmt {
                Stmt::Ensure(ensure) => frame.ensure(ensure, &mut found.asked[rank]),
                _ => Err(wrong("no statement of a postcondition")),
            }),
            _ => Err(wrong("no statement of a collective")),
        })?;
        Ok(found)
    }
}

fn sums(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        Stmt::For(f) => sums(&f.body),
        Stmt::If(i) => sums(&i.then) || sums(&i.otherwise),
        Stmt::Each(e) => sums(&e.body),
        Stmt::Ensure(e) => e.reduce.is_some(),
        _ => false,
    })
}

impl RunFrame<'_> {
    /// Evaluates one postcondition of one rank.
    fn ensure(&mut self, ensure: &EnsureClause, asked: &mut [Asked]) -> Result<(), EarlyStop> {
        let targets = self.region(&ensure.target)?;
        let mut all: Vec<Vec<(usize, usize)>> = vec![Vec::new(); targets.len()];
        let known = self.env.len();
        let (from, to) = match &ensure.reduce {
            Some(sum) => (self.int(&sum.from)?, self.int(&sum.to)?),
            None => (0, 1),
        };
        for value in from..to {
            self.world.spend(1)?;
            if let Some(sum) = &ensure.reduce {
                self.env.push(&sum.var.text, OracleValue::Int(value));
                if !self.passes(&sum.filter)? {
                    self.env.truncate(known);
                    continue;
                }
            }
            let (rank, sources) = (self.rank(&ensure.at)?, self.region(&ensure.source)?);
            if sources.len() != targets.len() {
                return Err(wrong("RL0406 regions of different lengths"));
            }
            for (all, source) in all.iter_mut().zip(sources) {
                all.push((rank, source));
            }
            self.env.truncate(known);
        }
        for (target, mut all) in targets.into_iter().zip(all) {
            all.sort_unstable();
            if all.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(wrong("RL0502 a contribution is asked for twice"));
            }
            if !all.is_empty() && asked[target].replace(all).is_some() {
                return Err(wrong("RL0505 a place has two postconditions"));
            }
        }
        Ok(())
    }
}
