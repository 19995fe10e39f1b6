//! Explains pest's faults in words, with help for the slips that people make.

use std::ops::Range;

use pest::error::{Error, ErrorVariant, InputLocation};

use super::{ParserInput, Rule};
use crate::diag::{Diagnostic, codes, keyword};
use crate::lex::{SourceToken, TokenKind};
use crate::span::Span;

/// Returns the diagnostic of a fault in the piece `range` of the text.
pub(super) fn explain(input: &ParserInput, range: Range<usize>, error: &Error<Rule>) -> Diagnostic {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => range.start + at,
    };
    let rules = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => &[],
    };
    let index = input.words.partition_point(|t| t.start < at);
    let fault = SyntaxFault { input, range, rules, index };
    fault.slip().unwrap_or_else(|| fault.plain())
}

/// Keywords that statements and clauses begin with, or go on with where they need not.
const BEGINNINGS: &[&str] = &[
    "let",
    "for",
    "if",
    "each",
    "use",
    "split",
    "else",
    "requires",
    "tolerates",
    "chunks",
    "scratch",
    "schedule",
    "over",
    "root",
    "via",
];

/// Returns the operation that a word means elsewhere, or nearly is.
fn operation(word: &str) -> Option<&'static str> {
    match word {
        "send" | "recv" | "receive" | "put" | "get" | "move" | "store" | "write" | "read" => {
            Some("copy")
        }
        "add" | "sum" | "accumulate" => Some("reduce"),
        _ => keyword(word, &["copy", "reduce"]),
    }
}

struct SyntaxFault<'i, 't> {
    input: &'i ParserInput<'t>,
    /// The declaration.
    range: Range<usize>,
    /// The rules that could have stood there.
    rules: &'i [Rule],
    /// The token that stands there, as an index of `input.words`.
    index: usize,
}

impl SyntaxFault<'_, '_> {
    /// Says «expected …, found …».
    fn plain(&self) -> Diagnostic {
        let expected = self.expected();
        let (found, span) = match self.word(0) {
            Some(token) if token.start < self.range.end => {
                (shown(token.text(self.input.text)), self.span(token))
            }
            Some(_) => ("the next declaration".to_owned(), self.end()),
            None => ("the end of the file".to_owned(), self.end()),
        };
        let message = match expected.is_empty() {
            true => format!("unexpected {found}"),
            false => format!("expected {expected}, found {found}"),
        };
        let mut fault = Diagnostic::error(codes::SYNTAX, message).label(
            span,
            if expected.is_empty() {
                "not expected".to_owned()
            } else {
                format!("expected {expected}")
            },
        );
        if span == self.end()
            && let Some(open) = self.unclosed()
        {
            fault = fault.label(self.span(open), "opened here and never closed");
        }
        let found = self.text(0);
        let wants_name =
            self.rules.iter().any(|r| matches!(r, Rule::name | Rule::buffer | Rule::expr));
        if wants_name && is_keyword(found) {
            fault = fault.note(format!("`{found}` is a keyword and cannot be a name"));
        }
        if let Some(near) = self.meant() {
            fault = fault.help(format!("did you mean `{near}`?"));
        }
        if found.starts_with(is_unseen) {
            fault =
                fault.help("words are apart by spaces, tabs and line ends: remove the character");
        }
        fault
    }

    /// Returns the faults that deserve words of their own.
    fn slip(&self) -> Option<Diagnostic> {
        let token = self.word(0).filter(|t| t.start < self.range.end)?;
        let found = token.text(self.input.text);
        let error = |message: String| Diagnostic::error(codes::SYNTAX, message);
        let here = self.span(token);
        Some(match found {
            _ if token.kind == TokenKind::Doc => {
                error("a doc comment has nothing to describe here".into())
                    .label(here, "not before a declaration")
                    .help("`//!` begins a file, `///` a declaration; elsewhere write `//`")
            }
            ";" => error("unexpected `;`".into())
                .label(here, "not part of the language")
                .help("statements need no `;`: remove it"),
            "=" if self.wants(Rule::infix) => error("`=` does not compare".into())
                .label(here, "expected an operator")
                .help("write `==` to compare, or `let name = …` to name a value"),
            "requires" | "tolerates" | "chunks" | "scratch"
                if self.wants(Rule::stmt) && !self.starts_collective() =>
            {
                self.misplaced(
                    format!("`{found}` must stand before the first statement"),
                    here,
                    "clauses come first, then statements, then the schedule",
                )
            }
            "schedule" if self.wants(Rule::stmt) => self.misplaced(
                "`schedule` must be the last part of an algorithm".into(),
                here,
                "move it behind the last statement, outside of all blocks",
            ),
            _ if self.after_schedule() && found != "}" => self.misplaced(
                "nothing may follow the schedule".into(),
                here,
                "clauses come first, then statements, then one schedule",
            ),
            _ if self.wants(Rule::op) && token.kind == TokenKind::Word => {
                error(format!("unknown operation `{found}`"))
                    .label(here, "expected `copy` or `reduce`")
                    .help(match operation(found) {
                        Some("reduce") => "did you mean `reduce`, which adds to what is there?",
                        Some(_) => "did you mean `copy`, which overwrites what is there?",
                        None => "did you mean `copy` or `reduce`?",
                    })
            }
            "copy" | "reduce" if self.wants(Rule::colon) => {
                error(format!("expected `:` before `{found}`"))
                    .label(here, "the `:` is missing")
                    .help(format!("write `from -> to : {found} region`"))
            }
            _ if self.wants(Rule::buffer) && self.text(1) == "(" => {
                let open = self.word(1).map_or(here, |t| self.span(t));
                error("chunks are chosen with brackets".into())
                    .label(open, "expected `[`")
                    .help(format!("write `{found}[…]`"))
            }
            _ if self.starts_collective() && matches!(self.text_before(), "input" | "output") => {
                let word = self.text_before();
                let place = self.index.checked_sub(1).and_then(|i| self.input.words.get(i));
                self.misplaced(
                    format!("`{word}` must stand before the first statement"),
                    place.map_or(here, |t| self.span(t)),
                    "the sizes come first; a statement is `output[i] = input[j] at r`",
                )
            }
            "}" if !self.wants(Rule::stmt) && self.wants(Rule::EOI) => {
                error("unexpected `}`".into()).label(here, "no `{` is open here")
            }
            _ => return self.misspelt(),
        })
    }

