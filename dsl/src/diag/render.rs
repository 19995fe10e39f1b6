//! Prints diagnostics for people, for terminals and editors that read lines, and for programs.

use std::borrow::Cow;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::{Deserialize, Serialize};

use super::{Diagnostic, DiagnosticLabel, DiagnosticSeverity};
use crate::escape::{escaped, without_c1};
use crate::span::SourceMap;

/// Returns rustc-like text of one diagnostic, several lines, with colours if asked for.
pub fn human(sources: &SourceMap, diagnostic: &Diagnostic, colour: bool) -> String {
    let level = match diagnostic.severity {
        DiagnosticSeverity::Error => Level::ERROR,
        DiagnosticSeverity::Warning => Level::WARNING,
    };
    let diagnostic = &plain(diagnostic);
    let sources_shown: Vec<(Cow<'_, str>, Cow<'_, str>)> = diagnostic
        .labels
        .iter()
        .map(|label| sources.get(label.span.source))
        .map(|source| (without_c1(&source.text), escaped(&source.name)))
        .collect();
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code.0);
    let mut group = Group::with_title(title);
    for (i, first) in diagnostic.labels.iter().enumerate() {
        let source = first.span.source;
        if diagnostic.labels[..i].iter().any(|l| l.span.source == source) {
            continue;
        }
        let text = sources.get(source);
        let labels = diagnostic.labels.iter().enumerate().filter(|(_, l)| l.span.source == source);
        let annotations = labels.map(|(k, label)| {
            let kind = if k == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let words = (!label.text.is_empty()).then_some(label.text.as_str());
            kind.span(within(&text.text, label)).label(words)
        });
        let (shown, name) = &sources_shown[i];
        let snippet = Snippet::source(&**shown).line_start(text.line as usize);
        group = group.element(snippet.path(&**name).annotations(annotations));
    }
    group = group.elements(diagnostic.notes.iter().map(|n| Level::NOTE.message(n.as_str())));
    group = group.elements(diagnostic.helps.iter().map(|h| Level::HELP.message(h.as_str())));
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group])
}

/// Returns a diagnostic whose words act on no terminal: they name files and quote texts.
fn plain(diagnostic: &Diagnostic) -> Diagnostic {
    let mut plain = diagnostic.clone();
    let labels = plain.labels.iter_mut().map(|label| &mut label.text);
    let words = labels.chain(&mut plain.notes).chain(&mut plain.helps);
    for text in words.chain([&mut plain.message]) {
        if let Cow::Owned(escaped) = escaped(text) {
            *text = escaped;
        }
    }
    plain
}

/// Returns the label's bytes, kept inside the text and on whole characters.
fn within(text: &str, label: &DiagnosticLabel) -> std::ops::Range<usize> {
    let inside = |at: u32| {
        let at = (at as usize).min(text.len());
        (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
    };
    let start = inside(label.span.start);
    start..inside(label.span.end).max(start)
}

/// Returns one line: `file:line:column: error[RL0501]: message`; without a place, from `error` on.
pub fn short(sources: &SourceMap, diagnostic: &Diagnostic) -> String {
    let Diagnostic { code, message, .. } = &plain(diagnostic);
    let severity = word(diagnostic.severity);
    match diagnostic.span() {
        None => format!("{severity}[{code}]: {message}"),
        Some(span) => {
            let (line, column) = sources.line_column(span);
            let file = escaped(&sources.get(span.source).name);
            format!("{file}:{line}:{column}: {severity}[{code}]: {message}")
        }
    }
}

/// A diagnostic as programs read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosticJson {
    /// `RL0501`
    pub code: String,
    /// `error` or `warning`
    pub severity: String,
    /// Name of the source; empty without a place.
    pub file: String,
    /// One-based line of the primary place, 0 without one.
    pub line: u32,
    /// One-based column in characters, 0 without a place.
    pub column: u32,
    /// The message, one line.
    pub message: String,
    /// The facts.
    pub notes: Vec<String>,
    /// The remedies.
    pub helps: Vec<String>,
}

