//! The certificate of a program: its text, and the proof as a checker follows it through the program.
//!
//! `docs/proofs.md` explains it, and `algorithms/proofs/check.py` checks it. The proof has no places: a checker that
//! goes through the statements as the driver does needs its lines in this order.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::certificate_step::CertificateStep;
use super::program_text::{ProgramText, buffer_name};
use super::verdict::ProofRecord;

/// Writes a certificate. The proof is of `least` ranks and more; a checker tries fewer one by one.
pub(super) fn write_certificate(
    name: &str,
    mut program: ProgramText,
    least: u32,
    record: &ProofRecord,
) -> String {
    let names = &mut program.names;
    let program = format!("algorithm {name}\n{}", program.text);
    let mut hash = String::new();
    for byte in Sha256::digest(&program) {
        // Writing to a string does not fail, here and below.
        let _ = write!(hash, "{byte:02x}");
    }
    let mut text = format!("roundelay certificate 1\nhash {hash}\n{program}proof\n");
    if least > 1 {
        let _ = writeln!(text, "ranks from {least}");
    }
    for step in &record.steps {
        let line = match step {
            CertificateStep::Invariant(buffer, view) => {
                let (stored, content) = (names.write(&view.stored), names.write(&view.content));
                format!("invariant {} : {stored} : {content}", buffer_name(*buffer))
            }
            CertificateStep::Witness(expressions, by_content) => {
                let list: Vec<String> = expressions.iter().map(|e| names.write(e)).collect();
                let of = if *by_content { "contribution" } else { "place" };
                format!("writer of {of} : {}", list.join(" , "))
            }
            CertificateStep::Fact(None) => "fact open".into(),
            CertificateStep::Fact(Some(tree)) => format!("fact {tree}"),
            CertificateStep::Obligation(at) => match record.obligations.get(*at) {
                Some((obligation, tree)) => format!("show {} by {tree}", obligation.name),
                None => continue,
            },
        };
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str("end\n");
    text
}
