//! The language server: what an editor shows while an algorithm is written.
//!
//! [`LanguageServer`] takes messages of the language server protocol and gives answers. It starts no thread, reads no
//! clock and waits for nothing, so that a program over standard input and a page in a browser can have the same one.
//! Proofs are handed out as a [`ProofTask`]: the caller runs it wherever it likes, and gives back the [`ProofOutcome`].
//!
//! * `position`: places in a text as the protocol counts them.
//! * `texts`: open documents and the files that they import; `document`: one of them.
//! * `names`: definitions and uses of names; `analysis`: all that is known of a text without a proof.
//! * `proof`: what is proved of a text, and what need not be proved again.
//! * `traffic`: messages of statements and values of expressions, with a few ranks.
//! * `report`, `mend`, `navigate`, `complete`, `tokens`: the answers.
//! * `server`: the messages.
#![forbid(unsafe_code)]

mod analysis;
mod complete;
mod document;
mod mend;
mod names;
mod navigate;
mod position;
mod proof;
mod report;
mod server;
mod texts;
mod tokens;
mod traffic;

pub use proof::{ProofOutcome, ProofTask};
pub use server::{LanguageServer, RequestFault, ServerMessage};
