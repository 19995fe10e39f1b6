//! Syntax tree to [`Program`]: names become slots, `use` and `import` are followed, types checked.
//!
//! Collects diagnostics; stops at the first only where nothing sensible can follow.

mod collective;
mod each;
mod expr;
mod region;
mod stmt;
mod weighted;

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::ast::{self, Item};
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes, similar};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use crate::plan::CopyPolicy;
use crate::program::{Axes, COLLECTIVES, Custom, Kind, Program, Schedule, Slot, Style};

/// A source of the texts that `use` and `import` name. The compiler itself does no I/O.
pub trait Library {
    /// Returns the text of a published algorithm, with the name that messages show.
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)>;
    /// Returns the text of a file named by `import`, relative to the source `from`, with the name that messages show; or
    /// the reason for which it cannot be had, in words.
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String>;
}

/// A library without algorithms.
pub struct NoLibrary;

impl Library for NoLibrary {
    fn algorithm(&self, _: &str, _: &str) -> Option<(String, String)> {
        None
    }
    fn file(&self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("there are no files here".into())
    }
}

/// The declarations of a file, its imports included.
#[derive(Default, Clone)]
struct Scope {
    functions: BTreeMap<String, Arc<ast::FnDef>>,
    collectives: BTreeMap<String, Arc<ast::Collective>>,
    /// By (collective, name).
    algorithms: BTreeMap<(String, String), Arc<ast::Algorithm>>,
}

/// Follows names over all files of one compilation.
pub(crate) struct Resolver<'a> {
    sources: &'a mut SourceMap,
    library: &'a dyn Library,
    scopes: BTreeMap<SourceId, Arc<Scope>>,
    /// Every file with all that it imports.
    files: BTreeMap<SourceId, Vec<SourceId>>,
    customs: BTreeMap<(SourceId, String), Arc<Custom>>,
    programs: BTreeMap<(SourceId, String, String), Arc<Program>>,
    /// Algorithms being resolved, to find recursion.
    stack: Vec<(SourceId, String, String)>,
    /// The blocks around the algorithm being resolved, in those that use it.
    nested: usize,
    diagnostics: Diagnostics,
}

/// More faults than this are counted, and not shown.
const MOST_SHOWN: usize = 50;

/// Resolves every algorithm that the source declares (not those of its imports), in order.
pub fn resolve(
    sources: &mut SourceMap,
    id: SourceId,
    library: &dyn Library,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    let file = roundelay_dsl::parse(sources, id)?;
    resolve_tree(sources, id, &file, library)
}

/// Resolves every algorithm of a syntax tree, in order. Its declarations may come from several sources
/// of the map; `id` is the one that its imports are relative to.
pub fn resolve_tree(
    sources: &mut SourceMap,
    id: SourceId,
    file: &ast::File,
    library: &dyn Library,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    roundelay_dsl::with_stack(|| resolve_within(sources, id, file, library))
}

fn resolve_within(
    sources: &mut SourceMap,
    id: SourceId,
    file: &ast::File,
    library: &dyn Library,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    let mut resolver = Resolver {
        sources,
        library,
        scopes: BTreeMap::new(),
        files: BTreeMap::new(),
        customs: BTreeMap::new(),
        programs: BTreeMap::new(),
        stack: Vec::new(),
        nested: 0,
        diagnostics: Vec::new(),
    };
    resolver.declare(id, file, &mut Vec::new());
    let mut programs = Vec::new();
    for item in &file.items {
        match item {
            Item::Algorithm(a) => {
                programs.extend(resolver.program(
                    id,
                    &a.collective.text,
                    &a.name.text,
                    a.name.span,
                ));
            }
            Item::Collective(c) => drop(resolver.custom(id, &c.name.text)),
            Item::Fn(f) => resolver.check_function(id, f),
            Item::Import(_) => {}
        }
    }
    let mut found = resolver.diagnostics;
    let more = found.len().saturating_sub(MOST_SHOWN);
    found.truncate(MOST_SHOWN);
    if let (1.., Some(last)) = (more, found.last_mut()) {
        last.notes.push(format!("and {more} more"));
    }
    if found.is_empty() { Ok(programs) } else { Err(found) }
}

