//! Helpers of the suite that crosses packages.
#![forbid(unsafe_code)]

pub mod declared;
pub mod fuzz;
pub mod guilt;
pub mod mistakes;
pub mod mutate;
pub mod oracle;
mod port;
mod program;
pub mod queues;
mod skip;
mod wait;

pub use port::{held_ports, listeners, port, port_range};
pub use program::{compile_program, runs_alone, test_arguments};
pub use skip::{CheckNeeds, skip, skipped};
pub use wait::{end, until};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use roundelay_algorithms::{AlgorithmLibrary, CatalogueEntry};
use roundelay_compiler::program::ArgumentedName;
use roundelay_compiler::{
    BufferPlacement, CompileOptions, LibrarySource, Program, ProgramInstance, Shape, compile,
    resolve,
};
use roundelay_dsl::diag::{Diagnostics, render};
use roundelay_dsl::span::SourceMap;

/// Returns the files of `suite/`, in order.
pub fn suite() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder());
    let mut files: Vec<PathBuf> =
        files.into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "algo"));
    files.sort();
    files
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suite")
}

/// The library, further files by the paths that imports name them by, and the files of `suite/`.
pub struct SourceShelf<'a>(pub &'a [(String, String)]);

impl LibrarySource for SourceShelf<'_> {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        AlgorithmLibrary.algorithm(collective, name)
    }

    fn file(&self, _: &str, path: &str) -> Result<(String, String), String> {
        if let Some(file) = self.0.iter().find(|file| file.0 == path) {
            return Ok(file.clone());
        }
        let text = std::fs::read_to_string(folder().join(path));
        text.map(|text| (path.to_string(), text)).map_err(|_| "no such file".into())
    }
}

/// A text, resolved against the shelf.
pub struct ParsedSource {
    /// All texts that it needed.
    pub sources: SourceMap,
    /// Its algorithms, in order.
    pub programs: Vec<Arc<Program>>,
}

/// Parses and resolves a text; the map is given either way, for messages.
///
/// # Errors
/// Whatever is wrong with the text.
pub fn read(name: &str, text: &str) -> Result<ParsedSource, (SourceMap, Diagnostics)> {
    read_with(name, text, &[])
}

/// Parses and resolves a text that may import others, which are given with their paths.
///
/// # Errors
/// Whatever is wrong with the texts.
pub fn read_with(
    name: &str,
    text: &str,
    files: &[(String, String)],
) -> Result<ParsedSource, (SourceMap, Diagnostics)> {
    let mut sources = SourceMap::new();
    let id = sources.add(name, text);
    match resolve(&mut sources, id, &SourceShelf(files)) {
        Ok(programs) => Ok(ParsedSource { sources, programs }),
        Err(faults) => Err((sources, faults)),
    }
}

/// Returns the algorithm of a file of the library, with its texts.
///
/// # Errors
/// Diagnostics as text; a file of the library has none.
pub fn of_library(entry: &CatalogueEntry) -> Result<(SourceMap, Arc<Program>), String> {
    let source =
        read(entry.path, entry.text).map_err(|(sources, faults)| say(&sources, &faults))?;
    let asked: ArgumentedName = entry.name.parse()?;
    let own = source.programs.iter().find(|p| p.name == asked.name);
    let own = own.ok_or("the file does not declare its algorithm")?;
    let program = own.with_arguments(&asked.arguments).map_err(|d| d.message)?;
    Ok((source.sources, program))
}

/// Diagnostics in one line.
pub fn say(sources: &SourceMap, faults: &Diagnostics) -> String {
    let lines: Vec<String> =
        faults.iter().map(|d| render::short(sources, d).trim().to_string()).collect();
    lines.join(" | ")
}

/// Returns true where tests take all cases and not a sample of them: what a gate runs by the switch that it has for it.
pub fn is_full() -> bool {
    std::env::var_os("ROUNDELAY_CI").is_some_and(|v| v == "full")
}

/// Returns true if the algorithm runs on a grid of several axes.
pub fn is_grid(program: &Program) -> bool {
    program.axes.names.len() > 1
}

/// Roots worth trying on `n` ranks: all of few, the first two and the last of many.
pub fn roots(program: &Program, n: u32) -> Vec<u32> {
    match (program.kind.rooted(), n) {
        (false, _) | (true, 1) => vec![0],
        (true, 2..=9) => (0..n).collect(),
        (true, _) => vec![0, 1, n - 1],
    }
}

/// Returns the instance, or `None` where `requires` forbids the shape.
///
/// # Errors
/// Any other diagnostics.
pub fn instance(
    program: &Arc<Program>,
    shape: &Shape,
    root: u32,
) -> Result<Option<Arc<ProgramInstance>>, Diagnostics> {
    instance_over(program, shape, root, 1)
}

/// Returns the numbers of paths between hosts with which an algorithm is tried.
pub fn paths(program: &Program) -> std::ops::RangeInclusive<u32> {
    if program.weighted().is_some() { 1..=4 } else { 1..=1 }
}

/// Returns the instance over a number of paths, or `None` where `requires` forbids the shape.
///
/// # Errors
/// Any other diagnostics.
pub fn instance_over(
    program: &Arc<Program>,
    shape: &Shape,
    root: u32,
    paths: u32,
) -> Result<Option<Arc<ProgramInstance>>, Diagnostics> {
    match ProgramInstance::new(
        program,
        shape,
        &CompileOptions { root, paths, ..CompileOptions::default() },
    ) {
        Ok(instance) => Ok(Some(Arc::new(instance))),
        Err(faults) if faults.iter().any(|d| d.code == roundelay_dsl::diag::codes::REQUIRES) => {
            Ok(None)
        }
        Err(faults) => Err(faults),
    }
}

/// Returns the shapes of `-n 3 -n 2..9 -n 2x4`; the end of a range is one of them.
///
/// # Errors
/// A word that is no shape.
pub fn shapes<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<Shape>, String> {
    let mut shapes = Vec::new();
    for word in words.filter(|w| *w != "-n") {
        let number = |text: &str| text.parse::<u32>().map_err(|e| format!("`{word}`: {e}"));
        match word.split_once("..") {
            Some((a, b)) => shapes.extend((number(a)?..=number(b)?).map(Shape::flat)),
            None => shapes.push(word.parse::<Shape>().map_err(|e| e.to_string())?),
        }
    }
    Ok(shapes)
}

/// Proves all algorithms at a shape, in both placements.
///
/// # Errors
/// The diagnostics of the first algorithm that is refuted.
pub fn prove(
    programs: &[Arc<Program>],
    sources: &SourceMap,
    shape: &Shape,
) -> Result<(), Diagnostics> {
    for program in programs {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            for paths in paths(program) {
                let options = CompileOptions { paths, ..CompileOptions::default() };
                compile(program, sources, shape, &options, placement)?;
            }
        }
    }
    Ok(())
}

/// Random numbers from a seed (splitmix64).
pub struct SeededRandom(pub u64);

impl SeededRandom {
    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}