/// Returns the diagnostic as data.
pub fn json(sources: &SourceMap, diagnostic: &Diagnostic) -> DiagnosticJson {
    let place = diagnostic.span().map(|span| (sources.line_column(span), sources.get(span.source)));
    let ((line, column), file) = match place {
        Some((at, source)) => (at, source.name.clone()),
        None => ((0, 0), String::new()),
    };
    DiagnosticJson {
        code: diagnostic.code.to_string(),
        severity: word(diagnostic.severity).to_owned(),
        file,
        line,
        column,
        message: diagnostic.message.clone(),
        notes: diagnostic.notes.clone(),
        helps: diagnostic.helps.clone(),
    }
}

fn word(severity: DiagnosticSeverity) -> &'static str {
    match severity {
        DiagnosticSeverity::Error => "error",
        DiagnosticSeverity::Warning => "warning",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::diag::codes;
    use crate::span::Span;

    #[test]
    fn words_of_others_act_on_no_terminal() {
        let mut sources = SourceMap::new();
        let bad = "\u{1b}[2J\u{7}\r\u{9b}31m\u{202e}";
        let a = sources.add(format!("{bad}.algo"), format!("let x = {bad} 1\n"));
        let d = Diagnostic::error(codes::SYNTAX, format!("of {bad}"))
            .label(Span::new(a, 0, 3), format!("label {bad}"))
            .note(format!("note {bad}"))
            .help(format!("help {bad}"));
        for text in [human(&sources, &d, false), short(&sources, &d)] {
            let acts = text.chars().find(|&c| c != '\n' && c.is_control() || c == '\u{202e}');
            assert_eq!(acts, None, "{text:?}");
        }
        // What the renderer itself writes is the same for words without.
        let colours = |text: &str| text.matches('\u{1b}').count();
        let same = Diagnostic::error(codes::SYNTAX, "of").label(Span::new(a, 0, 3), "label");
        let same = same.note("note").help("help");
        assert_eq!(colours(&human(&sources, &d, true)), colours(&human(&sources, &same, true)));
    }

    #[test]
    fn several_sources_and_labels_without_words() {
        let mut sources = SourceMap::new();
        let a = sources.add("a.algo", "let x = 1\nlet y = é\n");
        let b = sources.add("b.algo", "other");
        let fault = Diagnostic::error(codes::MISSING, "a contribution is missing")
            .label(Span::new(a, 14, 15), "overwritten here")
            .label(Span::new(a, 4, 5), "")
            .label(Span::new(b, 0, 5), "used here")
            .note("n = 3, r = 1")
            .help("send it first");
        expect![[r#"
            error[RL0501]: a contribution is missing
             --> a.algo:2:5
              |
            1 | let x = 1
              |     -
            2 | let y = é
              |     ^ overwritten here
              |
             ::: b.algo:1:1
              |
            1 | other
              | ----- used here
              |
              = note: n = 3, r = 1
              = help: send it first"#]]
        .assert_eq(&human(&sources, &fault, false));
        expect!["a.algo:2:5: error[RL0501]: a contribution is missing"]
            .assert_eq(&short(&sources, &fault));
        assert!(human(&sources, &fault, true).contains("\u{1b}["));
        let json = json(&sources, &fault);
        assert_eq!((json.line, json.column, json.code.as_str()), (2, 5, "RL0501"));
    }

    #[test]
    fn places_outside_the_text_do_no_harm() {
        let mut sources = SourceMap::new();
        let empty = sources.add("empty", "");
        let text = sources.add("text", "aé");
        for (id, start, end) in
            [(empty, 0, 0), (empty, 5, 9), (text, 2, 2), (text, 3, 3), (text, 9, 2)]
        {
            let span = Span { source: id, start, end };
            let fault = Diagnostic::warning(codes::EMPTY, "m").label(span, "l");
            assert!(human(&sources, &fault, false).contains("RL0104"));
            assert!(short(&sources, &fault).contains("warning[RL0104]: m"));
        }
        let placeless = Diagnostic::error(codes::FILE, "no such file").help("look again");
        expect![[r#"
            error[RL0708]: no such file
             |
             = help: look again"#]]
        .assert_eq(&human(&sources, &placeless, false));
        assert_eq!(short(&sources, &placeless), "error[RL0708]: no such file");
    }
}
