//! An oracle that shares nothing with the compiler but the syntax tree: it evaluates a parsed file as
//! docs/language.md says, holds in every place the tree of additions that made it, and counts what it saw.
//!
//! The vector is cut as finely as any cut on the way needs: where one does not come out even, evaluation
//! starts again with more pieces. What it does not cover it says.

mod collective;
mod number;
mod play;
mod round;

use std::collections::BTreeMap;

use roundelay_algorithms::CATALOGUE;
use roundelay_dsl::ast::{Algorithm, Axes, File, Item};
use roundelay_dsl::span::SourceMap;

use collective::Kind;
use number::Env;
use round::Memory;

/// Why evaluation ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A `requires` does not hold.
    Unfit,
    /// Something that the oracle does not cover.
    Unsupported(&'static str),
    /// The program is wrong, for this reason.
    Wrong(String),
    /// The vector must be cut into so many times as many pieces.
    Finer(usize),
}

fn wrong(why: impl Into<String>) -> Stop {
    Stop::Wrong(why.into())
}

/// What a right program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Messages between different ranks.
    pub messages: u64,
    /// Most pieces that one rank sends to others.
    pub sent: u64,
    /// Most pieces that one rank receives from others.
    pub received: u64,
    /// Whether all that are asked for one sum hold one tree; `None` where no sums are asked for.
    pub bitwise: Option<bool>,
    /// Whether that tree adds all ranks in ascending order; `None` where no sums are asked for.
    pub ordered: Option<bool>,
    /// Pieces of the whole vector.
    pub pieces: u64,
}

/// The parsed files of the book.
#[derive(Debug, Default)]
pub struct Shelves {
    files: BTreeMap<(String, String), File>,
}

impl Shelves {
    /// All of them.
    pub fn new() -> Shelves {
        let mut files = BTreeMap::new();
        for e in CATALOGUE {
            if let Some(file) = parsed(e.text) {
                files.insert((e.collective.to_string(), e.name.to_string()), file);
            }
        }
        Shelves { files }
    }
}

/// A text as a syntax tree.
pub fn parsed(text: &str) -> Option<File> {
    let mut sources = SourceMap::new();
    let id = sources.add("oracle.algo", text);
    roundelay_dsl::parse(&sources, id).ok()
}

/// What an algorithm is played with, at one place of the program.
struct Frame<'a> {
    file: &'a File,
    algorithm: &'a Algorithm,
    shelves: &'a Shelves,
    /// Names and lengths of the axes.
    axes: Vec<(String, i64)>,
    /// Its ranks, as ranks of the whole.
    ranks: Vec<usize>,
    /// The pieces of each buffer, as places in the memory of a rank.
    views: BTreeMap<String, Vec<usize>>,
    /// Pieces of a chunk.
    unit: usize,
    /// Blocks of its vector.
    blocks: usize,
    env: Env,
    depth: u32,
}

/// The algorithm of that name in a file.
fn find<'a>(file: &'a File, name: &str, collective: Option<&str>) -> Option<&'a Algorithm> {
    file.items.iter().find_map(|i| match i {
        Item::Algorithm(a)
            if a.name.text == name && collective.is_none_or(|c| a.collective.text == c) =>
        {
            Some(a)
        }
        _ => None,
    })
}

/// The names of axes with their lengths.
fn axes_of(axes: &Axes, shape: &[usize]) -> Result<Vec<(String, i64)>, Stop> {
    let names: Vec<String> = match axes {
        Axes::Flat(name) => vec![name.text.clone()],
        Axes::Grid(names, _) => names.iter().map(|n| n.text.clone()).collect(),
    };
    if names.len() != shape.len() {
        return Err(Stop::Unfit);
    }
    let sizes = shape.iter().map(|s| i64::try_from(*s).unwrap_or(0));
    Ok(names.into_iter().zip(sizes).collect())
}

/// Evaluates the algorithm of a file on so many ranks along each axis.
///
/// # Errors
/// That it is wrong, or cannot be told.
pub fn tell(
    shelves: &Shelves,
    file: &File,
    name: &str,
    shape: &[usize],
    root: usize,
) -> Result<Told, Stop> {
    if file.items.iter().any(|i| matches!(i, Item::Import(_))) {
        return Err(Stop::Unsupported("imports"));
    }
    let algorithm = find(file, name, None).ok_or(Stop::Unsupported("no such algorithm"))?;
    let n: usize = shape.iter().product();
    let kind = Kind::of(&algorithm.collective.text)?;
    let mut pieces = if kind.blocked() { n } else { 1 };
    for _ in 0..8 {
        match once(shelves, file, algorithm, shape, root, pieces) {
            Err(Stop::Finer(by)) if pieces * by <= 4096 => pieces *= by,
            Err(Stop::Finer(_)) => break,
            told => return told,
        }
    }
    Err(Stop::Unsupported("very fine cuts"))
}

fn once(
    shelves: &Shelves,
    file: &File,
    algorithm: &Algorithm,
    shape: &[usize],
    root: usize,
    pieces: usize,
) -> Result<Told, Stop> {
    let n: usize = shape.iter().product();
    let kind = Kind::of(&algorithm.collective.text)?;
    let task = collective::Task { kind, n, root, pieces, data: play::in_place(algorithm)? };
    let mut memory = Memory::new(&task);
    for rank in 0..n {
        for place in 0..task.size() {
            if let Some((from, piece)) = task.begins(rank, place) {
                memory.begin(rank, place, (from, piece));
            }
        }
    }
    let mut frame = Frame {
        file,
        algorithm,
        shelves,
        axes: axes_of(&algorithm.axes, shape)?,
        ranks: (0..n).collect(),
        views: task.views(),
        unit: 0,
        blocks: 1,
        env: Env::new(),
        depth: 0,
    };
    frame.play(&mut memory, Some(root), pieces)?;
    let sums = memory.judge(&task)?;
    Ok(Told {
        messages: memory.messages * memory.channels,
        sent: memory.sent.iter().max().copied().unwrap_or(0),
        received: memory.received.iter().max().copied().unwrap_or(0),
        bitwise: sums.map(|s| s.0),
        ordered: sums.map(|s| s.1),
        pieces: u64::try_from(pieces).unwrap_or(0),
    })
}
