//! The meaning of names, the places where they are defined and used, and new names for them.

use std::collections::HashMap;

use gen_lsp_types::{
    CodeAction, CodeActionKind, Contents, DocumentSymbol, Hover, Location, MarkupContent,
    MarkupKind, Message, Range, SymbolKind, TextEdit, WorkspaceEdit,
};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::LibrarySource;
use roundelay_compiler::program::BUILTINS;
use roundelay_dsl::KEYWORDS;
use roundelay_dsl::ast::{FileDeclaration, SourceFile};
use roundelay_dsl::span::{SourceMap, Span};

use crate::analysis::{OWN, TextAnalysis};
use crate::document::OpenDocument;
use crate::mend::mended;
use crate::names::{NameAt, NameDefinition, NameKind, NameMeaning, NameTable, NameUse, names};
use crate::position::{ColumnUnit, LineTable};
use crate::report::FindingWriter;
use crate::texts::{TextShelf, uri_of};
use crate::traffic::values;

/// One document, and the texts around it.
pub(crate) struct NameFinder<'d> {
    pub(crate) document: &'d OpenDocument,
    pub(crate) shelf: &'d TextShelf,
    pub(crate) unit: ColumnUnit,
}

/// A definition in another text.
struct FarDefinition {
    name: String,
    text: String,
    span: Span,
    docs: Vec<String>,
}

