//! Algorithms that users bring: texts, resolved once; proved and compiled when they first run
//! at a shape.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use roundelay_algorithms::import::{ALLOW_IMPORT, ImportFolders};
use roundelay_algorithms::{AlgorithmLibrary, CatalogueEntry};
use roundelay_compiler::plan::BufferPlacement;
use roundelay_compiler::program::{ArgumentValue, ArgumentedName, BufferStyle};
use roundelay_compiler::tolerance::TolerantPlan;
use roundelay_compiler::{
    CompileOptions, EmbeddedAlgorithm, LibrarySource, Plan, Program, ProvedPlans, Shape, compile,
    resolve, tolerant,
};
use roundelay_dsl::diag::render::human;
use roundelay_dsl::diag::{Diagnostic, ErrorCode, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_dsl::{MAX_BYTES, check_text};

use crate::choose::{ProvedOrder, order_sensitivity};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{CompileDiagnostics, Error, ErrorSource};
use roundelay_support::variables;

/// An algorithm of a text, which can be run by
/// `Communicator::run_algorithm` and installed by
/// `Communicator::install`. Copies are cheap and share the plans that
/// were compiled of it.
#[derive(Clone)]
pub struct Algorithm {
    file: Arc<SourceFile>,
    index: usize,
    /// The algorithm of that index, with its arguments.
    program: Arc<Program>,
    shape: Option<Shape>,
    root: u32,
}

/// A text, with the plans that were made of it.
struct SourceFile {
    name: String,
    sources: SourceMap,
    programs: Vec<Arc<Program>>,
    plans: Mutex<Vec<(AlgorithmOrigin, Arc<Plan>)>>,
    /// The plans of all ranks with their proofs, for devices.
    proved: Mutex<Vec<(AlgorithmOrigin, Arc<ProvedPlans>)>>,
    /// The orders in which it combines ranks.
    orders: Mutex<Vec<(AlgorithmOrigin, ProvedOrder)>>,
    /// The parts of all ranks, if one of them may fail.
    tolerant: Mutex<Vec<(AlgorithmOrigin, Arc<TolerantPlan>)>>,
}

/// The parameters from which a plan was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AlgorithmOrigin {
    index: usize,
    /// The values of its parameters.
    arguments: Vec<ArgumentValue>,
    shape: Shape,
    root: u32,
    placement: BufferPlacement,
    rank: u32,
    /// Paths between the hosts.
    paths: u32,
}