    /// Returns a statement that begins with a word that is no keyword, and was therefore taken for a rank.
    fn misspelt(&self) -> Option<Diagnostic> {
        let at = self.index.checked_sub(1).filter(|_| self.wants(Rule::arrow))?;
        let word = self.input.words.get(at).filter(|t| t.kind == TokenKind::Word)?;
        let before = at.checked_sub(1).and_then(|i| self.input.words.get(i));
        let ends = |t: &SourceToken| {
            t.kind == TokenKind::Word || matches!(t.text(self.input.text), "{" | "}" | ")" | "]")
        };
        if !before.is_none_or(ends) {
            return None;
        }
        let (name, span) = (word.text(self.input.text), self.span(word));
        let fault = |message| Diagnostic::error(codes::SYNTAX, message);
        if let Some(op) = operation(name) {
            let message = format!("a transfer begins with its ranks, not with `{name}`");
            return Some(fault(message).label(span, "expected a rank").help(format!(
                "write `from -> to : {op} region`, as in `r -> (r + 1) % n : {op} data`"
            )));
        }
        let near = keyword(name, BEGINNINGS).filter(|near| match *near {
            "let" => self.text(1) == "=",
            "each" => self.text(0) == "(" || matches!(self.text(1), "{" | "where"),
            _ => true,
        })?;
        let message = format!("no statement begins with `{name}`");
        Some(fault(message).label(span, "not a keyword").help(format!("did you mean `{near}`?")))
    }

