//! Where NCCL may lie.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The environment variable that names the library.
pub(crate) const VARIABLE: &str = "ROUNDELAY_NCCL";

/// Its names, for the dynamic linker.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// In a folder of Python packages.
const WHEEL: &str = "nvidia/nccl/lib/libnccl.so.2";

/// What is to be tried, in order: what the variable names and nothing else; what the dynamic linker finds;
/// what lies in Python's folders.
pub(super) fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        return vec![path.into()];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let venv = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let wheels = packages(&path, venv.as_deref(), home.as_deref());
    let wheels = wheels.into_iter().map(|folder| folder.join(WHEEL)).filter(|p| p.is_file());
    NAMES.into_iter().map(PathBuf::from).chain(wheels).collect()
}

/// Folders of Python packages: of the environment, of every Python that can be called, of the user.
fn packages(path: &OsStr, venv: Option<&Path>, home: Option<&Path>) -> Vec<PathBuf> {
    let python = |folder: &PathBuf| folder.join("python3").exists();
    let called = std::env::split_paths(path).filter(python);
    let prefixes = called.filter_map(|bin| Some(bin.parent()?.to_owned()));
    let prefixes = venv.map(Path::to_owned).into_iter().chain(prefixes);
    let own = home.map(|home| home.join(".local"));
    let mut folders: Vec<PathBuf> = Vec::new();
    for prefix in prefixes.chain(own) {
        for lib in ["lib", "local/lib", "lib64"] {
            let Ok(entries) = std::fs::read_dir(prefix.join(lib)) else { continue };
            let mut found: Vec<PathBuf> = entries
                .flatten()
                .filter(|e| e.file_name().to_string_lossy().starts_with("python3"))
                .flat_map(|e| ["site-packages", "dist-packages"].map(|name| e.path().join(name)))
                .filter(|folder| folder.is_dir())
                .collect();
            found.sort();
            folders.extend(found);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_packages_lie_beside_the_python_that_is_called() {
        let root = std::env::temp_dir().join(format!("roundelay-find-{}", std::process::id()));
        let site = root.join("venv/lib/python3.12/site-packages");
        let bin = root.join("venv/bin");
        std::fs::create_dir_all(&site).expect("a folder");
        std::fs::create_dir_all(&bin).expect("a folder");
        let before = packages(bin.as_os_str(), None, None);
        std::fs::write(bin.join("python3"), "").expect("a file");
        let after = packages(bin.as_os_str(), None, None);
        let by_venv = packages(OsStr::new(""), Some(&root.join("venv")), None);
        std::fs::remove_dir_all(&root).expect("the folder goes");
        assert!(before.is_empty(), "there is no Python: {before:?}");
        assert_eq!(after, std::slice::from_ref(&site));
        assert_eq!(by_venv, [site]);
    }
}
