//! Emits the macros' output: bytes and the value that carries them, and the function itself for the type
//! checker and for editors (`shadow`), or what is wrong (`fault`).
//!
//! A macro sees its own tokens only. So a marked function also becomes a `macro_rules!` of its name that
//! hands over its tokens: an algorithm with `with(a, b)` expands to a call of `a!`, which expands to
//! `with! { { a } { algorithm } }`, and so on until nothing is missing.

mod fault;
mod shadow;

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use roundelay_algorithms::import::read_regular;
use roundelay_compiler::EmbeddedAlgorithm;
use roundelay_dsl::span::SourceMap;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, ItemFn, LitStr, Path, Visibility, braced};

use crate::parse;
use crate::prototype::{MacroRole, MarkedFunction, PrototypeAlgorithm};
use crate::prove::{LibraryFiles, prove};

/// Expands `#[algorithm(…)]` and `#[algorithm_fn]`.
pub(crate) fn attribute(role: MacroRole, attribute: TokenStream, item: TokenStream) -> TokenStream {
    let marked = MarkedFunction { role, attribute, item };
    match parse::signature(&marked) {
        Ok((_, function)) => {
            // The shadow in it comes before the tokens that are handed over, for editors.
            let next = next(&marked, &[]);
            let handed = handed_over(&marked, &function.sig.ident);
            quote!(#next #handed)
        }
        Err(fault) => failed(&marked, &fault::tokens(&fault)),
    }
}

/// Expands `with! { { newest } … { oldest } { algorithm } }`.
pub(crate) fn with(input: TokenStream) -> TokenStream {
    let parser = |input: ParseStream<'_>| {
        let mut all = Vec::new();
        while !input.is_empty() {
            let inner;
            braced!(inner in input);
            all.push(inner.parse::<MarkedFunction>()?);
        }
        all.pop().map(|main| (main, all)).ok_or_else(|| input.error("an algorithm belongs here"))
    };
    match parser.parse2(input) {
        Ok((main, mut found)) => {
            found.reverse();
            next(&main, &found)
        }
        Err(e) => e.to_compile_error(),
    }
}