impl Algorithm {
    /// Returns the first algorithm of a text; `name` stands in messages. Names are resolved now; what depends on
    /// the ranks is proved when it is run or installed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with rendered diagnostics if the text is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let text = check_text(text.as_bytes()).map_err(|d| refused(&SourceMap::new(), &[d]))?;
        let mut sources = SourceMap::new();
        let id = sources.add(name, text);
        let programs = resolve(&mut sources, id, &AlgorithmFiles);
        Self::resolved(name, sources, programs)
    }

    /// Returns the first algorithm of a file, as [`Algorithm::parse`].
    ///
    /// # Errors
    ///
    /// The errors of [`Algorithm::parse`]; [`Error::Refused`] too if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = text(path).map_err(|UnreadableFile { code, why, source }| Error::Refused {
            code,
            text: format!("{name}: {why}"),
            source,
        })?;
        Self::parse(&name, &text)
    }

    /// Reads the algorithms that a binary carries.
    pub fn embedded(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |why| refusal(codes::PLAN_DAMAGED, format!("{name} cannot be read: {why}"));
        let embedded = EmbeddedAlgorithm::decode(bytes).map_err(damaged)?;
        match embedded.resolve(&AlgorithmFiles) {
            Ok((sources, programs)) => Self::resolved(name, sources, Ok(programs)),
            Err((sources, found)) => Self::resolved(name, sources, Err(found)),
        }
    }

    /// Returns the first of these programs.
    pub(crate) fn resolved(
        name: &str,
        sources: SourceMap,
        programs: Result<Vec<Arc<Program>>, Vec<Diagnostic>>,
    ) -> Result<Self, Error> {
        let programs = programs.map_err(|found| refused(&sources, &found))?;
        if programs.is_empty() {
            return Err(refusal(codes::EMPTY, format!("{name} declares no algorithm")));
        }
        let program = programs[0].clone();
        let file = SourceFile {
            name: name.into(),
            sources,
            programs,
            plans: Mutex::default(),
            proved: Mutex::default(),
            orders: Mutex::default(),
            tolerant: Mutex::default(),
        };
        Ok(Algorithm { file: Arc::new(file), index: 0, program, shape: None, root: 0 })
    }

    /// Returns an algorithm of the library.
    pub(crate) fn of_library(entry: &CatalogueEntry) -> Result<Self, Error> {
        Self::parse(&format!("library:{}", entry.path), entry.text)?.named(entry.name)
    }

    /// Returns the algorithm as the compiler knows it.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the texts that its diagnostics point into.
    pub fn sources(&self) -> &SourceMap {
        &self.file.sources
    }

    /// Returns its name, with the arguments that are not the default of their parameter: `k_nomial(k = 4)`.
    pub fn name(&self) -> &str {
        &self.program().name
    }

    /// Returns the collective that it implements.
    pub fn collective(&self) -> &str {
        self.program().kind.name()
    }

    /// Returns the names of all algorithms of its text, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.file.programs.iter().map(|p| p.name.as_str())
    }

    /// Returns an algorithm of the same text, or the same one with other arguments: `named("k_nomial(k = 4)")`.
    /// Parameters without an argument have their default.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is none of that name, or an argument is none that it takes (RL0215).
    pub fn named(&self, name: &str) -> Result<Self, Error> {
        let asked: ArgumentedName =
            name.parse().map_err(|why: String| refusal(codes::ARGUMENT, why))?;
        let Some(index) = self.names().position(|n| n == asked.name) else {
            let names: Vec<&str> = self.names().collect();
            let (file, name, names) = (&self.file.name, asked.name, names.join(", "));
            let text = format!("{file} has no algorithm `{name}`; it has {names}");
            return Err(refusal(codes::UNKNOWN_ALGORITHM, text));
        };
        let program = self.file.programs[index].with_arguments(&asked.arguments);
        let program = program.map_err(|d| refused(&self.file.sources, &[*d]))?;
        Ok(Algorithm { index, program, ..self.clone() })
    }

    /// Returns the algorithm on these ranks, for algorithms that run on a grid: one extent an axis.
    #[must_use]
    pub fn on(mut self, shape: Shape) -> Self {
        self.shape = Some(shape);
        self
    }

    /// Returns the algorithm with another root, for collectives that have one. It is 0 otherwise.
    #[must_use]
    pub fn rooted(mut self, root: u32) -> Self {
        self.root = root;
        self
    }

    /// Returns the root that was asked for.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Returns true if it can run in that placement.
    pub fn allows(&self, placement: BufferPlacement) -> bool {
        self.program().style == BufferStyle::Data || placement == BufferPlacement::OutOfPlace
    }

    /// Returns one rank's plan, over `paths` between hosts; compiled and proved once.
    pub fn plan(
        &self,
        ranks: u32,
        rank: u32,
        root: u32,
        placement: BufferPlacement,
        paths: u32,
    ) -> Result<Arc<Plan>, Error> {
        let origin = AlgorithmOrigin { paths, ..self.origin(ranks, rank, root, placement)? };
        if let Some(plan) = find(&self.file.plans, &origin) {
            return Ok(plan);
        }
        // Others may use the algorithm meanwhile; at worst they compile the same.
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        let plan = Arc::new(self.compile(&origin.shape, &options, placement, rank)?);
        let mut plans = self.file.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.push((origin, plan.clone()));
        Ok(plan)
    }

    /// Returns the plans of all ranks with their proofs; compiled once.
    pub fn proved(
        &self,
        ranks: u32,
        root: u32,
        placement: BufferPlacement,
    ) -> Result<Arc<ProvedPlans>, Error> {
        let origin = self.origin(ranks, 0, root, placement)?;
        if let Some(proved) = find(&self.file.proved, &origin) {
            return Ok(proved);
        }
        let options = CompileOptions { root, ..CompileOptions::default() };
        let made = Arc::new(self.prove(&origin.shape, &options, placement)?);
        let mut proved = self.file.proved.lock().unwrap_or_else(PoisonError::into_inner);
        proved.push((origin, made.clone()));
        Ok(made)
    }

    /// Checks that calls of a type and an operator have the same bits wherever an element lies, as the hint
    /// `deterministic` asks; proved once.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason and its line.
    pub(crate) fn check_invariance(
        &self,
        ranks: u32,
        root: u32,
        dtype: DType,
        op: RedOp,
    ) -> Result<(), Error> {
        let Some(exact) = order_sensitivity(dtype, op).filter(|_| self.program.kind.reduces())
        else {
            return Ok(());
        };
        // The order is that of the program: plans of every placement are proved to have it.
        let origin = self.origin(ranks, 0, root, BufferPlacement::OutOfPlace)?;
        let order = find(&self.file.orders, &origin).unwrap_or_else(|| {
            let order = ProvedOrder::of(&self.program, &self.file.sources, &origin.shape, root);
            let mut orders = self.file.orders.lock().unwrap_or_else(PoisonError::into_inner);
            orders.push((origin, order.clone()));
            order
        });
        match order.refusal(exact, true, ranks) {
            None => Ok(()),
            Some(refused) => {
                let reason = refused.reason.as_ref().map_or(String::new(), |r| format!(" ({r})"));
                let text = format!("{self} cannot be run on {ranks} ranks: {refused}{reason}");
                Err(refusal(codes::UNSUPPORTED, text))
            }
        }
    }

    /// Returns what all ranks do if one of them may fail; proved once.
    pub fn tolerant(&self, ranks: u32) -> Result<Arc<TolerantPlan>, Error> {
        // It has no placement: it runs on memory of its own.
        let origin = self.origin(ranks, 0, 0, BufferPlacement::OutOfPlace)?;
        if let Some(known) = find(&self.file.tolerant, &origin) {
            return Ok(known);
        }
        let sources = &self.file.sources;
        let made = tolerant(self.program(), sources, &origin.shape, &CompileOptions::default());
        let made = Arc::new(made.map_err(|d| refused(sources, &d))?);
        let mut all = self.file.tolerant.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((origin, made.clone()));
        Ok(made)
    }

    /// Returns the parameters from which the plans of a call are compiled.
    fn origin(
        &self,
        ranks: u32,
        rank: u32,
        root: u32,
        placement: BufferPlacement,
    ) -> Result<AlgorithmOrigin, Error> {
        let shape = self.shape.clone().unwrap_or_else(|| Shape::flat(ranks));
        if shape.ranks() != u64::from(ranks) {
            return Err(Error::Usage(format!(
                "{self} is to run on {shape} ranks, which are {}, and the communicator has {ranks}",
                shape.ranks()
            )));
        }
        match self.allows(placement) {
            true => {
                let arguments = self.program.parameters.iter().map(|p| p.value).collect();
                let index = self.index;
                Ok(AlgorithmOrigin { index, arguments, shape, root, placement, rank, paths: 1 })
            }
            false => Err(Error::Usage(format!(
                "{self} moves `input` to `output`: it cannot be run in place"
            ))),
        }
    }

    fn compile(
        &self,
        shape: &Shape,
        options: &CompileOptions,
        placement: BufferPlacement,
        rank: u32,
    ) -> Result<Plan, Error> {
        let plans = self.prove(shape, options, placement)?.into_plans();
        let plan = plans.into_iter().nth(rank as usize);
        plan.ok_or_else(|| Error::Usage(format!("rank {rank} is not one of {shape} ranks")))
    }

    fn prove(
        &self,
        shape: &Shape,
        options: &CompileOptions,
        placement: BufferPlacement,
    ) -> Result<ProvedPlans, Error> {
        let sources = &self.file.sources;
        let proved = compile(self.program(), sources, shape, options, placement);
        proved.map_err(|d| refused(sources, &d))
    }
}

