//! Loads programs by the names that the user gives: the program's own algorithms, files, `collective.name` of
//! the algorithm library, whole collectives, plan files.
//!
//! A name with a `/` in it, or that ends in `.algo` or `.plan`, is a file. Every other name is one of the
//! program's own, of the algorithm library or of a collective if there is such a thing, whatever lies in the
//! folder; a file if there is not.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use roundelay::Algorithm;
use roundelay::internal::AlgorithmFiles;
use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE};
use roundelay_compiler::blame;
use roundelay_compiler::program::{ArgumentedName, COLLECTIVES, CollectiveKind};
use roundelay_compiler::{
    BufferPlacement, CompileOptions, LibrarySource, Plan, Program, ProgramInstance, ProvedPlans,
    Shape, compile, resolve,
};
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes, similar};
use roundelay_dsl::span::SourceMap;
use roundelay_dsl::{MAX_BYTES, check_text};

use crate::args::{TargetArgs, argumented};
use crate::own;
use crate::report::{VerbError, fault, refused};

/// The bytes at the beginning of a plan file.
const PLAN_MAGIC: &[u8] = b"RLPLAN";
/// The largest plan file that is read.
const MAX_PLAN_BYTES: usize = 1 << 30;
/// The ranks that are taken where none were asked for, the first that the algorithm allows.
const USUAL_RANKS: [u32; 7] = [4, 3, 2, 5, 6, 7, 8];

/// Programs with the texts that they come from.
pub(crate) struct LoadedPrograms {
    /// All texts.
    pub(crate) sources: SourceMap,
    /// The programs, in order of declaration.
    pub(crate) programs: Vec<Arc<Program>>,
}

/// The programs or the plan that a name stands for.
pub(crate) enum LoadedInput {
    /// Text.
    Programs(LoadedPrograms),
    /// A plan of one rank, checked.
    Plan(Box<Plan>),
}

/// Loads everything that the target names, each algorithm with every combination of the values that it is given.
pub(crate) fn load(target: &TargetArgs) -> Result<LoadedInput, VerbError> {
    let asked = argumented(&target.target).map_err(VerbError::Usage)?;
    let name = asked.name.as_str();
    let input = match (own::find(name).filter(|_| !is_path(name)), entry(name)) {
        (Some(own), _) => LoadedInput::Programs(LoadedPrograms {
            sources: own.sources().clone(),
            programs: vec![own.program().clone()],
        }),
        (None, Some((collective, algorithm))) => library(collective, algorithm)?,
        (None, None) if is_collective(name) => library_of(name)?,
        (None, None) => file(name)?,
    };
    let (mut loaded, mut arguments) = match input {
        LoadedInput::Programs(loaded) => (loaded, asked.arguments),
        LoadedInput::Plan(_) if !asked.arguments.is_empty() || !target.params.is_empty() => {
            let why = format!("{name} is a plan: its arguments are chosen already; leave them out");
            return Err(VerbError::Usage(why));
        }
        plan @ LoadedInput::Plan(_) => return Ok(plan),
    };
    if let Some(wanted) = &target.algorithm {
        let wanted = argumented(wanted).map_err(VerbError::Usage)?;
        arguments.extend(wanted.arguments);
        loaded = narrow(loaded, &wanted.name)?;
    }
    let given = ArgumentedName { name: name.into(), arguments };
    let rows = target.params.names(&given).map_err(VerbError::Usage)?;
    with_arguments(loaded, &rows).map(LoadedInput::Programs)
}

