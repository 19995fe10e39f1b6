//! Parses Rust's tokens to the language's syntax tree. Faults are collected; a statement that cannot be read
//! is left out, and the rest is read on.
//!
//! * `attribute`: what stands in the parentheses of the macros.
//! * `function`: signatures and clauses.
//! * `body`: statements; `chain` those that are chains of calls; `region` which chunks.
//! * `expr`: numbers and truth values.

mod attribute;
mod body;
mod chain;
mod expr;
mod function;
mod region;

pub(crate) use attribute::checks;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use roundelay_dsl::ast::{self, SpannedName};
use roundelay_dsl::diag::{Diagnostic, Diagnostics, ErrorCode, codes};
use roundelay_dsl::span::{SourceId, Span};
use roundelay_dsl::{MAX_DEPTH, too_deep};
use syn::{Ident, ItemFn};

use crate::pieces::SourcePieces;
use crate::prototype::{AttributeWords, MacroRole, MarkedFunction, PrototypeAlgorithm};

/// A fault at tokens (Rust's own syntax) or in the pieces (ours).
pub(crate) enum ParseFault {
    /// Rust's tokens cannot be read.
    Rust(syn::Error),
    /// The texts, and what is wrong with them.
    Ours(Box<SourcePieces>, Diagnostics),
}

impl From<syn::Error> for ParseFault {
    fn from(e: syn::Error) -> Self {
        ParseFault::Rust(e)
    }
}

/// Longer functions are refused.
const MAX_TOKENS: usize = 100_000;

/// Reads a marked function, before its body is looked at.
pub(crate) fn signature(marked: &MarkedFunction) -> Result<(AttributeWords, ItemFn), ParseFault> {
    if let Some(place) = too_large(&marked.item) {
        let text = format!("[{}] the function is too large or nested too deep", codes::TOO_LARGE);
        return Err(syn::Error::new(place, text).into());
    }
    let function: ItemFn = syn::parse2(marked.item.clone())?;
    Ok((attribute::attribute(marked.role, marked.attribute.clone())?, function))
}

/// Reads an algorithm with everything that it uses, in the order in which it was found.
pub(crate) fn prototype(
    main: &MarkedFunction,
    with: &[MarkedFunction],
) -> Result<PrototypeAlgorithm, ParseFault> {
    let (attribute, function) = signature(main)?;
    let mut pieces = SourcePieces::default();
    let mut faults = Diagnostics::new();
    let mut items = Vec::new();
    let mut imports = Vec::new();
    let mut parts = Vec::new();
    for marked in with {
        let (attribute, function) = signature(marked)?;
        parts.extend(attribute.collective.map(|c| (function.sig.ident.to_string(), c.to_string())));
    }
    for marked in std::iter::once(main).chain(with) {
        let (attribute, function) = signature(marked)?;
        let tokens = &marked.item;
        let mut whole = TokenStream::new();
        if let Some(collective) = &attribute.collective {
            whole.extend(collective.to_token_stream());
        }
        for path in &attribute.imports {
            whole.extend(path.to_token_stream());
        }
        for parameter in &attribute.parameters {
            whole.extend(parameter.tokens.clone());
        }
        whole.extend(without_attributes(tokens, &function));
        let id = pieces.add(&whole);
        let faults_here = Diagnostics::new();
        let mut parser =
            PieceParser { pieces: &pieces, parts: &parts, id, faults: faults_here, depth: 0 };
        for path in &attribute.imports {
            let span = parser.span(path);
            let import = ast::ImportDecl { path: path.value(), path_span: span, span };
            imports.push(ast::FileDeclaration::Import(import));
        }
        parser.function(marked.role, &attribute, &function, &mut items);
        faults.append(&mut parser.faults);
    }
    if !faults.is_empty() {
        return Err(ParseFault::Ours(Box::new(pieces), faults));
    }
    items.append(&mut imports);
    let span = Span { source: SourceId(0), start: 0, end: 0 };
    let docs = function::docs(&function.attrs);
    let tree = ast::SourceFile { docs, items, span };
    Ok(PrototypeAlgorithm { function, check: attribute.check, tree, pieces })
}

/// Returns a function's tokens from its visibility on.
fn without_attributes(item: &TokenStream, function: &ItemFn) -> TokenStream {
    // An attribute is `#` and a group.
    item.clone().into_iter().skip(2 * function.attrs.len()).collect()
}

/// Returns the first token beyond the limits.
fn too_large(tokens: &TokenStream) -> Option<proc_macro2::Span> {
    let mut open = vec![tokens.clone().into_iter()];
    let (mut count, mut signs) = (0, 0);
    while let Some(top) = open.last_mut() {
        let Some(tree) = top.next() else {
            open.pop();
            continue;
        };
        count += 1;
        signs = if matches!(tree, TokenTree::Punct(_)) { signs + 1 } else { 0 };
        if count > MAX_TOKENS || open.len() > MAX_DEPTH || signs > MAX_DEPTH {
            return Some(tree.span());
        }
        if let TokenTree::Group(g) = tree {
            open.push(g.stream().into_iter());
        }
    }
    None
}

/// Reads one piece.
struct PieceParser<'p> {
    pieces: &'p SourcePieces,
    /// Algorithms of `with(…)`, and what they implement.
    parts: &'p [(String, String)],
    id: SourceId,
    faults: Diagnostics,
    /// The depth in blocks and operators.
    depth: usize,
}

impl PieceParser<'_> {
    fn span(&self, node: &impl ToTokens) -> Span {
        self.pieces.span(self.id, node)
    }

    fn name(&self, ident: &Ident) -> SpannedName {
        let text = ident.to_string();
        SpannedName { text: text.trim_start_matches("r#").into(), span: self.span(ident) }
    }

    /// Reports what cannot be understood: what it is, a remark at the place, what to write.
    fn fault<T>(
        &mut self,
        code: ErrorCode,
        node: &impl ToTokens,
        message: impl Into<String>,
        remark: &str,
        help: impl Into<String>,
    ) -> Option<T> {
        let d = Diagnostic::error(code, message).label(self.span(node), remark).help(help);
        self.faults.push(d);
        None
    }

    /// Reports a part of Rust that the language does not have.
    fn foreign<T>(&mut self, node: &impl ToTokens, what: &str, help: &str) -> Option<T> {
        let message = format!("{what} has no meaning in an algorithm");
        self.fault(codes::SYNTAX, node, message, "not of the language", help)
    }

    /// Runs one level deeper.
    fn deeper<T>(
        &mut self,
        node: &impl ToTokens,
        f: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            let span = self.span(node);
            if self.faults.iter().all(|f| f.code != codes::TOO_LARGE) {
                self.faults.push(too_deep(span));
            }
            return None;
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }
}

/// `{ role (attribute) item }`, as the macros hand it around.
impl syn::parse::Parse for MarkedFunction {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let role: Ident = input.parse()?;
        let attribute;
        syn::parenthesized!(attribute in input);
        let role = if role == "function" { MacroRole::Function } else { MacroRole::Algorithm };
        Ok(MarkedFunction { role, attribute: attribute.parse()?, item: input.parse()? })
    }
}

impl ToTokens for MarkedFunction {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let MarkedFunction { role, attribute, item } = self;
        let role = match role {
            MacroRole::Algorithm => quote::quote!(algorithm),
            MacroRole::Function => quote::quote!(function),
        };
        tokens.extend(quote::quote!(#role (#attribute) #item));
    }
}
