//! The messages: what an editor asks for, and what the server says by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use gen_lsp_types::{
    CodeActionParams, CodeLens, CodeLensOptions, Command, CompletionOptions, CompletionParams,
    DefinitionParams, DidChangeTextDocumentParams, DidCloseTextDocumentParams,
    DidOpenTextDocumentParams, DocumentFormattingParams, HoverParams, InitializeParams,
    InitializeResult, InlayHintParams, PositionEncodingKind, PublishDiagnosticsParams,
    ReferenceParams, RenameParams, SemanticTokensOptions, ServerCapabilities, ServerInfo,
    TextDocumentContentChangeEvent, TextDocumentIdentifier, TextDocumentPositionParams,
    TextDocumentSyncKind, TextEdit, Uri,
};
use roundelay_compiler::LibrarySource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::analysis::TextAnalysis;
use crate::complete::completions;
use crate::document::OpenDocument;
use crate::navigate::NameFinder;
use crate::position::{ColumnUnit, LineTable};
use crate::proof::{ProofCache, ProofOutcome, ProofTask, ProofVerdict, ProvedAlgorithm};
use crate::report::FindingWriter;
use crate::texts::{TextShelf, name_of};
use crate::tokens::{legend, tokens};
use crate::traffic::hints;

/// The reason for which a request has no answer, with its number in the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFault {
    /// The number: -32601 for a request that the server does not know, -32602 for one that it cannot read, -32803 for
    /// one that makes no sense at that place.
    pub code: i32,
    /// The reason in words.
    pub message: String,
}

impl RequestFault {
    fn unknown(method: &str) -> Self {
        RequestFault { code: -32601, message: format!("no request `{method}` is known") }
    }

    fn refused(message: impl Into<String>) -> Self {
        RequestFault { code: -32803, message: message.into() }
    }
}

/// A message of the server that no request asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerMessage {
    /// The method.
    pub method: &'static str,
    /// Its parameters.
    pub params: Value,
    /// True for a request, which the editor answers; the answer says nothing.
    pub is_request: bool,
}

/// The parameters of requests that name a document only.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentParams {
    text_document: TextDocumentIdentifier,
}

/// A language server without its input and output.
#[derive(Debug)]
pub struct LanguageServer {
    unit: ColumnUnit,
    documents: BTreeMap<String, OpenDocument>,
    shelf: TextShelf,
    proofs: ProofCache,
    /// True if the editor can be asked to fetch the lines above algorithms anew.
    refreshes: bool,
    said: Vec<ServerMessage>,
    /// Proofs that are to be run.
    asked: Vec<ProofTask>,
    /// The number of algorithms that were given out to be proved.
    proved: usize,
}

impl LanguageServer {
    /// Makes a server; `files` has the library, and the files that texts import and that are not open.
    pub fn new(files: Box<dyn LibrarySource + Send>) -> Self {
        LanguageServer {
            unit: ColumnUnit::default(),
            documents: BTreeMap::new(),
            shelf: TextShelf::new(files),
            proofs: ProofCache::default(),
            refreshes: false,
            said: Vec::new(),
            asked: Vec::new(),
            proved: 0,
        }
    }

    /// Returns what the editor is to be sent, in order.
    pub fn take_messages(&mut self) -> Vec<ServerMessage> {
        std::mem::take(&mut self.said)
    }

    /// Returns the proofs that are to be run; those of texts that have changed since end at once.
    pub fn take_proofs(&mut self) -> Vec<ProofTask> {
        std::mem::take(&mut self.asked)
    }

    /// Returns the number of algorithms that have been given out to be proved.
    pub fn proved_algorithms(&self) -> usize {
        self.proved
    }

    /// Returns the address of every open document and its text.
    pub fn open_texts(&self) -> impl Iterator<Item = (&Uri, &str)> {
        self.documents.values().map(|d| (&d.uri, d.lines.text()))
    }

