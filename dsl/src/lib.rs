//! The roundelay language: text in, syntax tree and diagnostics out.
//!
//! This package knows no rank count, no graph and no fabric, and does no I/O: callers bring text.
//!
//! * [`parse`] makes an [`ast::SourceFile`] of a source, or diagnostics (several, if several declarations fail).
//! * [`print`] formats a text canonically, keeping its comments.
//! * [`lint`] warns of what a text may not mean.
//! * [`diag`] is how every package of the project reports a fault in a user's input.
#![forbid(unsafe_code)]

pub mod ast;
pub mod diag;
mod escape;
mod lex;
mod lint;
mod parse;
mod print;
pub mod span;

pub use escape::escaped;
pub use lint::{lint, lint_algorithm};
pub use parse::{KEYWORDS, MAX_BYTES, MAX_DEPTH, check_text, parse, too_deep, with_stack};
pub use print::format;
