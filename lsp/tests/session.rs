//! An editor without a screen.

use std::collections::HashMap;

use roundelay_algorithms::AlgorithmLibrary;
use roundelay_lsp::LanguageServer;
use serde_json::{Value, json};

/// A text that is right, formatted.
pub(crate) const RING: &str = "//! Each chunk goes round once to be summed and once to be shared.
algorithm ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}
";

/// A server, and what an editor keeps of it.
pub(crate) struct EditorSession {
    pub(crate) server: LanguageServer,
    versions: HashMap<String, i32>,
    shown: HashMap<String, Value>,
}

impl EditorSession {
    pub(crate) fn new() -> Self {
        let mut server = LanguageServer::new(Box::new(AlgorithmLibrary));
        let answer = server.initialize(json!({ "capabilities": {} })).expect("it begins");
        assert_eq!(answer["capabilities"]["positionEncoding"], "utf-16");
        EditorSession { server, versions: HashMap::new(), shown: HashMap::new() }
    }

    pub(crate) fn uri(&self, name: &str) -> String {
        format!("file:///project/{name}")
    }

    /// Opens a text or replaces it, and has it proved.
    pub(crate) fn open(&mut self, name: &str, text: &str) {
        self.open_unproved(name, text);
        self.prove();
    }

    pub(crate) fn open_unproved(&mut self, name: &str, text: &str) {
        let uri = self.uri(name);
        let version = self.versions.entry(name.into()).and_modify(|v| *v += 1).or_insert(1);
        let (method, params) = match *version {
            1 => (
                "textDocument/didOpen",
                json!({ "textDocument": {
                    "uri": uri, "languageId": "algo", "version": 1, "text": text,
                } }),
            ),
            version => (
                "textDocument/didChange",
                json!({
                    "textDocument": { "uri": uri, "version": version },
                    "contentChanges": [{ "text": text }],
                }),
            ),
        };
        self.server.notification(method, params).expect(method);
        self.listen();
    }

    /// Replaces a range of a text.
    pub(crate) fn change(&mut self, name: &str, range: &Value, text: &str) {
        let version = self.versions.get_mut(name).expect("an open text");
        *version += 1;
        let params = json!({
            "textDocument": { "uri": format!("file:///project/{name}"), "version": *version },
            "contentChanges": [{ "range": range, "text": text }],
        });
        self.server.notification("textDocument/didChange", params).expect("a change");
        self.prove();
    }

    /// Runs the proofs that the server asks for.
    pub(crate) fn prove(&mut self) {
        for task in self.server.take_proofs() {
            if let Some(outcome) = task.run() {
                self.server.take_outcome(outcome);
            }
        }
        self.listen();
    }

    fn listen(&mut self) {
        for said in self.server.take_messages() {
            assert_eq!(said.method, "textDocument/publishDiagnostics");
            let uri = said.params["uri"].as_str().expect("an address").to_owned();
            self.shown.insert(uri, said.params["diagnostics"].clone());
        }
    }

    /// Returns the findings that are shown of a text.
    pub(crate) fn findings(&self, name: &str) -> Value {
        self.shown.get(&self.uri(name)).cloned().expect("something was said of it")
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let uri = self.uri(name);
        let found = self.server.open_texts().find(|(open, _)| open.0 == uri);
        found.expect("an open text").1.to_owned()
    }

    pub(crate) fn request(&self, method: &str, params: Value) -> Value {
        self.server.request(method, params).expect(method)
    }

    pub(crate) fn try_request(&self, method: &str, params: Value) -> Result<Value, String> {
        self.server.request(method, params).map_err(|fault| fault.message)
    }

    /// Returns the parameters of a request at a byte of a text, which is ASCII.
    pub(crate) fn place(&self, name: &str, byte: usize) -> Value {
        let uri = self.uri(name);
        let text = self.server.open_texts().find(|(open, _)| open.0 == uri);
        let before = text.map_or("", |(_, text)| &text[..byte]);
        let line = before.matches('\n').count();
        let character = before.len() - before.rfind('\n').map_or(0, |i| i + 1);
        json!({
            "textDocument": { "uri": uri },
            "position": { "line": line, "character": character },
        })
    }

    pub(crate) fn at(&self, method: &str, name: &str, byte: usize) -> Value {
        self.request(method, self.place(name, byte))
    }

    pub(crate) fn document(&self, method: &str, name: &str) -> Value {
        let mut params = json!({ "textDocument": { "uri": self.uri(name) } });
        if method.ends_with("formatting") {
            params["options"] = json!({ "tabSize": 4, "insertSpaces": true });
        }
        self.request(method, params)
    }

    /// Returns the titles of the lines above algorithms.
    pub(crate) fn lenses(&self, name: &str) -> Vec<String> {
        let lenses = self.document("textDocument/codeLens", name);
        let title = |lens: &Value| lens["command"]["title"].as_str().map(Into::into);
        lenses.as_array().expect("a list").iter().filter_map(title).collect()
    }

    /// Returns the words that can stand before a piece of a text.
    pub(crate) fn completions(&self, name: &str, before: &str) -> Vec<String> {
        let byte = self.text(name).find(before).expect("it is there");
        let items = self.at("textDocument/completion", name, byte);
        let label = |item: &Value| item["label"].as_str().map(Into::into);
        items.as_array().expect("a list").iter().filter_map(label).collect()
    }
}