    /// Answers the first request, `initialize`.
    ///
    /// # Errors
    ///
    /// Parameters that cannot be read.
    pub fn initialize(&mut self, params: Value) -> Result<Value, RequestFault> {
        let params: InitializeParams = read(params)?;
        let workspace = params.capabilities.workspace;
        let lenses = workspace.and_then(|w| w.code_lens);
        self.refreshes = lenses.and_then(|l| l.refresh_support).unwrap_or(false);
        let offered = params.capabilities.general.and_then(|g| g.position_encodings);
        let is_bytes = offered.is_some_and(|all| all.contains(&PositionEncodingKind::UTF8));
        self.unit = if is_bytes { ColumnUnit::Utf8 } else { ColumnUnit::Utf16 };
        let capabilities = ServerCapabilities {
            position_encoding: Some(match self.unit {
                ColumnUnit::Utf8 => PositionEncodingKind::UTF8,
                ColumnUnit::Utf16 => PositionEncodingKind::UTF16,
            }),
            text_document_sync: Some(TextDocumentSyncKind::Incremental.into()),
            completion_provider: Some(CompletionOptions {
                trigger_characters: Some(vec![".".into(), " ".into()]),
                ..CompletionOptions::default()
            }),
            hover_provider: Some(true.into()),
            definition_provider: Some(true.into()),
            references_provider: Some(true.into()),
            document_symbol_provider: Some(true.into()),
            code_action_provider: Some(true.into()),
            code_lens_provider: Some(CodeLensOptions::default()),
            inlay_hint_provider: Some(true.into()),
            document_formatting_provider: Some(true.into()),
            rename_provider: Some(true.into()),
            semantic_tokens_provider: Some(
                SemanticTokensOptions {
                    legend: legend(),
                    full: Some(true.into()),
                    ..SemanticTokensOptions::new(legend(), None, None, Default::default())
                }
                .into(),
            ),
            ..ServerCapabilities::default()
        };
        let version = Some(env!("CARGO_PKG_VERSION").into());
        let server_info = Some(ServerInfo { name: "roundelay".into(), version });
        Ok(json!(InitializeResult { capabilities, server_info }))
    }

