//! Algorithms of the library with arguments: `k_nomial(k = 4)` is an entry like any other.
//!
//! Parameters of the library have bounds, so there are finitely many such entries. Each is made when it is first asked
//! for, and is kept as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use roundelay_compiler::program::{ArgumentValue, ArgumentedName};
use roundelay_compiler::{Program, resolve};
use roundelay_dsl::span::SourceMap;

use crate::catalogue::{AlgorithmLibrary, CATALOGUE, CatalogueEntry, plain};

/// More instances of one algorithm than this are not listed.
const INSTANCES_MAX: usize = 64;

/// A program with the texts that its diagnostics point into.
pub type LibraryProgram = (SourceMap, Arc<Program>);

/// Returns the program of an entry, resolved once in a process; `None` if its text is wrong.
pub fn program(entry: &CatalogueEntry) -> Option<&'static LibraryProgram> {
    type ResolvedProgram = Option<LibraryProgram>;
    static PROGRAMS: OnceLock<Vec<OnceLock<ResolvedProgram>>> = OnceLock::new();
    if entry.name.contains('(') {
        let made = instances().lock().unwrap_or_else(PoisonError::into_inner);
        return made.get(&(entry.path, entry.name.to_owned())).map(|made| &made.program);
    }
    let all = PROGRAMS.get_or_init(|| CATALOGUE.iter().map(|_| OnceLock::new()).collect());
    let at = CATALOGUE.iter().position(|e| e.path == entry.path)?;
    let resolved = all.get(at)?.get_or_init(|| {
        let mut sources = SourceMap::new();
        let id = sources.add(format!("library:{}", entry.path), entry.text);
        let programs = resolve(&mut sources, id, &AlgorithmLibrary).ok()?;
        Some((sources, programs.into_iter().find(|p| p.name == entry.name)?))
    });
    resolved.as_ref()
}

/// An entry with arguments, and its program.
struct LibraryInstance {
    entry: CatalogueEntry,
    program: LibraryProgram,
}

type KnownInstances = BTreeMap<(&'static str, String), &'static LibraryInstance>;

fn instances() -> &'static Mutex<KnownInstances> {
    static INSTANCES: Mutex<KnownInstances> = Mutex::new(BTreeMap::new());
    &INSTANCES
}

/// The algorithm of this name, if the algorithm library has it; the name may have arguments, as `k_nomial(k = 4)` does.
pub fn find(collective: &str, name: &str) -> Option<&'static CatalogueEntry> {
    match name.contains('(') {
        true => instance(collective, name).ok(),
        false => plain(collective, name),
    }
}

/// Returns the entry of a name with arguments, such as `k_nomial(k = 4)`. Its own name has the arguments that are not
/// the default, as [`Program::name`] does.
///
/// # Errors
///
/// The reason in words: there is no such algorithm or parameter, or a value is out of its bounds.
pub fn instance(collective: &str, name: &str) -> Result<&'static CatalogueEntry, String> {
    let ArgumentedName { name, arguments } = name.parse()?;
    let missing = || format!("the algorithm library has no {collective}.{name}");
    let entry = plain(collective, &name).ok_or_else(missing)?;
    let (sources, program) = program(entry).ok_or_else(missing)?;
    let made = program.with_arguments(&arguments).map_err(|d| {
        let helps = d.helps.iter().map(|help| format!("; {help}"));
        std::iter::once(d.message.clone()).chain(helps).collect::<String>()
    })?;
    if made.name == entry.name {
        return Ok(entry);
    }
    let mut known = instances().lock().unwrap_or_else(PoisonError::into_inner);
    let instance = known.entry((entry.path, made.name.clone())).or_insert_with(|| {
        let name: &'static str = Box::leak(made.name.clone().into_boxed_str());
        let entry = CatalogueEntry { name, ..*entry };
        Box::leak(Box::new(LibraryInstance { entry, program: (sources.clone(), made.clone()) }))
    });
    Ok(&instance.entry)
}

/// Returns an entry with every value that the bounds of its parameters allow, the default first.
pub fn sweep(entry: &'static CatalogueEntry) -> Vec<&'static CatalogueEntry> {
    let mut all = vec![entry];
    let Some((_, program)) = program(entry) else { return all };
    let mut rows: Vec<Vec<(String, ArgumentValue)>> = vec![Vec::new()];
    for parameter in &program.parameters {
        let values: Vec<ArgumentValue> = match (parameter.default, parameter.bounds) {
            (ArgumentValue::Truth(_), _) => [false, true].map(ArgumentValue::Truth).into(),
            (_, Some((least, most))) => (least..=most).map(ArgumentValue::Number).collect(),
            (default, None) => vec![default],
        };
        let with = |row: &Vec<(String, ArgumentValue)>, value: &ArgumentValue| {
            let own = (parameter.name.clone(), *value);
            row.iter().cloned().chain([own]).collect()
        };
        rows = rows.iter().flat_map(|row| values.iter().map(|v| with(row, v))).collect();
        rows.truncate(INSTANCES_MAX);
    }
    for arguments in rows {
        let name = ArgumentedName { name: entry.name.into(), arguments }.to_string();
        let made = instance(entry.collective, &name).ok();
        all.extend(made.filter(|made| made.name != entry.name));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_arguments_are_entries() {
        let four = find("broadcast", "k_nomial(k=4)").expect("an instance");
        assert_eq!((four.name, four.collective), ("k_nomial(k = 4)", "broadcast"));
        assert!(std::ptr::eq(four, find("broadcast", " k_nomial( k = 4 ) ").expect("the same")));
        assert_eq!(program(four).expect("resolved").1.name, "k_nomial(k = 4)");
        let plain = find("broadcast", "k_nomial").expect("it is listed");
        assert!(std::ptr::eq(plain, find("broadcast", "k_nomial(k = 2)").expect("the default")));
        let names: Vec<&str> = sweep(plain).iter().map(|e| e.name).collect();
        assert_eq!((names.len(), names[0], names[6]), (7, "k_nomial", "k_nomial(k = 8)"));
        assert_eq!(sweep(find("broadcast", "chain").expect("it is listed")).len(), 1);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let why = |name| instance("broadcast", name).expect_err(name);
        assert!(
            why("k_nomial(k = 9)").contains("k goes from 2 to 8"),
            "{}",
            why("k_nomial(k = 9)")
        );
        assert!(why("k_nomial(kk = 4)").contains("its parameters are k"));
        assert!(why("k_nomial(k = 2, k = 3)").contains("given twice"));
        assert!(why("k_nomial(k = true)").contains("is a number"));
        assert!(why("k_nomial(k)").contains("is no argument"));
        assert!(why("k_nomial(k = 4").contains("no `)`"));
        assert!(why("chain(k = 4)").contains("has no parameter `k`"));
        assert!(why("tree(k = 4)").contains("has no broadcast.tree"));
    }

    #[test]
    fn every_parameter_of_the_library_has_bounds() {
        for entry in CATALOGUE {
            let (_, program) = program(entry).expect("it resolves");
            for p in &program.parameters {
                let bounded = p.bounds.is_some() || matches!(p.default, ArgumentValue::Truth(_));
                assert!(bounded, "{}: {} has no bounds", entry.path, p.name);
            }
            assert!(sweep(entry).len() <= INSTANCES_MAX, "{}", entry.path);
        }
    }
}
