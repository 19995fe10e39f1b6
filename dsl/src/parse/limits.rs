//! Refuses texts before anything recursive sees them: texts too large, too deep, or no texts.

use crate::diag::{Diagnostic, codes};
use crate::lex::{SourceToken, TokenKind};
use crate::span::{SourceId, Span};

/// The largest text that is parsed, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The deepest nesting of brackets, blocks, `else if` chains and operators.
pub const MAX_DEPTH: usize = 200;

/// Stack for what calls itself for each level, in code without optimisation too: some 10 KB a level were seen.
const STACK: usize = 16 << 20;

/// Calls a function with a stack on which what is nested [`MAX_DEPTH`] deep can be walked over, whatever the thread
/// has.
pub fn with_stack<R>(walk: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(STACK, 2 * STACK, walk)
}

/// Returns the bytes of a file as text.
///
/// # Errors
/// RL0102 beyond [`MAX_BYTES`], RL0103 if the bytes are not UTF-8 or hold a NUL. The diagnostic has
/// no place: the bytes are in no [`crate::span::SourceMap`] yet.
pub fn check_text(bytes: &[u8]) -> Result<&str, Diagnostic> {
    if bytes.len() > MAX_BYTES {
        return Err(too_large(bytes.len()));
    }
    let bad = |at: usize| Diagnostic::error(codes::NOT_TEXT, format!("byte {at} is not text"));
    match std::str::from_utf8(bytes) {
        Err(e) => Err(bad(e.valid_up_to()).help("algorithms are files of UTF-8 text")),
        Ok(text) => match text.find('\0') {
            Some(at) => Err(bad(at).note("it is a NUL")),
            None => Ok(text),
        },
    }
}

/// Applies the limits of [`check_text`] to a text that is in a source map.
pub(super) fn check_size(text: &str, source: SourceId) -> Result<(), Diagnostic> {
    let start = Span::new(source, 0, 0);
    if text.len() > MAX_BYTES {
        return Err(too_large(text.len()).label(start, ""));
    }
    match text.find('\0') {
        Some(at) => Err(Diagnostic::error(codes::NOT_TEXT, "the text holds a NUL byte")
            .label(Span::new(source, at, at + 1), "here")),
        None => Ok(()),
    }
}

/// Refuses nesting beyond [`MAX_DEPTH`] and comments without end.
pub(super) fn check_tokens(
    text: &str,
    source: SourceId,
    tokens: &[SourceToken],
) -> Result<(), Diagnostic> {
    let mut depth = 0_usize;
    for token in tokens {
        let span = Span::new(source, token.start, token.end);
        if token.kind == TokenKind::OpenComment {
            return Err(Diagnostic::error(codes::SYNTAX, "the comment is never closed")
                .label(Span::new(source, token.start, token.start + 2), "opened here")
                .help("close it with `*/`"));
        }
        match token.text(text) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(too_deep(span));
        }
    }
    Ok(())
}

/// Returns the fault of something nested beyond [`MAX_DEPTH`].
pub fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_LARGE, format!("the text is nested more than {MAX_DEPTH} deep"))
        .label(span, "too deep from here on")
        .help("name parts with `let`, or move them into an `fn`")
}

fn too_large(bytes: usize) -> Diagnostic {
    Diagnostic::error(codes::TOO_LARGE, format!("the text has {bytes} bytes"))
        .note(format!("the limit is {MAX_BYTES} bytes"))
        .help("an algorithm is a page of text; is this the right file?")
}