impl Resolver<'_> {
    fn report(&mut self, d: Diagnostic) {
        if !self.diagnostics.iter().any(|o| o.code == d.code && o.span() == d.span()) {
            self.diagnostics.push(d);
        }
    }

    /// Enters what a file declares, following its imports.
    fn declare(&mut self, id: SourceId, file: &ast::File, path: &mut Vec<SourceId>) {
        let mut scope = Scope::default();
        let mut files = vec![id];
        path.push(id);
        for item in &file.items {
            if let Item::Import(import) = item {
                match self.import(id, import, path) {
                    Some((file, other)) => {
                        files.extend(self.files.get(&file).into_iter().flatten());
                        scope.functions.extend(other.functions.clone());
                        scope.collectives.extend(other.collectives.clone());
                        scope.algorithms.extend(other.algorithms.clone());
                    }
                    None => continue,
                }
            }
        }
        let mut seen: BTreeMap<String, Span> = BTreeMap::new();
        for item in &file.items {
            let (key, span) = match item {
                Item::Import(_) => continue,
                Item::Fn(f) => (format!("function {}", f.name.text), f.name.span),
                Item::Collective(c) => (format!("collective {}", c.name.text), c.name.span),
                Item::Algorithm(a) => {
                    (format!("algorithm {}.{}", a.collective.text, a.name.text), a.name.span)
                }
            };
            if let Some(first) = seen.insert(key.clone(), span) {
                self.report(
                    Diagnostic::error(codes::DUPLICATE_NAME, format!("{key} is declared twice"))
                        .label(span, "again here")
                        .label(first, "first declared here")
                        .help("rename one of them"),
                );
            }
            match item {
                Item::Fn(f) => {
                    scope.functions.insert(f.name.text.clone(), Arc::new(f.clone()));
                }
                Item::Collective(c) => {
                    scope.collectives.insert(c.name.text.clone(), Arc::new(c.clone()));
                }
                Item::Algorithm(a) => {
                    let key = (a.collective.text.clone(), a.name.text.clone());
                    scope.algorithms.insert(key, Arc::new(a.clone()));
                }
                Item::Import(_) => {}
            }
        }
        path.pop();
        let homes: Vec<SourceId> = file.items.iter().map(|i| i.span().source).collect();
        files.extend(&homes);
        files.sort_unstable();
        files.dedup();
        let scope = Arc::new(scope);
        for home in homes.into_iter().chain([id]) {
            self.files.insert(home, files.clone());
            self.scopes.insert(home, scope.clone());
        }
    }

    fn import(
        &mut self,
        from: SourceId,
        import: &ast::Import,
        path: &mut Vec<SourceId>,
    ) -> Option<(SourceId, Arc<Scope>)> {
        let name = self.sources.get(from).name.clone();
        let fail = |why: String| {
            Diagnostic::error(codes::IMPORT, format!("cannot import `{}`: {why}", import.path))
                .label(import.path_span, "imported here")
                .help("paths are relative to the importing file")
        };
        let (name, text) = match self.library.file(&name, &import.path) {
            Ok(found) => found,
            Err(why) => {
                self.report(fail(why));
                return None;
            }
        };
        let id = self.sources.find(&name).unwrap_or_else(|| self.sources.add(name, text));
        if path.contains(&id) {
            self.report(
                fail("the file imports itself".into()).help("move what both need to a third file"),
            );
            return None;
        }
        if !self.scopes.contains_key(&id) {
            match roundelay_dsl::parse(self.sources, id) {
                Ok(file) => self.declare(id, &file, path),
                Err(found) => {
                    self.diagnostics.extend(found);
                    return None;
                }
            }
        }
        self.scopes.get(&id).map(|s| (id, s.clone()))
    }

    fn scope(&self, id: SourceId) -> Arc<Scope> {
        self.scopes.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the collective of that name as a file sees it.
    fn kind(&mut self, id: SourceId, name: &ast::Name) -> Option<Kind> {
        if let Some((_, kind)) = COLLECTIVES.iter().find(|(n, _)| *n == name.text) {
            return Some(kind.clone());
        }
        if self.scope(id).collectives.contains_key(&name.text) {
            return self.custom(id, &name.text).map(Kind::Custom);
        }
        let known: Vec<String> = COLLECTIVES.iter().map(|(n, _)| n.to_string()).collect();
        let scope = self.scope(id);
        let all: Vec<&str> = known
            .iter()
            .map(String::as_str)
            .chain(scope.collectives.keys().map(String::as_str))
            .collect();
        let mut d = Diagnostic::error(
            codes::UNKNOWN_COLLECTIVE,
            format!("no collective is named `{}`", name.text),
        )
        .label(name.span, "not known");
        d = match similar(&name.text, all.iter().copied()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d.help(format!(
                "known are {}; or declare `collective {} on …`",
                known.join(", "),
                name.text
            )),
        };
        self.report(d);
        None
    }

    /// Finds `collective.name` in the file, its imports, then the library; resolves it.
    fn program(
        &mut self,
        from: SourceId,
        collective: &str,
        name: &str,
        at: Span,
    ) -> Option<Arc<Program>> {
        let key = (collective.to_string(), name.to_string());
        let mut home = from;
        let mut found = self.scope(from).algorithms.get(&key).cloned();
        if let Some(a) = &found {
            home = a.span.source;
        } else if let Some((source, text)) = self.library.algorithm(collective, name) {
            home = self.sources.find(&source).unwrap_or_else(|| self.sources.add(source, text));
            if !self.scopes.contains_key(&home) {
                match roundelay_dsl::parse(self.sources, home) {
                    Ok(file) => self.declare(home, &file, &mut Vec::new()),
                    Err(d) => {
                        self.diagnostics.extend(d);
                        return None;
                    }
                }
            }
            found = self.scope(home).algorithms.get(&key).cloned();
        }
        let Some(algorithm) = found else {
            let scope = self.scope(from);
            let near: Vec<&str> = scope
                .algorithms
                .keys()
                .filter(|k| k.0 == collective)
                .map(|k| k.1.as_str())
                .collect();
            let mut d = Diagnostic::error(
                codes::UNKNOWN_ALGORITHM,
                format!("no algorithm `{collective}.{name}` in this file, its imports or the algorithm library"),
            )
            .label(at, "used here")
            .help("`roundelay info` lists the algorithm library");
            if let Some(near) = similar(name, near.iter().copied()) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            self.report(d);
            return None;
        };
        let key = (home, key.0, key.1);
        if let Some(done) = self.programs.get(&key) {
            return Some(done.clone());
        }
        if self.stack.contains(&key) {
            self.report(
                Diagnostic::error(codes::RECURSION, format!("`{collective}.{name}` uses itself"))
                    .label(at, "used again here")
                    .help("an algorithm may only use others; write the recursion as a `for`"),
            );
            return None;
        }
        self.stack.push(key.clone());
        let before = self.diagnostics.len();
        let program = stmt::program(self, home, &algorithm);
        self.stack.pop();
        let program = Arc::new(program?);
        if self.diagnostics.len() == before {
            self.programs.insert(key, program.clone());
        }
        Some(program)
    }
}