fn find<P: Clone>(kept: &Mutex<Vec<(AlgorithmOrigin, P)>>, origin: &AlgorithmOrigin) -> Option<P> {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().find(|(o, _)| o == origin).map(|(_, found)| found.clone())
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.collective(), self.name())
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Algorithm")
            .field("file", &self.file.name)
            .field("name", &self.name())
            .field("shape", &self.shape)
            .field("root", &self.root)
            .finish()
    }
}

/// Compiles and proves the first algorithm of a text; gives the plan of one rank.
///
/// # Errors
///
/// [`Error::Refused`] with the rendered diagnostics if the text is wrong or is refuted at `shape`.
pub fn plan_of(
    source: &str,
    text: &str,
    shape: &Shape,
    options: &CompileOptions,
    placement: BufferPlacement,
    rank: u32,
) -> Result<Plan, Error> {
    Algorithm::parse(source, text)?.compile(shape, options, placement, rank)
}

fn refused(sources: &SourceMap, found: &[Diagnostic]) -> Error {
    let code = found.first().map_or(codes::EMPTY, |d| d.code);
    let text: Vec<String> = found.iter().map(|d| human(sources, d, false)).collect();
    let source = Some(ErrorSource::new(CompileDiagnostics(found.to_vec())));
    Error::Refused { code, text: text.join("\n"), source }
}

