//! Tests of `roundelay lsp`: the real program over its standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

const RING: &str = "algorithm ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}
";

/// A server that runs, as an editor has it.
struct LspProcess {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl LspProcess {
    fn start() -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_roundelay"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("the program starts");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("its output"));
        LspProcess { child, to, from: BufReader::new(from) }
    }

    fn send(&mut self, message: Value) {
        let text = message.to_string();
        let to = self.to.as_mut().expect("it is open");
        write!(to, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("it listens");
        to.flush().expect("it listens");
    }

    /// Returns the next message; the end of the output is a failure, never a wait.
    fn next(&mut self) -> Value {
        let mut length = None;
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).expect("a line") > 0, "the output has ended");
            match line.trim_end() {
                "" => break,
                header => {
                    let number = header.strip_prefix("Content-Length: ");
                    length = number.and_then(|n| n.parse().ok()).or(length);
                }
            }
        }
        let mut bytes = vec![0; length.expect("a length")];
        self.from.read_exact(&mut bytes).expect("a message");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Returns the first message from here on that is as wanted.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next();
            if wanted(&message) {
                return message;
            }
        }
    }

    fn begin(&mut self) {
        let capabilities = json!({ "workspace": { "codeLens": { "refreshSupport": true } } });
        let params = json!({ "processId": null, "rootUri": null, "capabilities": capabilities });
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }));
        let answer = self.until(|m| m["id"] == 1);
        assert_eq!(answer["result"]["serverInfo"]["name"], "roundelay");
        self.send(json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
    }

    fn end(mut self) -> i32 {
        drop(self.to.take());
        let status = self.child.wait().expect("it ends");
        status.code().expect("it was not ended by a signal")
    }
}

fn open(uri: &str, text: &str) -> Value {
    let document = json!({ "uri": uri, "languageId": "algo", "version": 1, "text": text });
    let params = json!({ "textDocument": document });
    json!({ "jsonrpc": "2.0", "method": "textDocument/didOpen", "params": params })
}

#[test]
fn an_editor_opens_a_text_changes_it_and_leaves() {
    let mut server = LspProcess::start();
    server.begin();
    server.send(open("file:///t/ring.algo", RING));
    // The proof is done when the lines above algorithms are new.
    server.until(|m| m["method"] == "workspace/codeLens/refresh");
    let id = json!({ "uri": "file:///t/ring.algo" });
    let lens = json!({ "textDocument": id });
    server.send(
        json!({ "jsonrpc": "2.0", "id": 2, "method": "textDocument/codeLens", "params": lens }),
    );
    let lens = server.until(|m| m["id"] == 2);
    let title = lens["result"][0]["command"]["title"].as_str().expect("a title");
    assert!(title.starts_with("proved for all n"), "{title}");
    let wrong = RING.replace("reduce data[(r - s) % n]", "reduce data[(r + s) % n]");
    let params = json!({
        "textDocument": { "uri": "file:///t/ring.algo", "version": 2 },
        "contentChanges": [{ "text": wrong }],
    });
    server.send(json!({ "jsonrpc": "2.0", "method": "textDocument/didChange", "params": params }));
    let found =
        server.until(|m| m["params"]["diagnostics"].as_array().is_some_and(|d| !d.is_empty()));
    assert_eq!(found["params"]["version"], 2);
    let refused =
        json!({ "jsonrpc": "2.0", "id": 3, "method": "textDocument/nothing", "params": {} });
    server.send(refused);
    assert_eq!(server.until(|m| m["id"] == 3)["error"]["code"], -32601);
    // A notification that makes no sense is said to the log, and the server goes on.
    server.send(
        json!({ "jsonrpc": "2.0", "method": "textDocument/didChange", "params": { "a": 1 } }),
    );
    server.until(|m| m["method"] == "window/logMessage");
    server.send(json!({ "jsonrpc": "2.0", "id": 4, "method": "shutdown", "params": null }));
    assert_eq!(server.until(|m| m["id"] == 4)["result"], Value::Null);
    server.send(json!({ "jsonrpc": "2.0", "method": "exit", "params": null }));
    assert_eq!(server.end(), 0);
}

#[test]
fn a_server_whose_editor_is_gone_ends() {
    let mut server = LspProcess::start();
    server.begin();
    server.send(open("file:///t/ring.algo", RING));
    assert_eq!(server.end(), 0);
    let never_began = LspProcess::start();
    assert_eq!(never_began.end(), 3);
}