    /// Returns the keyword that was meant by what stands there, of those that could have stood there.
    fn meant(&self) -> Option<String> {
        let mut words: Vec<String> = Vec::new();
        for rule in self.rules {
            let known: &[&str] = match rule {
                Rule::file | Rule::item => &["algorithm", "collective", "fn", "import", "let"],
                Rule::stmt => &["let", "for", "if", "each", "use", "split"],
                Rule::clause => &["requires", "tolerates", "chunks", "scratch"],
                Rule::schedule => &["schedule"],
                Rule::filter => &["where"],
                Rule::input_clause => &["input"],
                Rule::output_clause => &["output"],
                _ => &[],
            };
            words.extend(known.iter().map(|word| (*word).to_owned()));
            words.extend(format!("{rule:?}").strip_prefix("kw_").map(str::to_owned));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        keyword(self.text(0), &words).map(str::to_owned)
    }

    fn misplaced(&self, message: String, span: Span, help: &str) -> Diagnostic {
        Diagnostic::error(codes::MISPLACED, message).label(span, "misplaced").help(help)
    }

    fn wants(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    fn after_schedule(&self) -> bool {
        let before = self.input.words(&(self.range.start..self.word(0).map_or(0, |t| t.start)));
        self.rules == [Rule::rbrace] && before.iter().any(|t| t.text(self.input.text) == "schedule")
    }

    fn starts_collective(&self) -> bool {
        let mut words = self.input.words(&self.range).iter().filter(|t| t.kind != TokenKind::Doc);
        words.next().is_some_and(|t| t.text(self.input.text) == "collective")
    }

    /// Returns the token `ahead` places after the fault.
    fn word(&self, ahead: usize) -> Option<&SourceToken> {
        self.input.words.get(self.index + ahead)
    }

    fn text(&self, ahead: usize) -> &str {
        self.word(ahead).map_or("", |t| t.text(self.input.text))
    }

    fn text_before(&self) -> &str {
        let before = self.index.checked_sub(1).and_then(|i| self.input.words.get(i));
        before.map_or("", |t| t.text(self.input.text))
    }

    fn span(&self, token: &SourceToken) -> Span {
        Span::new(self.input.source, token.start, token.end)
    }

    /// Returns the place just after the last token of the declaration.
    fn end(&self) -> Span {
        let end = self.input.span(self.range.start, self.range.end).end as usize;
        Span::new(self.input.source, end, end)
    }

    /// Returns the outermost bracket of the declaration that is not closed.
    fn unclosed(&self) -> Option<&SourceToken> {
        let mut open = Vec::new();
        for token in self.input.words(&self.range) {
            match token.text(self.input.text) {
                "(" | "[" | "{" => open.push(token),
                ")" | "]" | "}" => drop(open.pop()),
                _ => {}
            }
        }
        open.first().copied()
    }

    /// Returns «a, b or c»: what could have stood there, without what says nothing new.
    fn expected(&self) -> String {
        let strong = |r: &Rule| {
            matches!(r, Rule::stmt | Rule::clause | Rule::schedule | Rule::item | Rule::rbrace)
                || matches!(r, Rule::input_clause | Rule::output_clause)
        };
        let operand = |r: &Rule| {
            matches!(
                r,
                Rule::int | Rule::truth | Rule::name | Rule::kw_if | Rule::lparen | Rule::field
            )
        };
        let starts = self.rules.iter().any(|r| matches!(r, Rule::stmt | Rule::item | Rule::clause));
        let mut words: Vec<String> = Vec::new();
        for rule in self.rules {
            let noise = match rule {
                Rule::infix | Rule::EOI | Rule::doc | Rule::file_doc => self.rules.len() > 1,
                rule => starts && !strong(rule) || self.wants(Rule::prefix) && operand(rule),
            };
            let word = describe(*rule);
            if !noise && !words.contains(&word) {
                words.push(word);
            }
        }
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            Some((last, _)) => last.clone(),
            None => String::new(),
        }
    }
}

/// Returns the beginning of a token in backquotes; a character that cannot be seen by its number.
fn shown(text: &str) -> String {
    let text: String = text.chars().take(24).collect();
    match text.chars().find(|&c| is_unseen(c)) {
        Some(c) => format!("the character U+{:04X}", u32::from(c)),
        None => format!("`{text}`"),
    }
}

/// Returns true for white space of Unicode that is no blank of the grammar, and for characters without a picture.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || c.is_whitespace() && c != ' '
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

fn is_keyword(text: &str) -> bool {
    use pest::Parser as _;
    super::AlgoGrammar::parse(Rule::keyword, text)
        .is_ok_and(|mut p| p.as_str() == text && p.next().is_some())
}

/// Returns a rule in the reader's words.
fn describe(rule: Rule) -> String {
    let words = match rule {
        Rule::EOI => "the end of the file",
        Rule::file | Rule::item => {
            "a declaration (`algorithm`, `collective`, `fn`, `let` or `import`)"
        }
        Rule::path => "a path in quotes",
        Rule::stmt => "a statement",
        Rule::block | Rule::value_block | Rule::fn_body | Rule::lbrace => "`{`",
        Rule::clause => "a clause",
        Rule::schedule => "`schedule`",
        Rule::input_clause => "`input`",
        Rule::output_clause => "`output`",
        Rule::entry => "an entry (`pipeline 8`)",
        Rule::axes => "the ranks (`n ranks`, `(node, gpu) ranks`)",
        Rule::grid => "a tuple of names",
        Rule::rank | Rule::tuple => "a rank",
        Rule::op => "`copy` or `reduce`",
        Rule::region | Rule::buffer => "a buffer",
        Rule::index => "`[`",
        Rule::range => "a range (`a..b`)",
        Rule::name | Rule::use_name | Rule::use_call | Rule::use_open => "a name",
        Rule::parameters => "`(`",
        Rule::parameter => "a parameter (`k = 2`)",
        Rule::argument => "an argument (`k = 4`)",
        Rule::bounds => "bounds (`a..=b`)",
        Rule::int => "a number",
        Rule::truth => "`true` or `false`",
        Rule::infix => "an operator",
        Rule::expr | Rule::primary | Rule::prefix | Rule::paren | Rule::call => "an expression",
        Rule::field | Rule::if_expr | Rule::call_open => "an expression",
        Rule::filter => "`where`",
        Rule::weight | Rule::steps => "`by`",
        Rule::arrow => "`->`",
        Rule::assign => "`=`",
        Rule::colon => "`:`",
        Rule::comma => "`,`",
        Rule::dots | Rule::upto => "`..`",
        Rule::dots_equal => "`..=`",
        Rule::dots_plus | Rule::cyclic => "`..+`",
        Rule::lbracket => "`[`",
        Rule::lparen => "`(`",
        Rule::rbrace => "`}`",
        Rule::rbracket => "`]`",
        Rule::rparen => "`)`",
        other => {
            let name = format!("{other:?}");
            return match name.strip_prefix("kw_") {
                Some(word) => format!("`{word}`"),
                None => format!("a {}", name.replace('_', " ")),
            };
        }
    };
    words.to_owned()
}
