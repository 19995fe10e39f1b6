//! Reports diagnostics as errors of rustc, at the tokens that they are about.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use roundelay_dsl::diag::render::human;
use roundelay_dsl::diag::{Diagnostic, DiagnosticLabel, Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

use crate::parse::ParseFault;
use crate::pieces::SourcePieces;

/// The most diagnostics that are reported at once; more do not help.
const MOST: usize = 20;

pub(super) fn tokens(fault: &ParseFault) -> TokenStream {
    match fault {
        ParseFault::Rust(e) => e.to_compile_error(),
        ParseFault::Ours(pieces, found) => ours(pieces, &pieces.sources, found, true),
    }
}

/// Returns one `compile_error!` a diagnostic. What is wrong in the tokens of another function that this
/// one uses is left to that function.
pub(super) fn ours(
    pieces: &SourcePieces,
    sources: &SourceMap,
    found: &Diagnostics,
    early: bool,
) -> TokenStream {
    let foreign = |d: &&Diagnostic| {
        let place = d.span().map_or(0, |s| s.source.0);
        early && place > 0 && d.span().is_some_and(|s| pieces.tokens(s).is_some())
    };
    let own = found.iter().filter(|d| !foreign(d)).take(MOST);
    own.map(|d| error(pieces, sources, d)).collect()
}

fn error(pieces: &SourcePieces, sources: &SourceMap, d: &Diagnostic) -> TokenStream {
    // The first place that is in Rust; what is said about other places goes into the text.
    let at = d.labels.iter().position(|l| pieces.tokens(l.span).is_some());
    let tokens = at.and_then(|i| pieces.tokens(d.labels[i].span));
    let (first, last) = tokens.unwrap_or((Span::call_site(), Span::call_site()));
    let text = message(sources, d, at);
    // rustc underlines from the first token of the call to its last.
    let name = quote_spanned!(first=> ::core::compile_error!);
    quote_spanned!(last=> #name { #text })
}

/// Prints `[RL0501] what` and under it, line by line, the remark at the place, other places, facts, remedies.
fn message(sources: &SourceMap, d: &Diagnostic, at: Option<usize>) -> String {
    let mut text = format!("[{}] {}", d.code, d.message);
    let mut line = |head: &str, what: &str| {
        text += &format!("\n{head}: {}", what.replace('\n', "\n  "));
    };
    for (i, DiagnosticLabel { span, text }) in d.labels.iter().enumerate() {
        if Some(i) == at {
            if !text.is_empty() {
                line("here", text);
            }
        } else {
            let (at, _) = sources.line_column(*span);
            let (file, code) = (&sources.get(span.source).name, sources.snippet(*span).trim());
            let here = d.span().is_some_and(|s| sources.get(s.source).name == *file);
            let head = if here { format!("line {at}") } else { format!("{file}:{at}") };
            line(&head, &format!("`{code}` {text}"));
        }
    }
    d.notes.iter().for_each(|n| line("note", n));
    d.helps.iter().for_each(|h| line("help", &in_rust(h)));
    if d.code == codes::UNKNOWN_NAME && d.message.starts_with("no function") {
        line(
            "help",
            "a function of yours is marked `#[algorithm_fn]`, and named: `with(…)` in the attribute",
        );
    }
    text
}

/// Rewrites a help for Rust, where the two forms of the language differ.
fn in_rust(help: &str) -> String {
    if let Some((known, name)) = help.split_once("declare others: `scratch ") {
        let name = name.trim_end_matches("[…]`");
        return format!("{known}declare others: `let {name} = scratch(…);`");
    }
    if let Some((known, _)) = help.split_once("; or declare `collective") {
        return format!("{known}; or declare it in a file, and `import(…)` that");
    }
    if let Some((before, clause)) = help.split_once("one chunk: write `chunks ") {
        return format!("{before}one chunk: write `chunks({}", clause.replacen("`", ");`", 1));
    }
    help.replace("exclude it with `where`", "exclude it with an `if`")
}

/// Prints diagnostics as `roundelay check` would.
pub(super) fn rendered(sources: &SourceMap, found: &Diagnostics) -> String {
    let all: Vec<String> = found.iter().take(MOST).map(|d| human(sources, d, false)).collect();
    format!("the file is refused:\n{}", all.join("\n\n"))
}
