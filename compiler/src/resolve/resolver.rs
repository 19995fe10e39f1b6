//! The resolver: the files of a compilation, what they declare and import, and what was reported of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::ast::{self, FileDeclaration};
use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use super::library::LibrarySource;
use crate::program::{COLLECTIVES, CustomCollective, Program};

/// The declarations of a file, its imports included.
#[derive(Default, Clone)]
pub(super) struct FileScope {
    pub(super) functions: BTreeMap<String, Arc<ast::FnDef>>,
    pub(super) constants: BTreeMap<String, Arc<ast::ConstantDecl>>,
    pub(super) collectives: BTreeMap<String, Arc<ast::CollectiveDecl>>,
    /// By (collective, name).
    pub(super) algorithms: BTreeMap<(String, String), Arc<ast::AlgorithmDecl>>,
}

/// Follows names over all files of one compilation.
pub(crate) struct ProgramResolver<'a> {
    pub(super) sources: &'a mut SourceMap,
    pub(super) library: &'a dyn LibrarySource,
    pub(super) scopes: BTreeMap<SourceId, Arc<FileScope>>,
    /// Every file with all that it imports.
    pub(super) files: BTreeMap<SourceId, Vec<SourceId>>,
    /// The values of constants, by their places; `None` while one is computed, or has none.
    pub(super) constants: BTreeMap<Span, Option<(i64, bool)>>,
    /// Constants being computed, to find recursion.
    pub(super) computing: Vec<Span>,
    pub(super) customs: BTreeMap<(SourceId, String), Arc<CustomCollective>>,
    pub(super) programs: BTreeMap<(SourceId, String, String), Arc<Program>>,
    /// Algorithms being resolved, to find recursion.
    pub(super) stack: Vec<(SourceId, String, String)>,
    /// The blocks around the algorithm being resolved, in those that use it.
    pub(super) nested: usize,
    pub(super) diagnostics: Diagnostics,
}

impl<'a> ProgramResolver<'a> {
    /// Creates a resolver that has read no file yet.
    pub(super) fn new(sources: &'a mut SourceMap, library: &'a dyn LibrarySource) -> Self {
        ProgramResolver {
            sources,
            library,
            scopes: BTreeMap::new(),
            files: BTreeMap::new(),
            constants: BTreeMap::new(),
            computing: Vec::new(),
            customs: BTreeMap::new(),
            programs: BTreeMap::new(),
            stack: Vec::new(),
            nested: 0,
            diagnostics: Vec::new(),
        }
    }
}

impl ProgramResolver<'_> {
    pub(super) fn report(&mut self, d: Diagnostic) {
        if !self.diagnostics.iter().any(|o| o.code == d.code && o.span() == d.span()) {
            self.diagnostics.push(d);
        }
    }

    /// Enters what a file declares, following its imports.
    pub(super) fn declare(
        &mut self,
        id: SourceId,
        file: &ast::SourceFile,
        path: &mut Vec<SourceId>,
    ) {
        let mut scope = FileScope::default();
        let mut files = vec![id];
        path.push(id);
        for item in &file.items {
            if let FileDeclaration::Import(import) = item {
                match self.import(id, import, path) {
                    Some((file, other)) => {
                        files.extend(self.files.get(&file).into_iter().flatten());
                        scope.functions.extend(other.functions.clone());
                        scope.constants.extend(other.constants.clone());
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
                FileDeclaration::Import(_) => continue,
                FileDeclaration::Fn(f) => (format!("function {}", f.name.text), f.name.span),
                FileDeclaration::Constant(c) => (format!("constant {}", c.name.text), c.name.span),
                FileDeclaration::Collective(c) => {
                    (format!("collective {}", c.name.text), c.name.span)
                }
                FileDeclaration::Algorithm(a) => {
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
            if let FileDeclaration::Collective(c) = item
                && COLLECTIVES.iter().any(|(name, _)| *name == c.name.text)
            {
                let message = format!("`{}` is a built-in collective", c.name.text);
                self.report(
                    Diagnostic::error(codes::DUPLICATE_NAME, message)
                        .label(c.name.span, "declared again here")
                        .help("give it another name"),
                );
            }
            match item {
                FileDeclaration::Fn(f) => {
                    scope.functions.insert(f.name.text.clone(), Arc::new(f.clone()));
                }
                FileDeclaration::Constant(c) => {
                    scope.constants.insert(c.name.text.clone(), Arc::new(c.clone()));
                }
                FileDeclaration::Collective(c) => {
                    scope.collectives.insert(c.name.text.clone(), Arc::new(c.clone()));
                }
                FileDeclaration::Algorithm(a) => {
                    let key = (a.collective.text.clone(), a.name.text.clone());
                    scope.algorithms.insert(key, Arc::new(a.clone()));
                }
                FileDeclaration::Import(_) => {}
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
        import: &ast::ImportDecl,
        path: &mut Vec<SourceId>,
    ) -> Option<(SourceId, Arc<FileScope>)> {
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

    pub(super) fn scope(&self, id: SourceId) -> Arc<FileScope> {
        self.scopes.get(&id).cloned().unwrap_or_default()
    }
}
