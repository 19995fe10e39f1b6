//! Makes the table of error pages that `roundelay explain` prints, from `docs/errors/`: `errors` leads there, and is a
//! folder of the package that is published.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let home = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let pages = home.join("errors");
    println!("cargo::rerun-if-changed={}", pages.display());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&pages)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut table =
        String::from("/// Code and page.\npub(crate) const PAGES: &[(&str, &str)] = &[\n");
    for file in files {
        let Some(code) = code(&file) else { continue };
        let path = file.canonicalize()?;
        let _ = writeln!(table, "    ({code:?}, include_str!({:?})),", path.display().to_string());
        println!("cargo::rerun-if-changed={}", file.display());
    }
    table.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("pages.rs"), table)
}

/// `RL0501` of `RL0501.md`.
fn code(file: &Path) -> Option<&str> {
    let stem = file.file_stem()?.to_str()?;
    (file.extension()? == "md" && stem.starts_with("RL")).then_some(stem)
}
