//! Colours: what each name is, which a grammar of words cannot know.

use gen_lsp_types::{SemanticToken, SemanticTokens, SemanticTokensLegend};
use roundelay_dsl::span::Span;

use crate::names::{NameKind, NameMeaning, NameTable};
use crate::position::LineTable;

/// The types of tokens, by index.
const TYPES: [&str; 8] =
    ["function", "parameter", "variable", "class", "namespace", "property", "enumMember", "macro"];

/// Returns the types for the editor.
pub(crate) fn legend() -> SemanticTokensLegend {
    SemanticTokensLegend {
        token_types: TYPES.iter().map(ToString::to_string).collect(),
        token_modifiers: vec!["declaration".into(), "readonly".into(), "defaultLibrary".into()],
    }
}

const DECLARED: u32 = 1;
const READ_ONLY: u32 = 2;
const OF_LANGUAGE: u32 = 4;

fn of_kind(kind: NameKind) -> (&'static str, u32) {
    match kind {
        NameKind::Constant => ("variable", READ_ONLY),
        NameKind::Function => ("function", 0),
        NameKind::Collective => ("class", 0),
        NameKind::Algorithm => ("macro", 0),
        NameKind::Parameter => ("parameter", 0),
        NameKind::Axis => ("namespace", 0),
        NameKind::Variable | NameKind::Rank => ("variable", 0),
        NameKind::Buffer => ("property", 0),
    }
}

/// Returns the tokens of a text.
pub(crate) fn tokens(names: &NameTable, lines: &LineTable) -> SemanticTokens {
    let mut all: Vec<(Span, &str, u32)> = Vec::new();
    for d in &names.definitions {
        let (kind, modifiers) = of_kind(d.kind);
        all.push((d.span, kind, modifiers | DECLARED));
    }
    for u in &names.uses {
        let (kind, modifiers) = match &u.meaning {
            NameMeaning::Defined(i) => match names.definitions.get(*i) {
                Some(d) => of_kind(d.kind),
                None => continue,
            },
            NameMeaning::Function => ("function", OF_LANGUAGE),
            NameMeaning::Word => ("variable", OF_LANGUAGE | READ_ONLY),
            NameMeaning::Buffer => ("property", OF_LANGUAGE),
            NameMeaning::Collective => ("class", OF_LANGUAGE),
            NameMeaning::Algorithm(_) => ("macro", OF_LANGUAGE),
            NameMeaning::Argument => ("enumMember", 0),
        };
        all.push((u.span, kind, modifiers));
    }
    all.sort_by_key(|(span, ..)| *span);
    let (mut line, mut column) = (0, 0);
    let mut data = Vec::with_capacity(all.len());
    for (span, kind, modifiers) in all {
        let at = lines.position(span.start as usize);
        let text = &lines.text()[span.start as usize..span.end as usize];
        let token_type = TYPES.iter().position(|t| *t == kind).unwrap_or_default();
        data.push(SemanticToken {
            delta_line: at.line - line,
            delta_start: if at.line == line { at.character - column } else { at.character },
            length: lines.width(text),
            token_type: token_type as u32,
            token_modifiers_bitset: modifiers,
        });
        (line, column) = (at.line, at.character);
    }
    SemanticTokens { result_id: None, data }
}
