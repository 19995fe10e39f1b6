//! Emits the function once more, against the types of `roundelay::lang`: Rust checks it, and editors complete
//! names and find definitions in it. It is never run. Its tokens are the user's own.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Expr, ExprCall, ItemFn, Pat, PatType, Type, parse_quote};

use super::{private, quiet};

/// Returns an algorithm's shadow.
pub(super) fn algorithm(function: &ItemFn) -> TokenStream {
    let mut function = private(function);
    ClosureTypes.visit_item_fn_mut(&mut function);
    let quiet = quiet();
    quote! {
        const _: () = {
            #quiet
            use ::roundelay::lang::*;
            #quiet
            #function
        };
    }
}

/// Returns a function with faults, which only editors see.
pub(super) fn for_editors(function: &ItemFn) -> TokenStream {
    for_editors_only(&algorithm(function))
}

/// Items that only rust-analyzer sees.
pub(super) fn for_editors_only(items: &TokenStream) -> TokenStream {
    quote! {
        #[allow(unexpected_cfgs)]
        const _: () = {
            #[cfg(rust_analyzer)]
            const _: () = { #items };
        };
    }
}

/// Returns a helper as Rust calls it, with the language's division.
pub(super) fn helper(function: &ItemFn) -> TokenStream {
    let mut function = function.clone();
    FloorDivision.visit_item_fn_mut(&mut function);
    let body = &function.block.stmts;
    function.block = parse_quote!({
        #[allow(unused_imports)]
        use ::roundelay::lang::*;
        #(#body)*
    });
    quote!(#[allow(dead_code, unused_parens)] #function)
}

/// Returns the stub that stands for a helper with faults.
pub(super) fn stub(function: &ItemFn) -> TokenStream {
    let mut function = function.clone();
    function.block = parse_quote!({ ::core::unreachable!() });
    quote!(#[allow(dead_code, unused_variables)] #function)
}

/// Gives the parameters of `each` and `split` their types, which inference would not find.
struct ClosureTypes;

impl VisitMut for ClosureTypes {
    fn visit_expr_call_mut(&mut self, call: &mut ExprCall) {
        let known = ["each", "split"];
        let ours = matches!(&*call.func, Expr::Path(p)
            if p.path.get_ident().is_some_and(|i| known.iter().any(|k| i == k)));
        if ours
            && let Some(Expr::Closure(closure)) = call.args.last_mut()
            && let Some(pat) = closure.inputs.first_mut()
        {
            let ty: Option<Type> = match pat {
                Pat::Ident(_) => Some(parse_quote!(i64)),
                Pat::Tuple(t) => {
                    let types = t.elems.iter().map(|_| quote!(i64));
                    Some(parse_quote!((#(#types,)*)))
                }
                _ => None,
            };
            if let Some(ty) = ty {
                let (inner, ty) = (Box::new(pat.clone()), Box::new(ty));
                let (attrs, colon_token) = (Vec::new(), Default::default());
                *pat = Pat::Type(PatType { attrs, pat: inner, colon_token, ty });
            }
        }
        visit_mut::visit_expr_call_mut(self, call);
    }
}

/// Makes `/` and `%` round down.
struct FloorDivision;

impl VisitMut for FloorDivision {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        visit_mut::visit_expr_mut(self, e);
        if let Expr::Binary(b) = e {
            let (left, right) = (&b.left, &b.right);
            match b.op {
                BinOp::Div(_) => *e = parse_quote!(::roundelay::lang::divide(#left, #right)),
                BinOp::Rem(_) => *e = parse_quote!(::roundelay::lang::modulus(#left, #right)),
                _ => {}
            }
        }
    }
}
