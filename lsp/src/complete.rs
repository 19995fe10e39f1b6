//! Words that can stand at a place: by what stands before it, and by the names that are known there.

use gen_lsp_types::{CompletionItem, CompletionItemKind};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::program::{BUILTINS, COLLECTIVES};
use roundelay_dsl::KEYWORDS;
use roundelay_dsl::ast::{FileDeclaration, SourceFile};

use crate::document::OpenDocument;
use crate::names::NameKind;
use crate::navigate::icon;

/// Words that stand for something without a declaration.
const WORDS: [&str; 8] = ["copy", "reduce", "root", "data", "input", "output", "paths", "ranks"];
/// The words of a schedule.
const SCHEDULE: [&str; 4] = ["pipeline", "channels", "slots", "protocol"];

fn item(label: &str, kind: CompletionItemKind, detail: Option<&str>) -> CompletionItem {
    let detail = detail.map(Into::into);
    CompletionItem { label: label.into(), kind: Some(kind), detail, ..CompletionItem::default() }
}

/// Returns the words that can stand at a byte of a document.
pub(crate) fn completions(document: &OpenDocument, byte: usize) -> Vec<CompletionItem> {
    let before = &document.lines.text()[..byte];
    let line = before.rsplit('\n').next().unwrap_or_default();
    if line.contains("//") {
        return Vec::new();
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let line = line.trim_end_matches(word);
    let tree = &document.last_tree;
    let file = tree.file.as_deref();
    if let Some(owner) = line.strip_suffix('.') {
        let collective = owner.rsplit(|c: char| !word(c)).next().unwrap_or_default();
        let own = own_algorithms(file, Some(collective));
        let library = roundelay_algorithms::of(collective).map(|e| e.name.to_owned());
        let mut all: Vec<String> = own.chain(library).collect();
        if tree.names.definitions.iter().any(|d| d.kind == NameKind::Axis && d.name == collective) {
            all = vec!["size".into()];
        }
        return all.iter().map(|name| item(name, CompletionItemKind::Class, None)).collect();
    }
    match line.trim_end().rsplit(|c: char| !word(c)).next() {
        Some("implements") => return collectives(file).collect(),
        Some("use") => {
            let own = own_algorithms(file, None);
            let own = own.map(|name| item(&name, CompletionItemKind::Class, None));
            let used = CATALOGUE.iter().map(|e| {
                item(&format!("{}.{}", e.collective, e.name), CompletionItemKind::Class, None)
            });
            return own.chain(used).collect();
        }
        Some("schedule") => return Vec::new(),
        _ => {}
    }
    let mut all: Vec<CompletionItem> = Vec::new();
    for d in tree.names.known(byte) {
        if !all.iter().any(|known| known.label == d.name) {
            all.push(item(&d.name, icon(d.kind), Some(d.kind.words())));
        }
    }
    let call = |b: &(&str, _, _, _)| item(b.0, CompletionItemKind::Function, Some("built-in"));
    all.extend(BUILTINS.iter().map(call));
    let words = WORDS.iter().chain(&SCHEDULE).chain(KEYWORDS);
    all.extend(words.map(|word| item(word, CompletionItemKind::Keyword, None)));
    all
}

fn own_algorithms<'f>(
    file: Option<&'f SourceFile>,
    collective: Option<&'f str>,
) -> impl Iterator<Item = String> + 'f {
    file.into_iter().flat_map(|file| &file.items).filter_map(move |item| match item {
        FileDeclaration::Algorithm(a)
            if collective.is_none_or(|wanted| a.collective.text == wanted) =>
        {
            Some(a.name.text.clone())
        }
        _ => None,
    })
}

fn collectives(file: Option<&SourceFile>) -> impl Iterator<Item = CompletionItem> + '_ {
    let own = file.into_iter().flat_map(|file| &file.items).filter_map(|item| match item {
        FileDeclaration::Collective(c) => Some(c.name.text.as_str()),
        _ => None,
    });
    let all = COLLECTIVES.iter().map(|(name, _)| *name).chain(own);
    all.map(|name| item(name, CompletionItemKind::Interface, None))
}
