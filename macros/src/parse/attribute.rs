//! Reads `#[algorithm(all_reduce, with(parent), import("tools.algo"), check(2..=9))]`.

use proc_macro2::TokenStream;
use quote::quote;
use roundelay_compiler::Shape;
use roundelay_dsl::diag::similar;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, ExprRange, Ident, Lit, LitStr, Path, RangeLimits, Token, parenthesized};

use crate::prototype::{AttributeWords, MacroParameter, MacroRole};

/// More sample shapes than this are refused.
const MAX_SHAPES: usize = 1000;

/// Reads the words of an attribute.
pub(super) fn attribute(role: MacroRole, tokens: TokenStream) -> syn::Result<AttributeWords> {
    let missing = "an algorithm implements a collective: write `#[algorithm(all_reduce)]`";
    if role == MacroRole::Algorithm && tokens.is_empty() {
        return Err(syn::Error::new(proc_macro2::Span::call_site(), missing));
    }
    let parser = |input: ParseStream<'_>| {
        let mut out = AttributeWords::default();
        if role == MacroRole::Algorithm {
            if input.peek2(syn::token::Paren) || !input.peek(Ident) {
                return Err(input.error(missing));
            }
            out.collective = Some(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.is_empty() {
            option(role, input, &mut out)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(out)
    };
    parser.parse2(tokens)
}

fn option(role: MacroRole, input: ParseStream<'_>, out: &mut AttributeWords) -> syn::Result<()> {
    let name: Ident = input.parse()?;
    let known: &[&str] = match role {
        MacroRole::Algorithm => &["with", "import", "check", "parameters"],
        MacroRole::Function => &["with"],
    };
    let word = name.to_string();
    if !known.contains(&word.as_str()) {
        let help = similar(&word, known.iter().copied())
            .map_or_else(|| known.join(", "), |near| format!("did you mean `{near}`?"));
        return Err(syn::Error::new(name.span(), format!("no option is named `{word}`: {help}")));
    }
    let inner;
    parenthesized!(inner in input);
    match word.as_str() {
        "with" => out.with.extend(Punctuated::<Path, Token![,]>::parse_terminated(&inner)?),
        "parameters" => {
            out.parameters
                .extend(Punctuated::<_, Token![,]>::parse_terminated_with(&inner, parameter)?);
        }
        "import" => out.imports.extend(Punctuated::<LitStr, Token![,]>::parse_terminated(&inner)?),
        _ => out.check.get_or_insert_default().extend(shapes(&inner)?),
    }
    Ok(())
}

/// Reads `k = 2 in 2..=8`.
fn parameter(input: ParseStream<'_>) -> syn::Result<MacroParameter> {
    let name: Ident = input.parse()?;
    let equals: Token![=] = input.parse()?;
    let default: Expr = input.parse()?;
    let mut tokens = quote!(#name #equals #default);
    let mut bounds = None;
    if input.peek(Token![in]) {
        let word: Token![in] = input.parse()?;
        let range: Expr = input.parse()?;
        tokens.extend(quote!(#word #range));
        match range {
            Expr::Range(ExprRange {
                start: Some(least),
                limits: RangeLimits::Closed(_),
                end: Some(most),
                ..
            }) => bounds = Some((*least, *most)),
            other => {
                let why = "bounds name the least and the greatest value: write `k = 2 in 2..=8`";
                return Err(syn::Error::new_spanned(other, why));
            }
        }
    }
    Ok(MacroParameter { name, default, bounds, tokens })
}

/// Reads `check(…)`, as it may follow the path of a file.
pub(crate) fn checks(input: ParseStream<'_>) -> syn::Result<Option<Vec<Shape>>> {
    let mut out = AttributeWords::default();
    while !input.is_empty() {
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            break;
        }
        let name: Ident = input.fork().parse()?;
        if name != "check" {
            return Err(syn::Error::new(name.span(), "only `check(…)` may follow the path"));
        }
        option(MacroRole::Algorithm, input, &mut out)?;
    }
    Ok(out.check)
}

/// Reads `4, 8..=16`, or `(2, 4), (3, 2)`.
fn shapes(input: ParseStream<'_>) -> syn::Result<Vec<Shape>> {
    let place = input.span();
    let mut shapes = Vec::new();
    for e in Punctuated::<Expr, Token![,]>::parse_terminated(input)? {
        match &e {
            Expr::Range(ExprRange { start: Some(from), limits, end: Some(to), .. }) => {
                let inclusive = matches!(limits, RangeLimits::Closed(_));
                let (from, to) = (count(from)?, count(to)?);
                let to = if inclusive { to } else { to.saturating_sub(1) };
                if to.saturating_sub(from) as usize >= MAX_SHAPES {
                    return Err(syn::Error::new_spanned(&e, "too many rank counts"));
                }
                shapes.extend((from..=to).map(Shape::flat));
            }
            Expr::Tuple(t) => {
                let axes = t.elems.iter().map(count).collect::<syn::Result<Vec<u32>>>()?;
                shapes.push(Shape { axes });
            }
            e => shapes.push(Shape::flat(count(e)?)),
        }
    }
    match shapes.is_empty() {
        true => Err(syn::Error::new(place, "name a rank count at least: `check(2..=9)`")),
        false => Ok(shapes),
    }
}

fn count(e: &Expr) -> syn::Result<u32> {
    let fault = || syn::Error::new_spanned(e, "a rank count is a number, such as 8, or (2, 4)");
    match e {
        Expr::Lit(ExprLit { lit: Lit::Int(i), .. }) => match i.base10_parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(fault()),
        },
        _ => Err(fault()),
    }
}
