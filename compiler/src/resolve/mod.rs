//! Syntax tree to [`Program`]: names become slots, `use` and `import` are followed, types checked.
//!
//! Collects diagnostics; stops at the first only where nothing sensible can follow.
//!
//! * `library`: where texts that others name come from.
//! * `resolver`: the files of a compilation, their declarations and imports, and the findings so far.
//! * `names`, `body`: variables and their slots, and what the statements of one algorithm share.
//! * `constant`: values of the top level, which depend on no rank.
//! * `parameter`: parameters of algorithms, and the arguments of a `use`.
//! * `expr`, `region`: expressions, ranks and chunks.
//! * `algorithm`: finds an algorithm by name, and resolves its clauses.
//! * `stmt`, `each`, `weighted`: its statements; bodies of `each` become rules; where a split by bandwidth may stand.
//! * `collective`: declared collectives.

mod algorithm;
mod body;
mod collective;
mod constant;
mod each;
mod expr;
mod library;
mod names;
mod parameter;
mod region;
mod resolver;
mod stmt;
mod weighted;

pub use library::{LibrarySource, NoLibrary};

use std::sync::Arc;

use roundelay_dsl::ast::{self, FileDeclaration};
use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::{SourceId, SourceMap};

use crate::program::Program;
use resolver::ProgramResolver;

/// More faults than this are counted, and not shown.
const MOST_SHOWN: usize = 50;

/// Resolves every algorithm that the source declares (not those of its imports), in order.
pub fn resolve(
    sources: &mut SourceMap,
    id: SourceId,
    library: &dyn LibrarySource,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    let file = roundelay_dsl::parse(sources, id)?;
    resolve_tree(sources, id, &file, library)
}

/// Resolves every algorithm of a syntax tree, in order. Its declarations may come from several sources
/// of the map; `id` is the one that its imports are relative to.
pub fn resolve_tree(
    sources: &mut SourceMap,
    id: SourceId,
    file: &ast::SourceFile,
    library: &dyn LibrarySource,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    roundelay_dsl::with_stack(|| resolve_within(sources, id, file, library))
}

fn resolve_within(
    sources: &mut SourceMap,
    id: SourceId,
    file: &ast::SourceFile,
    library: &dyn LibrarySource,
) -> Result<Vec<Arc<Program>>, Diagnostics> {
    let mut resolver = ProgramResolver::new(sources, library);
    resolver.declare(id, file, &mut Vec::new());
    let mut programs = Vec::new();
    for item in &file.items {
        match item {
            FileDeclaration::Algorithm(a) => {
                programs.extend(resolver.program(
                    id,
                    &a.collective.text,
                    &a.name.text,
                    a.name.span,
                ));
            }
            FileDeclaration::Collective(c) => drop(resolver.custom(id, &c.name.text)),
            FileDeclaration::Fn(f) => resolver.check_function(id, f),
            FileDeclaration::Constant(c) => drop(resolver.constant(c)),
            FileDeclaration::Import(_) => {}
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