impl NameFinder<'_> {
    fn names(&self) -> &NameTable {
        &self.document.analysis.names
    }

    fn analysis(&self) -> &TextAnalysis {
        &self.document.analysis
    }

    fn writer(&self) -> FindingWriter<'_> {
        FindingWriter {
            sources: &self.analysis().sources,
            lines: &self.document.lines,
            uri: &self.document.uri,
            unit: self.unit,
        }
    }

    /// Returns what the editor shows of the name at a byte.
    pub(crate) fn hover(&self, byte: usize) -> Option<Hover> {
        let name = match self.names().at(byte) {
            Some(NameAt::Definition(_, d)) => Some((d.span, self.described(d))),
            Some(NameAt::Use(u)) => self.explained(u).map(|text| (u.span, text)),
            Some(NameAt::Import(_)) => return None,
            None => None,
        };
        let (span, text) = match (name, values(self.document, byte)) {
            (Some((span, text)), Some((_, values))) => (span, format!("{text}\n\n{values}")),
            (name, values) => name.or(values)?,
        };
        let range = self.document.lines.range(span.start as usize..span.end as usize);
        let contents = MarkupContent { kind: MarkupKind::Markdown, value: text };
        Some(Hover { contents: Contents::from(contents), range: Some(range) })
    }

    fn described(&self, d: &NameDefinition) -> String {
        let line = self.analysis().sources.line_text(d.span).trim();
        page(&format!("{line}  // {}", d.kind.words()), &d.docs)
    }

    fn explained(&self, u: &NameUse) -> Option<String> {
        let name = &u.name;
        match &u.meaning {
            NameMeaning::Defined(i) => Some(self.described(self.names().definitions.get(*i)?)),
            NameMeaning::Function => match BUILTINS.iter().find(|b| b.0 == name) {
                Some((_, _, arguments, is_truth)) => {
                    let of = match arguments {
                        Some(1) => "a number".into(),
                        Some(count) => format!("{count} numbers"),
                        None => "two or more numbers".into(),
                    };
                    let gives = if *is_truth { "a truth value" } else { "a number" };
                    Some(format!("`{name}`: a built-in function of {of}, which gives {gives}"))
                }
                None => self.far(u).map(|far| far.page()),
            },
            NameMeaning::Word if name == "root" => {
                Some("`root`: the rank from which or at which a rooted collective is".into())
            }
            NameMeaning::Buffer => {
                Some(format!("`{name}`: the buffer of each rank; chunks are numbered from 0"))
            }
            NameMeaning::Collective | NameMeaning::Algorithm(_) => match self.far(u) {
                Some(far) => Some(far.page()),
                None => {
                    let known: Vec<&str> =
                        roundelay_algorithms::of(name).map(|entry| entry.name).collect();
                    let known = (!known.is_empty()).then(|| known.join(", "))?;
                    Some(format!("`{name}`: a collective; the library has {known}"))
                }
            },
            NameMeaning::Word | NameMeaning::Argument => None,
        }
    }

    /// Returns where the name at a byte is defined.
    pub(crate) fn definition(&self, byte: usize) -> Option<Location> {
        match self.names().at(byte)? {
            NameAt::Definition(_, d) => Some(self.writer().location(d.span)),
            NameAt::Use(u) => match u.meaning {
                NameMeaning::Defined(i) => {
                    Some(self.writer().location(self.names().definitions.get(i)?.span))
                }
                _ => self.far(u).map(|far| far.location(self.unit)),
            },
            NameAt::Import(path) => {
                let (name, _) = self.shelf.file(&self.document.name, path).ok()?;
                Some(Location { uri: uri_of(&name), range: Range::default() })
            }
        }
    }

    /// Returns what a use means in the library or in a file that is imported, also by another import.
    fn far(&self, u: &NameUse) -> Option<FarDefinition> {
        let imports = self.names().imports.iter().map(|(path, _)| path.clone());
        let mut open: Vec<(String, String)> =
            imports.map(|path| (self.document.name.clone(), path)).collect();
        let mut seen = Vec::new();
        while let Some((from, path)) = open.pop() {
            let Ok((name, text)) = self.shelf.file(&from, &path) else { continue };
            if seen.contains(&name) {
                continue;
            }
            seen.push(name.clone());
            let Some((file, names)) = parsed(&name, &text) else { continue };
            if let Some((span, docs)) = declared(&file, u) {
                return Some(FarDefinition { name, text, span, docs });
            }
            open.extend(names.imports.into_iter().map(|(path, _)| (name.clone(), path)));
        }
        let NameMeaning::Algorithm(collective) = &u.meaning else { return None };
        let entry = CATALOGUE.iter().find(|e| e.collective == collective && e.name == u.name)?;
        let (name, text) = self.shelf.algorithm(entry.collective, entry.name)?;
        let (file, _) = parsed(&name, &text)?;
        let (span, docs) = declared(&file, u)?;
        let docs = if docs.is_empty() { file.docs } else { docs };
        Some(FarDefinition { name, text, span, docs })
    }

    /// Returns the definition that the name at a byte means, if it is one of this text.
    fn own(&self, byte: usize) -> Option<usize> {
        match self.names().at(byte)? {
            NameAt::Definition(i, _) => Some(i),
            NameAt::Use(NameUse { meaning: NameMeaning::Defined(i), .. }) => Some(*i),
            _ => None,
        }
    }

    /// Returns all places of the name at a byte, as far as it is defined in this text.
    pub(crate) fn references(&self, byte: usize, with_own: bool) -> Vec<Location> {
        let Some(own) = self.own(byte) else { return Vec::new() };
        let defined = self.names().definitions.get(own).map(|d| d.span);
        let places = self.names().places(own).into_iter();
        let wanted = places.filter(|span| with_own || Some(*span) != defined);
        wanted.map(|span| self.writer().location(span)).collect()
    }

    /// Returns the edits that give the name at a byte another name.
    pub(crate) fn renamed(&self, byte: usize, name: &str) -> Result<WorkspaceEdit, String> {
        let own = self.own(byte).ok_or("this name is not defined in this text")?;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(word)
            && !KEYWORDS.contains(&name);
        if !is_name {
            return Err(format!("`{name}` is no name: letters, digits and `_`, and no keyword"));
        }
        let names = self.names();
        let taken = |span: Span| names.known(span.start as usize).any(|d| d.name == name);
        let places = names.places(own);
        if places.iter().any(|span| taken(*span)) {
            return Err(format!("`{name}` is the name of something else there"));
        }
        let edit = |span: Span| TextEdit {
            range: self.document.lines.range(span.start as usize..span.end as usize),
            new_text: name.into(),
        };
        let edits = places.into_iter().map(edit).collect();
        let changes = HashMap::from([(self.document.uri.clone(), edits)]);
        Ok(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() })
    }

    /// Returns the declarations of the text.
    pub(crate) fn symbols(&self) -> Vec<DocumentSymbol> {
        let items = self.analysis().file.iter().flat_map(|file| &file.items);
        let symbols = items.filter_map(|item| {
            let (name, kind, detail) = match item {
                FileDeclaration::Import(_) => return None,
                FileDeclaration::Fn(f) => (&f.name, SymbolKind::Function, None),
                FileDeclaration::Collective(c) => (&c.name, SymbolKind::Interface, None),
                FileDeclaration::Algorithm(a) => {
                    (&a.name, SymbolKind::Class, Some(a.collective.text.clone()))
                }
                FileDeclaration::Constant(c) => (&c.name, SymbolKind::Constant, None),
            };
            let range =
                |span: Span| self.document.lines.range(span.start as usize..span.end as usize);
            Some(DocumentSymbol {
                name: name.text.clone(),
                detail,
                kind,
                range: range(item.span()),
                selection_range: range(name.span),
                ..DocumentSymbol::new(
                    String::new(),
                    None,
                    kind,
                    None,
                    None,
                    range(name.span),
                    range(name.span),
                    None,
                )
            })
        });
        symbols.collect()
    }

    /// Returns the changes that findings ask for: other text in the place of what is blamed.
    pub(crate) fn actions(&self, found: &[gen_lsp_types::Diagnostic]) -> Vec<CodeAction> {
        let action = |d: &gen_lsp_types::Diagnostic| {
            let Message::String(message) = &d.message else { return None };
            let lines = &self.document.lines;
            let blamed = lines.byte(d.range.start)..lines.byte(d.range.end);
            let new_text = mended(message, lines.text(), blamed)?;
            let edit = TextEdit { range: d.range, new_text: new_text.clone() };
            let changes = HashMap::from([(self.document.uri.clone(), vec![edit])]);
            Some(CodeAction {
                title: format!("write `{new_text}`"),
                kind: Some(CodeActionKind::QuickFix),
                diagnostics: Some(vec![d.clone()]),
                is_preferred: Some(true),
                edit: Some(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }),
                ..CodeAction::default()
            })
        };
        found.iter().filter_map(action).collect()
    }
}

