//! An oracle that shares nothing with the compiler but the syntax tree: it evaluates a parsed file as
//! docs/language.md says, holds in every place the tree of additions that made it, and counts what it saw.
//!
//! The vector is cut as finely as any cut on the way needs: where one does not come out even, evaluation
//! starts again with more pieces. What it does not cover it says.

mod collective;
mod declared;
mod files;
mod number;
mod part;
mod round;
mod statements;

use std::cell::Cell;
use std::collections::BTreeMap;

use roundelay_compiler::program::{ArgumentValue, ArgumentedName};
use roundelay_dsl::ast::{AlgorithmDecl, AxesClause, FileDeclaration};

pub use declared::{Asked, DeclaredTask};
pub use files::{ParsedLibrary, ParsedText};

use collective::{CollectiveTask, OracleKind};
use files::EvaluationScope;
use number::NameScope;
use round::OracleMemory;

/// The reason why evaluation ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlyStop {
    /// A `requires` does not hold.
    Unfit,
    /// The program has something that the oracle does not cover.
    Unsupported(&'static str),
    /// The program is wrong, for this reason.
    Wrong(String),
    /// The vector must be cut into this many times as many pieces.
    Finer(usize),
}

fn wrong(why: impl Into<String>) -> EarlyStop {
    EarlyStop::Wrong(why.into())
}

/// The properties of a right program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleFacts {
    /// Messages between different ranks.
    pub messages: u64,
    /// Most pieces that one rank sends to others.
    pub sent: u64,
    /// Most pieces that one rank receives from others.
    pub received: u64,
    /// True if all that are asked for one sum hold one tree; `None` where no sums are asked for.
    pub bitwise: Option<bool>,
    /// True if that tree adds all ranks in ascending order; `None` where no sums are asked for.
    pub ordered: Option<bool>,
    /// Pieces of the whole vector.
    pub pieces: u64,
}

/// The shape, the root and the paths with which a program is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct OraclePlace<'a> {
    /// Ranks along each axis.
    pub shape: &'a [usize],
    /// The root of a rooted collective.
    pub root: usize,
    /// Paths between hosts.
    pub paths: usize,
}

/// The context in which an algorithm is run, at one place of the program.
struct RunFrame<'a> {
    world: &'a EvaluationScope<'a>,
    /// The collective that it implements.
    collective: &'a str,
    kind: OracleKind,
    /// Names and lengths of the axes.
    axes: Vec<(String, i64)>,
    /// Its ranks, as ranks of the whole.
    ranks: Vec<usize>,
    /// The root, if its collective has one.
    root: Option<usize>,
    /// The pieces of each buffer, as places in the memory of a rank.
    views: BTreeMap<String, Vec<usize>>,
    /// Pieces of a chunk.
    unit: usize,
    /// Pieces of a block of its vector.
    block: usize,
    env: NameScope<'a>,
    depth: u32,
}

impl<'a> RunFrame<'a> {
    fn new(
        world: &'a EvaluationScope<'a>,
        collective: &'a str,
        kind: OracleKind,
        env: NameScope<'a>,
        axes: Vec<(String, i64)>,
    ) -> RunFrame<'a> {
        RunFrame {
            world,
            collective,
            kind,
            axes,
            ranks: Vec::new(),
            root: None,
            views: BTreeMap::new(),
            unit: 0,
            block: 0,
            env,
            depth: 0,
        }
    }
}

/// Returns the names of axes with their lengths.
fn axes_of(axes: &AxesClause, shape: &[usize]) -> Result<Vec<(String, i64)>, EarlyStop> {
    let names: Vec<String> = match axes {
        AxesClause::Flat(name) => vec![name.text.clone()],
        AxesClause::Grid(names, _) => names.iter().map(|n| n.text.clone()).collect(),
    };
    if names.len() != shape.len() {
        return Err(wrong("RL0602 as many axes as another number"));
    }
    let sizes = shape.iter().map(|s| i64::try_from(*s).unwrap_or(0));
    Ok(names.into_iter().zip(sizes).collect())
}

