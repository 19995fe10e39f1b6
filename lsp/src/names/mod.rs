//! The names of a text: definitions, and what each use of a name means.
//!
//! Made of the syntax tree alone, so that a text with faults has them too. `table` holds them; `walk` follows
//! the scopes of the language (`docs/language.md`): blocks, loops and `each` have their own, and a `let` is seen from its
//! end on.

mod table;
mod walk;

pub(crate) use table::{NameAt, NameDefinition, NameKind, NameMeaning, NameTable, NameUse};
pub(crate) use walk::names;
