//! Prints trees as text: a line a node, indented by how deep it lies.

use roundelay_dsl::ast::{BinOp, UnOp};

/// A tree that is being written.
#[derive(Default)]
pub(super) struct TreeText {
    text: String,
    depth: usize,
}

impl TreeText {
    /// Writes a node, and where it was written.
    pub(super) fn node(&mut self, what: &str, at: &str) {
        let at = if at.is_empty() { String::new() } else { format!("  @{at}") };
        let indent = 2 * self.depth;
        self.text += &format!("{:indent$}{what}{at}\n", "");
    }

    /// Puts what follows into the node before.
    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    /// Puts what follows beside that node again.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns the text.
    pub(super) fn text(self) -> String {
        self.text
    }
}

/// Returns an operator before what it is applied to: `(+ r 1)`.
pub(super) fn applied(what: &str, to: &[String]) -> String {
    format!("({what} {})", to.join(" "))
}

/// Returns the operator as it is written.
pub(super) fn unary(op: UnOp) -> &'static str {
    match op {
        UnOp::Neg => "-",
        UnOp::Not => "!",
    }
}

/// Returns the operator as it is written.
pub(super) fn binary(op: BinOp) -> &'static str {
    op.symbol()
}
