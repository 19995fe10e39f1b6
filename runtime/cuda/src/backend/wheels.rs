//! Finds NVIDIA's libraries in Python's packages.

use std::path::{Path, PathBuf};

use roundelay_support::variables;

/// Lists the folders `nvidia/*/lib` of Python's packages, in which pip installs NVRTC, NCCL and others: of
/// the active virtual environment, of every `python3` on the path, of the system and of the user.
pub fn wheels() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = Vec::new();
    prefixes.extend(variables::path("VIRTUAL_ENV"));
    for folder in std::env::split_paths(&variables::raw("PATH").unwrap_or_default()) {
        // An environment's python is a link: what it links to has packages too, and they come after.
        let python = folder.join("python3");
        let real = python.canonicalize().ok();
        let prefix = |file: &Path| Some(file.parent()?.parent()?.to_path_buf());
        if real.is_some() {
            prefixes.extend(prefix(&python));
            prefixes.extend(real.as_deref().and_then(prefix));
        }
    }
    prefixes.extend([PathBuf::from("/usr/local"), PathBuf::from("/usr")]);
    prefixes.extend(variables::path("HOME").map(|home| home.join(".local")));
    let mut found = Vec::new();
    for prefix in prefixes {
        for python in entries(&prefix.join("lib"), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                for package in entries(&python.join(packages).join("nvidia"), |_| true) {
                    let folder = package.join("lib");
                    if folder.is_dir() && !found.contains(&folder) {
                        found.push(folder);
                    }
                }
            }
        }
    }
    found
}

/// Returns the wanted entries of a folder, by name; none if there is no such folder.
pub(super) fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|e| e.file_name().to_str().is_some_and(&wanted));
    let mut paths: Vec<PathBuf> = named.map(|e| e.path()).collect();
    paths.sort();
    paths
}
