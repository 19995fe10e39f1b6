//! Represents one algorithm with all that it uses, between Rust's tokens and the compiler.

use proc_macro2::TokenStream;
use roundelay_compiler::Shape;
use roundelay_dsl::ast;
use syn::{Expr, Ident, ItemFn, Path};

use crate::pieces::SourcePieces;

/// The macro that marked a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MacroRole {
    /// `#[algorithm]`
    Algorithm,
    /// `#[algorithm_fn]`
    Function,
}

/// The words between the parentheses of the attribute.
#[derive(Clone, Default)]
pub(crate) struct AttributeWords {
    /// The collective; an algorithm has one.
    pub(crate) collective: Option<Ident>,
    /// The algorithms and functions that it uses.
    pub(crate) with: Vec<Path>,
    /// Files that it imports.
    pub(crate) imports: Vec<syn::LitStr>,
    /// The shapes at which it is to be proved, if not at the usual rank counts.
    pub(crate) check: Option<Vec<Shape>>,
    /// The defaults and bounds of its parameters.
    pub(crate) parameters: Vec<MacroParameter>,
}

/// `k = 2 in 2..=8`: the default and the bounds of a parameter.
#[derive(Clone)]
pub(crate) struct MacroParameter {
    pub(crate) name: Ident,
    pub(crate) default: Expr,
    pub(crate) bounds: Option<(Expr, Expr)>,
    /// All of it.
    pub(crate) tokens: TokenStream,
}

/// A marked function as the macros hand it around: `{ role (attribute) item }`.
#[derive(Clone)]
pub(crate) struct MarkedFunction {
    pub(crate) role: MacroRole,
    pub(crate) attribute: TokenStream,
    pub(crate) item: TokenStream,
}

/// An algorithm, parsed, with everything that was named in `with(…)`.
pub(crate) struct PrototypeAlgorithm {
    /// The function, for what is emitted beside the bytes.
    pub(crate) function: ItemFn,
    /// The shapes at which it is to be proved, if not at the usual rank counts.
    pub(crate) check: Option<Vec<Shape>>,
    /// The algorithm first.
    pub(crate) tree: ast::SourceFile,
    /// The texts of the functions, and the way back from their bytes to tokens.
    pub(crate) pieces: SourcePieces,
}