/// Returns the programs with each of these rows of arguments. Of several programs, those without such parameters stay
/// as they are.
fn with_arguments(
    loaded: LoadedPrograms,
    rows: &[ArgumentedName],
) -> Result<LoadedPrograms, VerbError> {
    let LoadedPrograms { sources, programs: declared } = loaded;
    let takes = |p: &Program, row: &ArgumentedName| {
        row.arguments.iter().all(|(name, _)| p.parameters.iter().any(|own| own.name == *name))
    };
    let some = rows.iter().all(|row| declared.iter().any(|p| takes(p, row)));
    let mut programs: Vec<Arc<Program>> = Vec::new();
    for program in &declared {
        for row in rows {
            let made = match declared.len() > 1 && some && !takes(program, row) {
                true => Ok(program.clone()),
                false => program.with_arguments(&row.arguments),
            };
            let made = made.map_err(|d| VerbError::Input(Box::new(sources.clone()), vec![*d]))?;
            // Two rows may be the same, as may what has no parameters.
            if !programs.iter().any(|p| p.kind == made.kind && p.name == made.name) {
                programs.push(made);
            }
        }
    }
    Ok(LoadedPrograms { sources, programs })
}

/// Loads the one program that the target names.
pub(crate) fn load_one(target: &TargetArgs) -> Result<(SourceMap, Arc<Program>), VerbError> {
    let loaded = match load(target)? {
        LoadedInput::Programs(loaded) => loaded,
        LoadedInput::Plan(plan) => {
            return Err(VerbError::Usage(format!(
                "`{}` is the plan of rank {} alone; `check` and `show` read it, and to run the \
                 algorithm give its file or name",
                target.target, plan.part.rank
            )));
        }
    };
    match &loaded.programs[..] {
        [one] => Ok((loaded.sources, one.clone())),
        [first, rest @ ..]
            if rest
                .iter()
                .all(|p| p.kind == first.kind && p.declared_name() == first.declared_name()) =>
        {
            Err(VerbError::Usage(format!(
                "{} values of parameters are given, and this verb takes one of each: give one, as in \
                 `{}`; `check`, `run` and `bench` compare several",
                rest.len() + 1,
                first.name
            )))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|p| p.name.as_str()).collect();
            Err(VerbError::Usage(format!(
                "`{}` has several algorithms ({}): choose one with --algorithm NAME",
                target.target,
                names.join(", ")
            )))
        }
    }
}

/// Returns true if the name can only be meant as a file.
pub(crate) fn is_path(name: &str) -> bool {
    let name = match name.ends_with(')') {
        true => name.split_once('(').map_or(name, |(name, _)| name.trim_end()),
        false => name,
    };
    name.contains('/') || name.ends_with(".algo") || name.ends_with(".plan")
}

/// Returns the collective of that name.
pub(crate) fn collective(name: &str) -> Option<&'static CollectiveKind> {
    COLLECTIVES.iter().find(|(n, _)| *n == name).map(|(_, kind)| kind)
}

/// Returns true if a collective has that name.
pub(crate) fn is_collective(name: &str) -> bool {
    collective(name).is_some()
}

/// Returns true if a collective has a root.
pub(crate) fn rooted(name: &str) -> bool {
    collective(name).is_some_and(CollectiveKind::rooted)
}

/// Returns the parts of `collective.name`, if the algorithm library has it; or if nothing has, so that its name can
/// be judged.
pub(crate) fn entry(name: &str) -> Option<(&str, &str)> {
    let (collective, algorithm) = name.split_once('.').filter(|_| !is_path(name))?;
    let declared = algorithm.split_once('(').map_or(algorithm, |(name, _)| name.trim_end());
    let word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
    let named = word(collective) && word(declared);
    let known = roundelay_algorithms::find(collective, algorithm).is_some();
    (known || named && !Path::new(name).exists()).then_some((collective, algorithm))
}

/// Returns true if the name stands for a file, and for nothing that is known by it.
pub(crate) fn is_file(name: &str) -> bool {
    let known = || is_collective(name) || own::find(name).is_some() || entry(name).is_some();
    is_path(name) || !known()
}

/// Returns a note if the name is not taken as a file, but a file has it too.
pub(crate) fn shadowed(name: &str) -> Option<String> {
    let file = !is_file(name) && Path::new(name).is_file();
    file.then(|| format!("note: `{name}` is not the file of that name here, which is `./{name}`"))
}