/// Asks for the next part that is missing, or goes on if none is.
fn next(main: &MarkedFunction, found: &[MarkedFunction]) -> TokenStream {
    let mut wanted: Vec<Path> = Vec::new();
    let mut known: Vec<Ident> = Vec::new();
    for marked in std::iter::once(main).chain(found) {
        // What is at fault is reported where it stands.
        if let Ok((attribute, function)) = parse::signature(marked) {
            wanted.extend(attribute.with);
            known.push(function.sig.ident);
        }
    }
    let name = |path: &Path| path.segments.last().map(|s| s.ident.clone());
    match wanted.iter().find(|p| name(p).is_some_and(|n| !known.contains(&n))) {
        Some(path) => {
            let found = found.iter().rev();
            quote!(#path! { #({ #found })* { #main } })
        }
        None => whole(main, found),
    }
}

/// Returns the macro that hands over a marked function.
fn handed_over(marked: &MarkedFunction, name: &Ident) -> TokenStream {
    let private = format_ident!("__roundelay_{}", name, span = Span::call_site());
    quote! {
        #[doc(hidden)]
        #[allow(unused_macros)]
        macro_rules! #private {
            ($($rest:tt)*) => { ::roundelay::__private::with! { { #marked } $($rest)* } };
        }
        #[doc(hidden)]
        #[allow(unused_imports)]
        pub(crate) use #private as #name;
    }
}

/// Expands a function once everything that it uses is there.
fn whole(main: &MarkedFunction, found: &[MarkedFunction]) -> TokenStream {
    let prototype = match parse::prototype(main, found) {
        Ok(prototype) => prototype,
        Err(fault) => return failed(main, &fault::tokens(&fault)),
    };
    let mut embedded =
        EmbeddedAlgorithm::new(prototype.pieces.sources.clone(), prototype.tree.clone());
    if main.role == MacroRole::Function {
        return match embedded.resolve_new(&LibraryFiles) {
            Ok(_) => shadow::helper(&prototype.function),
            Err((sources, found)) => {
                failed(main, &fault::ours(&prototype.pieces, &sources, &found, true))
            }
        };
    }
    match prove(&mut embedded, prototype.check.as_deref(), false) {
        Ok(_) => emitted(&prototype, &embedded),
        Err(r) => failed(main, &fault::ours(&prototype.pieces, &r.sources, &r.found, r.early)),
    }
}

fn emitted(prototype: &PrototypeAlgorithm, embedded: &EmbeddedAlgorithm) -> TokenStream {
    let carrier = carrier(&prototype.function, &embedded.encode());
    let shadow = shadow::algorithm(&prototype.function);
    let imports = tracked(embedded);
    quote!(#carrier #shadow #imports)
}

/// Returns the value that carries an algorithm.
fn carrier(function: &ItemFn, bytes: &[u8]) -> TokenStream {
    let ItemFn { attrs, vis, sig, .. } = function;
    let name = &sig.ident;
    let value = value(&name.to_string(), bytes);
    quote! {
        #(#attrs)*
        #[allow(non_upper_case_globals)]
        #vis static #name: ::roundelay::Prototype = #value;
    }
}

fn value(name: &str, bytes: &[u8]) -> TokenStream {
    let bytes = Literal::byte_string(bytes);
    quote! {
        ::roundelay::Prototype::new(#name, #bytes, {
            static ONCE: ::roundelay::__private::ResolvedOnce = ::roundelay::__private::ResolvedOnce::new();
            &ONCE
        })
    }
}

/// Emits the output for a function with faults: the faults, and something of its name, so that its users
/// compile. Editors see the function as it is.
fn failed(marked: &MarkedFunction, faults: &TokenStream) -> TokenStream {
    let Ok(function) = syn::parse2::<ItemFn>(marked.item.clone()) else {
        let item = &marked.item;
        let shadow = shadow::for_editors_only(&quote!(use ::roundelay::lang::*; #item));
        return quote!(#shadow #faults);
    };
    let shadow = shadow::for_editors(&function);
    let stub = match marked.role {
        MacroRole::Algorithm => carrier(&function, &[]),
        MacroRole::Function => shadow::stub(&function),
    };
    // The shadow first: editors complete at the first copy of a token.
    quote!(#shadow #stub #faults)
}

/// Expands `algo_file!("ring.algo", check(…))`.
pub(crate) fn algo_file(input: TokenStream) -> TokenStream {
    let parser = |input: ParseStream<'_>| {
        let path: LitStr = input.parse()?;
        Ok((path, parse::checks(input)?))
    };
    let (path, check) = match parser.parse2(input) {
        Ok(read) => read,
        Err(e) => return expression_of(&e.to_compile_error()),
    };
    let at = |text: &str| expression_of(&syn::Error::new(path.span(), text).to_compile_error());
    let from = path.span().file();
    // The program's own source names it, as `include_str!` does: it may lie anywhere.
    let named = LibraryFiles::path(&from, &path.value()).ok_or_else(|| "no such file".to_owned());
    let read = named.and_then(|path| Ok((path.display().to_string(), read_regular(&path)?)));
    let (name, text) = match read {
        Ok(read) => read,
        Err(why) => {
            return at(&format!(
                "[RL0708] {}: {why}; the path is relative to this source file",
                path.value()
            ));
        }
    };
    let mut sources = SourceMap::new();
    let id = sources.add(name, text);
    let tree = match roundelay_dsl::parse(&sources, id) {
        Ok(tree) => tree,
        Err(found) => return at(&fault::rendered(&sources, &found)),
    };
    let mut embedded = EmbeddedAlgorithm::new(sources, tree);
    match prove(&mut embedded, check.as_deref(), true) {
        Ok(programs) => {
            let Some(first) = programs.first() else {
                return at("[RL0104] the file declares no algorithm");
            };
            let (value, tracked) = (value(&first.name, &embedded.encode()), tracked(&embedded));
            let this = included(&LibraryFiles::path(&from, &path.value()).unwrap_or_default());
            quote!({ #tracked #this #value })
        }
        Err(r) => at(&fault::rendered(&r.sources, &r.found)),
    }
}

fn expression_of(faults: &TokenStream) -> TokenStream {
    quote!({ #faults ::roundelay::Prototype::new("", &[], &::roundelay::__private::ResolvedOnce::new()) })
}

/// Has cargo build again when an imported file changes.
fn tracked(embedded: &EmbeddedAlgorithm) -> TokenStream {
    embedded.imported().map(|name| included(std::path::Path::new(name))).collect()
}

fn included(path: &std::path::Path) -> TokenStream {
    match path.canonicalize() {
        Ok(path) => {
            let path = path.to_string_lossy().into_owned();
            quote!(
                const _: &[u8] = ::core::include_bytes!(#path);
            )
        }
        Err(_) => TokenStream::new(),
    }
}

/// Returns the function as a private one, whatever it was.
fn private(function: &ItemFn) -> ItemFn {
    let mut function = function.clone();
    function.vis = Visibility::Inherited;
    function.attrs.retain(|a| !a.path().is_ident("doc"));
    function
}

/// Returns attributes that silence all lints.
fn quiet() -> impl ToTokens {
    quote!(#[allow(dead_code, unused, non_snake_case, clippy::all, clippy::pedantic, clippy::nursery)])
}