/// Returns the algorithm of that name that a file declares itself.
fn named<'t>(text: &'t ParsedText, name: &str) -> Result<&'t AlgorithmDecl, EarlyStop> {
    let found = text.file.items.iter().find_map(|i| match i {
        FileDeclaration::Algorithm(a) if a.name.text == name => Some(a),
        _ => None,
    });
    found.ok_or(EarlyStop::Unsupported("no such algorithm"))
}

/// Evaluates the algorithm of that name, which may have arguments, in a text.
///
/// # Errors
/// The program is wrong, or cannot be judged.
pub fn evaluate(
    shelves: &ParsedLibrary,
    text: &ParsedText,
    name: &str,
    at: OraclePlace<'_>,
) -> Result<OracleFacts, EarlyStop> {
    let asked: ArgumentedName = name.parse().map_err(|_| wrong("RL0215 no name"))?;
    let algorithm = named(text, &asked.name)?;
    let value = |v: &ArgumentValue| match *v {
        ArgumentValue::Number(v) => number::OracleValue::Int(v),
        ArgumentValue::Truth(v) => number::OracleValue::Truth(v),
    };
    let arguments = asked.arguments.iter().map(|(name, v)| (name.clone(), value(v)));
    let arguments: Vec<_> = arguments.collect();
    let mut pieces = 1;
    for _ in 0..8 {
        match once(shelves, text, (algorithm, &arguments), at, pieces) {
            Err(EarlyStop::Finer(by)) if pieces * by <= 4096 => pieces *= by,
            Err(EarlyStop::Finer(_)) => break,
            result => return result,
        }
    }
    Err(EarlyStop::Unsupported("very fine cuts"))
}

/// Returns what the declared collective of an algorithm asks for.
///
/// # Errors
/// The postconditions have no meaning, or the collective is not a declared one.
pub fn asked(
    shelves: &ParsedLibrary,
    text: &ParsedText,
    name: &str,
    at: OraclePlace<'_>,
) -> Result<DeclaredTask, EarlyStop> {
    let world = EvaluationScope { shelves, text, paths: at.paths, left: Cell::new(EFFORT) };
    let declared = world.collective(&text.file, &named(text, name)?.collective.text)?;
    DeclaredTask::at(&world, declared, at.shape)
}

/// The effort after which a program is given up as too long.
const EFFORT: u64 = 400_000;

/// Evaluates with `block` pieces a block.
fn once(
    shelves: &ParsedLibrary,
    text: &ParsedText,
    (algorithm, arguments): (&AlgorithmDecl, &[(String, number::OracleValue)]),
    OraclePlace { shape, root, paths }: OraclePlace<'_>,
    block: usize,
) -> Result<OracleFacts, EarlyStop> {
    let n: usize = shape.iter().product();
    let world = EvaluationScope { shelves, text, paths, left: Cell::new(EFFORT) };
    let mut frame = RunFrame::of(&world, &text.file, algorithm, shape, (0..n).collect())?;
    frame.enter(algorithm, root, arguments)?;
    let declared = match frame.kind {
        OracleKind::Declared => {
            let found = world.collective(&text.file, &algorithm.collective.text)?;
            Some(DeclaredTask::at(&world, found, shape)?)
        }
        _ => None,
    };
    let blocks = frame.kind.blocks(n, declared.as_ref());
    let data = world.in_place((&text.file, algorithm))?;
    let pieces = blocks * block;
    if pieces > 4096 {
        return Err(EarlyStop::Unsupported("very fine cuts"));
    }
    let task = CollectiveTask { kind: frame.kind, n, root, pieces, blocks, data, declared };
    let mut memory = OracleMemory::new(&task);
    for rank in 0..n {
        for place in 0..task.size() {
            if let Some((from, piece)) = task.begins(rank, place) {
                memory.begin(rank, place, (from, piece));
            }
        }
    }
    frame.views = task.views();
    frame.run(&mut memory, algorithm, pieces, blocks)?;
    let sums = memory.judge(&task)?;
    Ok(OracleFacts {
        messages: memory.messages * memory.channels,
        sent: memory.sent.iter().max().copied().unwrap_or(0),
        received: memory.received.iter().max().copied().unwrap_or(0),
        bitwise: sums.map(|s| s.0),
        ordered: sums.map(|s| s.1),
        pieces: u64::try_from(pieces).unwrap_or(0),
    })
}
