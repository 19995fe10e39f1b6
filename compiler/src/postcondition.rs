//! A second and plain reading of the postconditions of a declared collective, for one rank.
//!
//! This is what runs, and the oracle, compare with. It shares nothing with the table that the proofs
//! use (`instance/custom.rs`) but the values of expressions, so that a fault of one of the two shows.
//! It lists every contribution by itself, and gives no answer where the postconditions have no meaning.

use std::num::TryFromIntError;

use crate::eval::{ArithmeticError, eval};
use crate::program::{ChunkIndex, CustomCollective, EnsureClause, RuleBinder, SlotExpr};

/// The contributions that one chunk of a rank's output must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredContent {
    /// Chunk of the output.
    pub output: u32,
    /// The contributions that are summed, or the one that is copied: ranks with chunks of their input.
    pub of: Vec<(u32, u32)>,
}

/// The reason for which postconditions have no meaning at a shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostconditionError {
    /// An expression has no value.
    #[error(transparent)]
    Arithmetic(#[from] ArithmeticError),
    /// The shape has fewer axes than the declaration.
    #[error("the grid has fewer axes")]
    FewerAxes,
    /// A number of chunks that there cannot be.
    #[error(transparent)]
    Size(#[from] TryFromIntError),
    /// Two postconditions for one chunk.
    #[error("rank {rank}'s output[{chunk}] is asked for twice")]
    Twice {
        /// The rank.
        rank: u32,
        /// The chunk of its output.
        chunk: u32,
    },
    /// A contribution that is in a sum twice.
    #[error("rank {rank}'s chunk {chunk} is counted twice")]
    CountedTwice {
        /// The rank.
        rank: u32,
        /// The chunk of its input.
        chunk: u32,
    },
    /// The two sides have different numbers of chunks.
    #[error("regions of different length")]
    Lengths,
    /// A coordinate, a rank or a chunk that there is not.
    #[error("{what} {value} of {size}")]
    Absent {
        /// The word for it.
        what: &'static str,
        /// The number that is asked for.
        value: i64,
        /// The number of them that there are.
        size: i64,
    },
    /// The chunks of a region are less than one apart.
    #[error("a stride below 1")]
    Stride,
}

/// A result, or the reason for which there is none.
type ReadResult<T, E = PostconditionError> = std::result::Result<T, E>;

/// One collective at one shape.
struct PostconditionReader<'c> {
    custom: &'c CustomCollective,
    ranks: i64,
    input: i64,
    output: i64,
    found: Vec<RequiredContent>,
}

/// Returns the results that the collective asks of a rank, in order of the chunks of its output. Chunks are
/// those of the declaration.
///
/// # Errors
/// Fails where the postconditions have no meaning at this shape.
pub fn asked(
    custom: &CustomCollective,
    axes: &[u32],
    rank: u32,
) -> ReadResult<Vec<RequiredContent>> {
    let ranks: i64 = axes.iter().map(|&a| i64::from(a)).product();
    let mut env = vec![0i64; custom.slots.len()];
    env[0] = ranks;
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        let size = if custom.axes.grid { axes.get(i).copied().map(i64::from) } else { Some(ranks) };
        env[usize::from(slot)] = size.ok_or(PostconditionError::FewerAxes)?;
    }
    let (input, output) = (number(&custom.input, &mut env)?, number(&custom.output, &mut env)?);
    let mut reader = PostconditionReader { custom, ranks, input, output, found: Vec::new() };
    for ensure in &reader.custom.ensures {
        if let Some(var) = ensure.var {
            env[usize::from(var)] = rank.into();
        }
        reader.follow(ensure, 0, &mut env)?;
    }
    reader.found.sort_by_key(|a| a.output);
    match reader.found.windows(2).find(|w| w[0].output == w[1].output) {
        Some(w) => Err(PostconditionError::Twice { rank, chunk: w[0].output }),
        None => Ok(reader.found),
    }
}

/// Returns the numbers of chunks of input and output.
///
/// # Errors
/// Fails where there are no such numbers.
pub fn sizes(custom: &CustomCollective, axes: &[u32]) -> ReadResult<(u32, u32)> {
    let ranks: i64 = axes.iter().map(|&a| i64::from(a)).product();
    let mut env = vec![0i64; custom.slots.len()];
    env[0] = ranks;
    for (&slot, &size) in custom.axes.sizes.iter().zip(axes) {
        env[usize::from(slot)] = if custom.axes.grid { size.into() } else { ranks };
    }
    let mut size = |e| -> ReadResult<u32> { Ok(u32::try_from(number(e, &mut env)?)?) };
    Ok((size(&custom.input)?, size(&custom.output)?))
}

fn number(e: &SlotExpr, env: &mut [i64]) -> ReadResult<i64> {
    Ok(eval(e, env).map_err(|e| e.error)?)
}

