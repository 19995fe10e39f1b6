//! All that is known of a text without a proof: its tree, its names, its algorithms, and what is wrong with it.

use std::sync::Arc;

use roundelay_compiler::{LibrarySource, Program, resolve_tree};
use roundelay_dsl::ast::{FileDeclaration, SourceFile};
use roundelay_dsl::diag::{Diagnostic, DiagnosticSeverity, Diagnostics};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use crate::names::{NameTable, names};

/// An algorithm of a text, resolved.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedAlgorithm {
    pub(crate) program: Arc<Program>,
    /// All texts that decide what it is: equal keys have equal proofs.
    pub(crate) key: Arc<str>,
}

/// The analysis of one text.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextAnalysis {
    /// The text and all that it imports and uses.
    pub(crate) sources: SourceMap,
    /// The tree, if the text has one.
    pub(crate) file: Option<Arc<SourceFile>>,
    pub(crate) names: NameTable,
    /// Faults and warnings, without those of proofs.
    pub(crate) found: Diagnostics,
    pub(crate) algorithms: Vec<ResolvedAlgorithm>,
}

/// The id of the text itself among the sources.
pub(crate) const OWN: SourceId = SourceId(0);

impl TextAnalysis {
    /// Analyses a text of that name. Of one that breaks the grammar only the faults are known.
    pub(crate) fn new(name: &str, text: &str, library: &dyn LibrarySource) -> Self {
        let mut own = TextAnalysis::default();
        own.sources.add(name, text);
        let file = match roundelay_dsl::parse(&own.sources, OWN) {
            Ok(file) => file,
            Err(found) => return TextAnalysis { found, ..own },
        };
        own.names = names(&file);
        own.found = roundelay_dsl::lint(&file);
        match resolve_tree(&mut own.sources, OWN, &file, library) {
            Ok(programs) => own.algorithms = own.keyed(&file, programs),
            Err(found) => own.found.extend(found),
        }
        own.file = Some(Arc::new(file));
        own
    }

    /// Returns the algorithms with their keys: their own text, and that of all other declarations and files. Of a file
    /// whose algorithms use each other, the whole text is the key of each.
    fn keyed(&self, file: &SourceFile, programs: Vec<Arc<Program>>) -> Vec<ResolvedAlgorithm> {
        let is_algorithm = |item: &&FileDeclaration| matches!(item, FileDeclaration::Algorithm(_));
        let text = |span: Span| self.sources.snippet(span);
        let shared = file.items.iter().filter(|item| !is_algorithm(item));
        let mut shared: Vec<&str> = shared.map(|item| text(item.span())).collect();
        shared.extend(self.sources.iter().skip(1).map(|source| source.text.as_str()));
        let key = |program: &Program| {
            let own = file.items.iter().find_map(|item| match item {
                FileDeclaration::Algorithm(a) if a.header == program.header => Some(a.span),
                _ => None,
            });
            let own = own.filter(|_| !program.composed).map_or(text(file.span), text);
            let parts = [&[own][..], &shared].concat();
            parts.join("\0")
        };
        let with_key = |program: Arc<Program>| {
            let key = key(&program).into();
            ResolvedAlgorithm { program, key }
        };
        programs.into_iter().map(with_key).collect()
    }

    /// Returns true if nothing keeps the algorithms from being proved.
    pub(crate) fn is_sound(&self) -> bool {
        let is_error = |d: &Diagnostic| d.severity == DiagnosticSeverity::Error;
        self.file.is_some() && !self.found.iter().any(is_error)
    }
}

#[cfg(test)]
mod tests {
    use roundelay_compiler::NoLibrary;

    use super::*;

    const TWO: &str = "fn next(r, n) = (r + 1) % n
algorithm one implements barrier on n ranks { for s in 0..n { each r { r -> next(r, n) : copy data } } }
algorithm two implements barrier on n ranks { for s in 0..n-1 { each r { r -> next(r, n) : copy data } } }
";

    fn keys(text: &str) -> Vec<Arc<str>> {
        let found = TextAnalysis::new("a.algo", text, &NoLibrary);
        assert!(found.is_sound(), "{:?}", found.found);
        found.algorithms.into_iter().map(|a| a.key).collect()
    }

    #[test]
    fn a_key_changes_with_what_decides_the_algorithm() {
        let before = keys(TWO);
        assert_ne!(before[0], before[1]);
        let moved = keys(&format!("// a remark\n\n{TWO}"));
        assert_eq!(before, moved, "a remark changes no algorithm");
        let second = keys(&TWO.replace("n-1", "n - 1"));
        assert!(before[0] == second[0] && before[1] != second[1]);
        let both = keys(&TWO.replace("(r + 1) % n", "(r + 1 + 0) % n"));
        assert!(before[0] != both[0] && before[1] != both[1]);
    }

    #[test]
    fn what_breaks_the_grammar_has_faults_only() {
        let found = TextAnalysis::new("a.algo", "algorithm x {", &NoLibrary);
        assert!(found.file.is_none() && !found.is_sound() && found.names.definitions.is_empty());
        assert_eq!(found.found.len(), 1);
    }
}