    /// Takes a notification; those that the server does not know are passed over, as the protocol says.
    ///
    /// # Errors
    ///
    /// Parameters that cannot be read; nothing has changed then.
    pub fn notification(&mut self, method: &str, params: Value) -> Result<(), RequestFault> {
        match method {
            "textDocument/didOpen" => {
                let DidOpenTextDocumentParams { text_document } = read(params)?;
                self.changed(text_document.uri, text_document.version, text_document.text);
            }
            "textDocument/didChange" => {
                let params: DidChangeTextDocumentParams = read(params)?;
                let id = params.text_document;
                let uri = id.text_document_identifier.uri;
                let document = self.document(&uri)?;
                let mut lines = document.lines.clone();
                for change in params.content_changes {
                    let text = match change {
                        TextDocumentContentChangeEvent::TextDocumentContentChangePartial(c) => {
                            lines.replaced(c.range, &c.text)
                        }
                        TextDocumentContentChangeEvent::TextDocumentContentChangeWholeDocument(
                            c,
                        ) => c.text,
                    };
                    lines = LineTable::new(text, self.unit);
                }
                self.changed(uri, id.version, lines.text().to_owned());
            }
            "textDocument/didClose" => {
                let DidCloseTextDocumentParams { text_document: id } = read(params)?;
                let name = name_of(&id.uri);
                self.documents.remove(&name);
                self.shelf.open.remove(&name);
                self.publish(id.uri, None, Vec::new());
                self.analyse_importers(&name);
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// [`RequestFault`].
    pub fn request(&self, method: &str, params: Value) -> Result<Value, RequestFault> {
        let answer = match method {
            "textDocument/hover" => {
                let HoverParams { text_document_position_params: at, .. } = read(params)?;
                let (finder, byte) = self.finder(&at)?;
                json!(finder.hover(byte))
            }
            "textDocument/definition" => {
                let DefinitionParams { text_document_position_params: at, .. } = read(params)?;
                let (finder, byte) = self.finder(&at)?;
                json!(finder.definition(byte))
            }
            "textDocument/references" => {
                let params: ReferenceParams = read(params)?;
                let (finder, byte) = self.finder(&params.text_document_position_params)?;
                json!(finder.references(byte, params.context.include_declaration))
            }
            "textDocument/rename" => {
                let params: RenameParams = read(params)?;
                let (finder, byte) = self.finder(&params.text_document_position_params)?;
                json!(finder.renamed(byte, &params.new_name).map_err(RequestFault::refused)?)
            }
            "textDocument/completion" => {
                let CompletionParams { text_document_position_params: at, .. } = read(params)?;
                let (finder, byte) = self.finder(&at)?;
                json!(completions(finder.document, byte))
            }
            "textDocument/documentSymbol" => {
                let DocumentParams { text_document: id } = read(params)?;
                json!(self.named(self.document(&id.uri)?).symbols())
            }
            "textDocument/codeAction" => {
                let params: CodeActionParams = read(params)?;
                let document = self.document(&params.text_document.uri)?;
                json!(self.named(document).actions(&params.context.diagnostics))
            }
            "textDocument/codeLens" => {
                let DocumentParams { text_document: id } = read(params)?;
                json!(lenses(self.document(&id.uri)?))
            }
            "textDocument/inlayHint" => {
                let InlayHintParams { text_document: id, range, .. } = read(params)?;
                let mut all = hints(self.document(&id.uri)?);
                all.retain(|hint| (range.start..=range.end).contains(&hint.position));
                json!(all)
            }
            "textDocument/formatting" => {
                let DocumentFormattingParams { text_document: id, .. } = read(params)?;
                json!(formatted(self.document(&id.uri)?))
            }
            "textDocument/semanticTokens/full" => {
                let DocumentParams { text_document: id } = read(params)?;
                let document = self.document(&id.uri)?;
                json!(tokens(&document.analysis.names, &document.lines))
            }
            "shutdown" => Value::Null,
            _ => return Err(RequestFault::unknown(method)),
        };
        Ok(answer)
    }

    /// Takes the findings of a proof; those of a text that has changed since, or imports one that has, are dropped.
    pub fn take_outcome(&mut self, outcome: ProofOutcome) {
        let name = name_of(&outcome.uri);
        let Some(document) = self.documents.get_mut(&name) else { return };
        if !Arc::ptr_eq(&document.analysis, &outcome.analysis) {
            return;
        }
        for (index, proved) in outcome.proved {
            if let Some(algorithm) = document.analysis.algorithms.get(index) {
                self.proofs.keep(algorithm, &proved);
            }
            if let Some(place) = document.proved.get_mut(index) {
                *place = proved;
            }
        }
        self.say_proved(&name);
    }

    fn document(&self, uri: &Uri) -> Result<&OpenDocument, RequestFault> {
        let known = self.documents.get(&name_of(uri));
        known.ok_or_else(|| RequestFault::refused(format!("{uri} is not open")))
    }

    fn named<'s>(&'s self, document: &'s OpenDocument) -> NameFinder<'s> {
        NameFinder { document, shelf: &self.shelf, unit: self.unit }
    }

    fn finder(
        &self,
        at: &TextDocumentPositionParams,
    ) -> Result<(NameFinder<'_>, usize), RequestFault> {
        let document = self.document(&at.text_document.uri)?;
        Ok((self.named(document), document.lines.byte(at.position)))
    }

    /// Takes over the text of a document, and looks anew at those that import it.
    fn changed(&mut self, uri: Uri, version: i32, text: String) {
        let name = name_of(&uri);
        self.shelf.open.insert(name.clone(), text.as_str().into());
        let lines = LineTable::new(text, self.unit);
        let document = match self.documents.remove(&name) {
            Some(old) => OpenDocument { version, lines, ..old },
            None => OpenDocument::new(uri, name.clone(), version, lines),
        };
        self.documents.insert(name.clone(), document);
        self.analyse(&name);
        self.analyse_importers(&name);
    }

    fn analyse_importers(&mut self, changed: &str) {
        let imports = |d: &OpenDocument| {
            d.name != changed && d.analysis.sources.find(changed).is_some()
                || d.analysis.file.is_some() && !d.analysis.is_sound()
        };
        let others: Vec<String> = self
            .documents
            .values()
            .filter(|d| d.name != changed && !d.last_tree.names.imports.is_empty() && imports(d))
            .map(|d| d.name.clone())
            .collect();
        others.iter().for_each(|name| self.analyse(name));
    }

    /// Analyses a document, says what is wrong with it, and asks for the proofs that are not known.
    fn analyse(&mut self, name: &str) {
        let Some(document) = self.documents.get_mut(name) else { return };
        document.analysed(TextAnalysis::new(name, document.lines.text(), &self.shelf));
        let analysis = document.analysis.clone();
        let none = ProvedAlgorithm {
            verdict: ProofVerdict::Undecided,
            shapes: Vec::new(),
            is_all_n: false,
            cost: None,
            found: Vec::new(),
        };
        let mut asked = Vec::new();
        if analysis.is_sound() {
            for (index, algorithm) in analysis.algorithms.iter().enumerate() {
                let known = self.proofs.find(algorithm);
                asked.extend(known.is_none().then_some(index));
                document.proved.push(known.unwrap_or(&none).clone());
            }
        }
        if !asked.is_empty() {
            self.proved += asked.len();
            let (uri, is_stale) = (document.uri.clone(), document.is_stale.clone());
            self.asked.push(ProofTask { uri, analysis, asked, is_stale });
        }
        self.say(name);
    }

    /// Says what is wrong with a document, with what its proofs found.
    fn say(&mut self, name: &str) {
        let Some(document) = self.documents.get(name) else { return };
        let analysis = &document.analysis;
        let writer = FindingWriter {
            sources: &analysis.sources,
            lines: &document.lines,
            uri: &document.uri,
            unit: self.unit,
        };
        let mut all: Vec<_> = analysis.found.iter().map(|d| writer.shown(d, None)).collect();
        for proved in &document.proved {
            let shape = match &proved.verdict {
                ProofVerdict::Refuted(shape) => Some(shape),
                _ => None,
            };
            all.extend(proved.found.iter().map(|d| writer.shown(d, shape)));
        }
        let (uri, version) = (document.uri.clone(), document.version);
        self.publish(uri, Some(version), all);
    }

    fn say_proved(&mut self, name: &str) {
        self.say(name);
        if self.refreshes {
            let method = "workspace/codeLens/refresh";
            self.said.push(ServerMessage { method, params: Value::Null, is_request: true });
        }
    }

    fn publish(
        &mut self,
        uri: Uri,
        version: Option<i32>,
        diagnostics: Vec<gen_lsp_types::Diagnostic>,
    ) {
        let params = PublishDiagnosticsParams { uri, version, diagnostics };
        let (method, params) = ("textDocument/publishDiagnostics", json!(params));
        self.said.push(ServerMessage { method, params, is_request: false });
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, RequestFault> {
    serde_json::from_value(params)
        .map_err(|e| RequestFault { code: -32602, message: format!("parameters: {e}") })
}

/// Returns the line above each algorithm.
fn lenses(document: &OpenDocument) -> Vec<CodeLens> {
    let algorithms = document.analysis.algorithms.iter().zip(&document.proved);
    let lens = algorithms.map(|(algorithm, proved)| {
        let header = algorithm.program.header;
        CodeLens {
            range: document.lines.range(header.start as usize..header.end as usize),
            command: Some(Command {
                title: proved.title(),
                command: String::new(),
                ..Command::default()
            }),
            data: None,
        }
    });
    lens.collect()
}

/// Returns the edit that formats a document; none for a text that breaks the grammar, or is formatted.
fn formatted(document: &OpenDocument) -> Vec<TextEdit> {
    let text = document.lines.text();
    let formatted = roundelay_dsl::format(&document.analysis.sources, crate::analysis::OWN);
    match formatted {
        Ok(new_text) if new_text != text => {
            vec![TextEdit { range: document.lines.range(0..text.len()), new_text }]
        }
        _ => Vec::new(),
    }
}