impl PostconditionReader<'_> {
    fn follow(&mut self, ensure: &EnsureClause, at: usize, env: &mut [i64]) -> ReadResult<()> {
        match ensure.binders.get(at) {
            None => self.place(ensure, env),
            Some(RuleBinder::Let(slot, e)) => {
                env[usize::from(*slot)] = number(e, env)?;
                self.follow(ensure, at + 1, env)
            }
            Some(RuleBinder::Where(e)) if number(e, env)? == 0 => Ok(()),
            Some(RuleBinder::Where(_)) => self.follow(ensure, at + 1, env),
            Some(RuleBinder::For(slot, from, to)) => {
                let (mut v, to) = (number(from, env)?, number(to, env)?);
                while v < to {
                    env[usize::from(*slot)] = v;
                    self.follow(ensure, at + 1, env)?;
                    v += 1;
                }
                Ok(())
            }
        }
    }

    /// Adds the results that a postcondition asks for, with all its variables set.
    fn place(&mut self, ensure: &EnsureClause, env: &mut [i64]) -> ReadResult<()> {
        let targets = chunks(&ensure.target, self.output, env)?;
        let mut of: Vec<Vec<(u32, u32)>> = vec![Vec::new(); targets.len()];
        let mut term = |env: &mut [i64]| {
            let rank = self.whose(ensure, env)?;
            let sources = chunks(&ensure.source, self.input, env)?;
            if sources.len() != targets.len() {
                return Err(PostconditionError::Lengths);
            }
            of.iter_mut().zip(sources).for_each(|(of, source)| of.push((rank, source)));
            Ok(())
        };
        match &ensure.reduce {
            None => term(env)?,
            Some((slot, from, to, filter)) => {
                let (mut v, to) = (number(from, env)?, number(to, env)?);
                while v < to {
                    env[usize::from(*slot)] = v;
                    let passes = filter.as_ref().map_or(Ok(1), |f| number(f, env))?;
                    if passes != 0 {
                        term(env)?;
                    }
                    v += 1;
                }
            }
        }
        for of in &of {
            let mut once = of.clone();
            once.sort_unstable();
            if let Some(w) = once.windows(2).find(|w| w[0] == w[1]) {
                let (rank, chunk) = w[0];
                return Err(PostconditionError::CountedTwice { rank, chunk });
            }
        }
        let all = targets.into_iter().zip(of).map(|(output, of)| RequiredContent { output, of });
        self.found.extend(all.filter(|asked| !asked.of.is_empty()));
        Ok(())
    }

    /// Returns the rank at which a contribution begins, from its coordinates where they are given.
    fn whose(&self, ensure: &EnsureClause, env: &mut [i64]) -> ReadResult<u32> {
        let mut linear = 0;
        for (e, size) in &ensure.at.coordinates {
            let (v, size) = (number(e, env)?, env[usize::from(*size)]);
            if v < 0 || v >= size {
                return Err(absent("coordinate", v, size));
            }
            linear = linear * size + v;
        }
        if ensure.at.coordinates.is_empty() {
            linear = number(&ensure.at.linear, env)?;
        }
        match u32::try_from(linear) {
            Ok(rank) if linear < self.ranks => Ok(rank),
            _ => Err(absent("rank", linear, self.ranks)),
        }
    }
}

fn absent(what: &'static str, value: i64, size: i64) -> PostconditionError {
    PostconditionError::Absent { what, value, size }
}

/// Returns the chunks that an index names, one by one.
fn chunks(index: &ChunkIndex, size: i64, env: &mut [i64]) -> ReadResult<Vec<u32>> {
    let (from, end, by, take, count) = match index {
        ChunkIndex::All => (0, size, &None, &None, None),
        ChunkIndex::At(e) => {
            let v = number(e, env)?;
            let end = v.checked_add(1).ok_or_else(|| absent("chunk", v, size))?;
            (v, end, &None, &None, None)
        }
        ChunkIndex::Range { from, to, by, take } => {
            (number(from, env)?, number(to, env)?, by, take, None)
        }
        ChunkIndex::Cyclic { from, count, by, take } => {
            let count = number(count, env)?;
            (number(from, env)?, i64::MAX, by, take, Some(count))
        }
    };
    let step = |e: &Option<SlotExpr>, env: &mut [i64]| e.as_ref().map_or(Ok(1), |e| number(e, env));
    let (stride, block) = (step(by, env)?, step(take, env)?);
    if stride < 1 || block < 1 {
        return Err(PostconditionError::Stride);
    }
    let (mut list, mut start) = (Vec::new(), from);
    let enough = |list: &Vec<u32>| {
        count.is_some_and(|c| c <= 0 || i64::try_from(list.len()).map_or(true, |len| len >= c))
    };
    while start < end && !enough(&list) {
        // A block that does not fit 64 bits ends where all chunks do.
        for at in start..start.checked_add(block).map_or(end, |last| last.min(end)) {
            if enough(&list) {
                break;
            }
            let at = if count.is_some() && size > 0 { at % size } else { at };
            let fits = u32::try_from(at).ok().filter(|_| at < size);
            list.push(fits.ok_or_else(|| absent("chunk", at, size))?);
        }
        start = match (start.checked_add(stride), count) {
            (Some(next), _) => next,
            (None, None) => break,
            (None, Some(_)) => return Err(PostconditionError::Stride),
        };
    }
    Ok(list)
}