impl FarDefinition {
    fn page(&self) -> String {
        let mut sources = SourceMap::new();
        sources.add(self.name.as_str(), self.text.as_str());
        page(sources.line_text(self.span).trim(), &self.docs)
    }

    fn location(&self, unit: ColumnUnit) -> Location {
        let lines = LineTable::new(self.text.clone(), unit);
        let range = lines.range(self.span.start as usize..self.span.end as usize);
        Location { uri: uri_of(&self.name), range }
    }
}

/// Returns a line of the language and its description.
fn page(line: &str, docs: &[String]) -> String {
    let docs: Vec<&str> = docs.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    match docs.is_empty() {
        true => format!("```algo\n{line}\n```"),
        false => format!("```algo\n{line}\n```\n\n{}", docs.join("\n")),
    }
}

fn parsed(name: &str, text: &str) -> Option<(SourceFile, NameTable)> {
    let mut sources = SourceMap::new();
    let id = sources.add(name, text);
    debug_assert_eq!(id, OWN);
    let file = roundelay_dsl::parse(&sources, id).ok()?;
    let names = names(&file);
    Some((file, names))
}

/// Returns the declaration of a file that a use in another text means, and its description.
fn declared(file: &SourceFile, u: &NameUse) -> Option<(Span, Vec<String>)> {
    file.items.iter().find_map(|item| match (item, &u.meaning) {
        (FileDeclaration::Fn(f), NameMeaning::Function) if f.name.text == u.name => {
            Some((f.name.span, f.docs.clone()))
        }
        (FileDeclaration::Collective(c), NameMeaning::Collective) if c.name.text == u.name => {
            Some((c.name.span, c.docs.clone()))
        }
        (FileDeclaration::Algorithm(a), NameMeaning::Algorithm(collective))
            if a.name.text == u.name && a.collective.text == *collective =>
        {
            Some((a.name.span, a.docs.clone()))
        }
        _ => None,
    })
}

/// Returns the kind as the editor draws it.
pub(crate) fn icon(kind: NameKind) -> gen_lsp_types::CompletionItemKind {
    use gen_lsp_types::CompletionItemKind as Icon;
    match kind {
        NameKind::Constant => Icon::Constant,
        NameKind::Function => Icon::Function,
        NameKind::Collective => Icon::Interface,
        NameKind::Algorithm => Icon::Class,
        NameKind::Parameter | NameKind::Axis | NameKind::Variable | NameKind::Rank => {
            Icon::Variable
        }
        NameKind::Buffer => Icon::Field,
    }
}
