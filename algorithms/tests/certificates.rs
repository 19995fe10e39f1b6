//! The certificates of algorithms that are proved for every rank count, which a checker accepts that shares no code with
//! the prover. `UPDATE_EXPECT=1 cargo test -p roundelay-algorithms --test certificates` writes them anew.

use std::path::PathBuf;
use std::sync::Arc;

use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE};
use roundelay_compiler::all_n::{ProofOptions, prove};
use roundelay_compiler::{Program, resolve};
use roundelay_dsl::span::SourceMap;

/// The folder of the checker and of the certificates.
fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/proofs"))
}

fn resolve_text(text: &str) -> Option<Arc<Program>> {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let mut programs = resolve(&mut sources, id, &AlgorithmLibrary).ok()?;
    (!programs.is_empty()).then(|| programs.remove(0))
}

#[test]
fn certificates_are_written_anew() {
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    for entry in CATALOGUE {
        let program = resolve_text(entry.text).expect("the text resolves");
        let Ok(proof) = prove(&program, ProofOptions::default()) else { continue };
        let path = folder().join(format!("{}.{}.cert", entry.collective, entry.name));
        if is_update {
            std::fs::write(&path, &proof.certificate).expect("the certificate can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == proof.certificate, "{path:?} is another: set UPDATE_EXPECT=1");
    }
}