fn refusal(code: ErrorCode, text: String) -> Error {
    Error::Refused { code, text, source: None }
}

/// The files that a text may import and use: the algorithm library, and files relative to the one that
/// imports them.
#[derive(Debug, Clone, Copy)]
pub struct AlgorithmFiles;

impl LibrarySource for AlgorithmFiles {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        AlgorithmLibrary.algorithm(collective, name)
    }

    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        if from.starts_with("library:") {
            return AlgorithmLibrary.file(from, path);
        }
        let folder = Path::new(from).parent().unwrap_or(Path::new(""));
        let (path, text) = allowed().read(folder, path)?;
        Ok((path.display().to_string(), text))
    }
}

/// The folders that this process has allowed.
static ALLOWED: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Allows texts to import files below these folders too, beside those of `ROUNDELAY_ALLOW_IMPORT`; once a process.
/// Ranks that a `Launcher` starts are allowed them too.
pub fn allow_imports(folders: Vec<PathBuf>) {
    let list = variables::raw(ALLOW_IMPORT).unwrap_or_default();
    let all = std::env::split_paths(&list).chain(folders.iter().cloned());
    if ALLOWED.set(folders.clone()).is_ok()
        && !folders.is_empty()
        && let Ok(all) = std::env::join_paths(all)
    {
        variables::set_of_ranks(ALLOW_IMPORT, all);
    }
}

/// Returns the folders below which texts may import files, beside that of the file that imports.
fn allowed() -> ImportFolders {
    let list = variables::raw(ALLOW_IMPORT).unwrap_or_default();
    let own = ALLOWED.get().into_iter().flatten().cloned();
    ImportFolders::new(std::env::split_paths(&list).chain(own))
}

/// The reason for which a file was not read.
struct UnreadableFile {
    code: ErrorCode,
    why: String,
    source: Option<ErrorSource>,
}

/// Returns the text of a file, unless there is too much of it.
fn text(path: &Path) -> Result<String, UnreadableFile> {
    let cannot = |e: std::io::Error| {
        let why = match e.kind() {
            ErrorKind::NotFound => "no such file".to_string(),
            _ => e.to_string(),
        };
        UnreadableFile { code: codes::FILE, why, source: Some(ErrorSource::new(e)) }
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    check_text(&bytes).map(str::to_string).map_err(|d| UnreadableFile {
        code: d.code,
        why: d.message.clone(),
        source: Some(ErrorSource::new(CompileDiagnostics(vec![d]))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn errors_have_what_was_wrong_with_the_file_or_the_text_as_their_source() {
        let error = Algorithm::read(Path::new("/nowhere.algo")).expect_err("no file");
        assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()), "{error}");
        let error = Algorithm::parse("text", "algorithm").expect_err("no algorithm");
        let source = error.source().and_then(|source| source.downcast_ref::<CompileDiagnostics>());
        assert_eq!(source.map(|d| d.0[0].code), Some(error.code()));
    }
}
