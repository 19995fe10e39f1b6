//! Warns of what a text may say without meaning it, whatever its ranks.
//!
//! A `let` in a loop names its value anew in every turn. One that hides a `let` from outside of the loop looks like an
//! assignment, and is none: each turn sees the outer value again (RL0214).

use crate::ast::{AlgorithmDecl, CollectiveDecl, FileDeclaration, SourceFile, SpannedName, Stmt};
use crate::diag::{Diagnostic, Diagnostics, codes};
use crate::span::Span;

/// Returns the warnings of a file, in the order of its text.
pub fn lint(file: &SourceFile) -> Diagnostics {
    let mut found = Diagnostics::new();
    for item in &file.items {
        match item {
            FileDeclaration::Algorithm(a) => found.extend(lint_algorithm(a)),
            FileDeclaration::Collective(CollectiveDecl { body, .. }) => {
                LetScopes::default().block(body, &mut found);
            }
            FileDeclaration::Import(_) | FileDeclaration::Fn(_) | FileDeclaration::Constant(_) => {}
        }
    }
    found
}

/// Returns the warnings of one algorithm, in the order of its text.
pub fn lint_algorithm(algorithm: &AlgorithmDecl) -> Diagnostics {
    let mut found = Diagnostics::new();
    let mut scopes = LetScopes::default();
    scopes.names.extend(algorithm.lets.iter().map(|(name, _)| (name.clone(), 0)));
    scopes.block(&algorithm.body, &mut found);
    found
}

/// The `let`s that are visible, with the number of loops around each.
#[derive(Default)]
struct LetScopes {
    names: Vec<(SpannedName, usize)>,
    loops: usize,
}

impl LetScopes {
    fn block(&mut self, statements: &[Stmt], found: &mut Diagnostics) {
        let outside = self.names.len();
        for statement in statements {
            match statement {
                Stmt::Let(name, _) => {
                    let hidden = self.names.iter().rev().find(|(n, _)| n.text == name.text);
                    if let Some((first, loops)) = hidden
                        && *loops < self.loops
                    {
                        found.push(shadowed(name, first.span));
                    }
                    self.names.push((name.clone(), self.loops));
                }
                Stmt::For(f) => {
                    self.loops += 1;
                    self.block(&f.body, found);
                    self.loops -= 1;
                }
                Stmt::If(i) => {
                    self.block(&i.then, found);
                    self.block(&i.otherwise, found);
                }
                Stmt::Each(e) => self.block(&e.body, found),
                Stmt::Split(s) => self.block(&s.body, found),
                Stmt::Transfer(_) | Stmt::Use(_) | Stmt::Ensure(_) => {}
            }
        }
        self.names.truncate(outside);
    }
}

fn shadowed(name: &SpannedName, first: Span) -> Diagnostic {
    let text = &name.text;
    Diagnostic::warning(codes::SHADOWED, format!("`{text}` in a loop hides the `{text}` before it"))
        .label(name.span, "another value, up to the end of this turn")
        .label(first, "every turn of the loop begins with this one again")
        .help("a `let` never changes a value: choose another name, or compute it from the loop's variable")
}

#[cfg(test)]
mod tests {
    use super::lint;
    use crate::parse;
    use crate::span::SourceMap;

    /// Returns the texts at which an algorithm with this body is warned of.
    fn warned(body: &str) -> Vec<(u32, u32)> {
        let mut sources = SourceMap::new();
        let text = format!("algorithm a implements all_reduce on n ranks {{ {body} }}");
        let id = sources.add("a.algo", text);
        let file = parse(&sources, id).expect("it parses");
        let found = lint(&file);
        found.iter().map(|d| sources.line_column(d.labels[0].span)).collect()
    }

    #[test]
    fn a_let_that_looks_like_an_assignment_is_warned_of() {
        let named = |body: &str| warned(body).len();
        assert_eq!(named("let d = 1 for s in 0..3 { let d = d * 2 }"), 1);
        assert_eq!(named("let d = 1 chunks d for s in 0..3 { each r { let d = 2 } }"), 1);
        assert_eq!(named("for s in 0..3 { let d = s for t in 0..2 { let d = t } }"), 1);
        assert_eq!(named("for s in 0..3 { let d = s } for s in 0..3 { let d = s }"), 0);
        assert_eq!(named("let d = 1 each r { let d = r }"), 0, "no loop is around it");
        assert_eq!(named("for s in 0..3 { let d = s let d = d + 1 }"), 0, "in one turn");
    }
}