/// Returns the default schedule.
fn no_schedule() -> Schedule {
    Schedule { pipeline: None, channels: None, slots: None, protocol: CopyPolicy::Auto, span: None }
}

/// Allocates slots and finds variables by name, innermost first.
struct Names {
    slots: Vec<String>,
    visible: Vec<(String, Slot, bool)>,
}

impl Names {
    fn new() -> Self {
        Names { slots: Vec::new(), visible: Vec::new() }
    }

    /// Adds a slot without a name that users see.
    fn hidden(&mut self) -> Slot {
        self.slots.push(String::new());
        self.last()
    }

    /// Adds a variable; `truth` if it holds a truth value.
    fn bind(&mut self, name: &str, truth: bool) -> Slot {
        self.slots.push(name.to_string());
        let slot = self.last();
        self.visible.push((name.to_string(), slot, truth));
        slot
    }

    /// Returns the newest slot. Where there are more than can be numbered, [`Names::full`] tells, and the
    /// program is refused.
    fn last(&self) -> Slot {
        Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
    }

    /// Returns a refusal if there are more variables than slots.
    fn full(&self, at: Span) -> Option<Diagnostic> {
        let most = usize::from(Slot::MAX) + 1;
        (self.slots.len() > most).then(|| {
            Diagnostic::error(
                codes::TOO_LARGE,
                format!("{} variables, those of its functions included", self.slots.len()),
            )
            .label(at, "declared here")
            .help(format!("at most {most} are possible: use loops, or several algorithms"))
        })
    }

    fn find(&self, name: &str) -> Option<(Slot, bool)> {
        self.visible.iter().rev().find(|(n, _, _)| n == name).map(|&(_, s, t)| (s, t))
    }
}

/// Declares the ranks: slot 0 is their number.
fn axes(names: &mut Names, axes: &ast::Axes) -> Axes {
    match axes {
        ast::Axes::Flat(name) => {
            let slot = names.bind(&name.text, false);
            Axes { names: vec![name.text.clone()], sizes: vec![slot], grid: false }
        }
        ast::Axes::Grid(list, _) => {
            names.hidden();
            let sizes =
                list.iter().map(|a| names.bind(&format!("{}.size", a.text), false)).collect();
            Axes { names: list.iter().map(|a| a.text.clone()).collect(), sizes, grid: true }
        }
    }
}

/// Returns the style of a body that names `data`, or input and output.
fn style(data: bool) -> Style {
    if data { Style::Data } else { Style::InputOutput }
}