fn library(collective: &str, name: &str) -> Result<LoadedInput, VerbError> {
    let Some((source, text)) = AlgorithmLibrary.algorithm(collective, name) else {
        return Err(refused(unknown(collective, name)));
    };
    let mut loaded = programs(source, text)?;
    loaded.programs.retain(|p| p.name == name && p.kind.name() == collective);
    Ok(LoadedInput::Programs(loaded))
}

/// Returns all algorithms that the library has for a collective.
fn library_of(collective: &str) -> Result<LoadedInput, VerbError> {
    let mut all = LoadedPrograms { sources: SourceMap::new(), programs: Vec::new() };
    for e in roundelay_algorithms::of(collective) {
        let id = all.sources.add(format!("library:{}", e.path), e.text);
        match resolve(&mut all.sources, id, &AlgorithmFiles) {
            Ok(programs) => all.programs.extend(programs),
            Err(found) => return Err(VerbError::Input(Box::new(all.sources), found)),
        }
    }
    Ok(LoadedInput::Programs(all))
}

fn unknown(collective: &str, name: &str) -> Diagnostic {
    if !is_collective(collective) {
        let d = fault(
            codes::UNKNOWN_COLLECTIVE,
            format!("`{collective}.{name}`: no collective is named `{collective}`, and no file is"),
        );
        let names = COLLECTIVES.iter().map(|(n, _)| *n);
        return match similar(collective, names.clone()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d.help(format!("known are {}", names.collect::<Vec<_>>().join(", "))),
        };
    }
    let d = fault(
        codes::UNKNOWN_ALGORITHM,
        format!("the algorithm library has no `{collective}.{name}`"),
    );
    let names: Vec<&str> = roundelay_algorithms::of(collective).map(|e| e.name).collect();
    match similar(name, names.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{collective}.{near}`?")),
        None => d.help(format!("for {collective} it has {}", names.join(", "))),
    }
}

fn file(name: &str) -> Result<LoadedInput, VerbError> {
    let bytes = bytes(Path::new(name)).map_err(refused)?;
    if bytes.starts_with(PLAN_MAGIC) || name.ends_with(".plan") {
        return Plan::decode(&bytes)
            .map(|plan| LoadedInput::Plan(Box::new(plan)))
            .map_err(|e| refused(fault(codes::PLAN_DAMAGED, format!("{name}: {e}"))));
    }
    match check_text(&bytes) {
        Ok(text) => programs(name.into(), text.into()).map(LoadedInput::Programs),
        Err(d) => Err(refused(d.note(format!("in {name}")))),
    }
}

fn programs(name: String, text: String) -> Result<LoadedPrograms, VerbError> {
    let mut sources = SourceMap::new();
    let id = sources.add(name.clone(), text);
    match resolve(&mut sources, id, &AlgorithmFiles) {
        Ok(programs) if programs.is_empty() => {
            let d = fault(codes::EMPTY, format!("{name} declares no algorithm"));
            Err(VerbError::Input(Box::new(sources), vec![d]))
        }
        Ok(programs) => Ok(LoadedPrograms { sources, programs }),
        Err(found) => Err(VerbError::Input(Box::new(sources), found)),
    }
}

/// Keeps the algorithm of that name.
fn narrow(mut loaded: LoadedPrograms, wanted: &str) -> Result<LoadedPrograms, VerbError> {
    let names: Vec<String> = loaded.programs.iter().map(|p| p.name.clone()).collect();
    loaded
        .programs
        .retain(|p| p.name == wanted || format!("{}.{}", p.kind.name(), p.name) == wanted);
    if !loaded.programs.is_empty() {
        return Ok(loaded);
    }
    let d = fault(codes::UNKNOWN_ALGORITHM, format!("no algorithm is named `{wanted}` there"));
    Err(refused(match similar(wanted, names.iter().map(String::as_str)) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("there are {}", names.join(", "))),
    }))
}

/// Returns the text of a file that holds one.
pub(crate) fn text(path: &Path) -> Result<String, Diagnostic> {
    let bytes = bytes(path)?;
    match check_text(&bytes) {
        Ok(text) => Ok(text.into()),
        Err(d) => Err(d.note(format!("in {}", path.display()))),
    }
}

/// Returns the bytes of a file, unless there are too many for a text, or for a plan.
fn bytes(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    let fail = |why: &str| fault(codes::FILE, format!("{}: {why}", path.display()));
    let mut file = std::fs::File::open(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => missing(path),
        _ => fail(&e.to_string()),
    })?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(fail("it is a directory"));
    }
    let mut bytes = Vec::new();
    let mut read = |limit: usize, bytes: &mut Vec<u8>| {
        // One byte more than allowed shows that there are too many.
        file.by_ref().take((limit + 1 - bytes.len()) as u64).read_to_end(bytes)
    };
    read(MAX_BYTES, &mut bytes).map_err(|e| fail(&e.to_string()))?;
    if bytes.len() > MAX_BYTES && bytes.starts_with(PLAN_MAGIC) {
        read(MAX_PLAN_BYTES, &mut bytes).map_err(|e| fail(&e.to_string()))?;
    } else if bytes.len() > MAX_BYTES {
        return Err(fault(
            codes::TOO_LARGE,
            format!("{} has more than {MAX_BYTES} bytes", path.display()),
        )
        .help("an algorithm is a page of text; is this the right file?"));
    }
    Ok(bytes)
}

fn missing(path: &Path) -> Diagnostic {
    let d = fault(codes::FILE, format!("{}: no such file", path.display()));
    let name = path.to_string_lossy();
    let known: Vec<String> =
        CATALOGUE.iter().map(|e| format!("{}.{}", e.collective, e.name)).collect();
    let words = known.iter().map(String::as_str).chain(COLLECTIVES.iter().map(|(n, _)| *n));
    if let Some(near) = similar(&name, own::all().iter().map(Algorithm::name)) {
        return d.help(format!("this program has `{near}`"));
    }
    match similar(&name, words) {
        Some(near) => d.help(format!("the algorithm library has `{near}`")),
        None => d.help(
            "an algorithm of the library is named `collective.name`; `roundelay info` lists them",
        ),
    }
}

/// Returns the ranks for a program where none were asked for: two on each axis of a grid, otherwise the first of
/// [`USUAL_RANKS`] that it allows.
pub(crate) fn default_shape(program: &Arc<Program>) -> Shape {
    let allowed = |&ranks: &u32| {
        let options = CompileOptions::default();
        let instance = ProgramInstance::new(program, &Shape::flat(ranks), &options);
        instance.err().is_none_or(|found| found.iter().all(|d| d.code != codes::REQUIRES))
    };
    match program.axes.names.len() {
        1 => Shape::flat(USUAL_RANKS.into_iter().find(allowed).unwrap_or(USUAL_RANKS[0])),
        axes => Shape { axes: vec![2; axes] },
    }
}

/// Returns the proved plans of a program; of a wrong one, the findings with the guilty place first.
pub(crate) fn proved(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
    placement: BufferPlacement,
) -> Result<ProvedPlans, Diagnostics> {
    compile(program, sources, shape, options, placement)
        .map_err(|found| blame::sharpen(program, sources, shape, options, found))
}

/// Returns true if calls of a collective are in place unless an option says otherwise.
pub(crate) fn in_place(collective: &str) -> bool {
    matches!(collective, "all_reduce" | "broadcast" | "barrier")
}

/// Returns the placement that was asked for, or else the usual one of the collective.
pub(crate) fn placement(collective: &str, inside: bool, outside: bool) -> BufferPlacement {
    match inside || (in_place(collective) && !outside) {
        true => BufferPlacement::InPlace,
        false => BufferPlacement::OutOfPlace,
    }
}
