//! No file imports another that imports it, by any path of imports: the files of each package can be read in an order.
//!
//! A path that begins with `crate`, `self` or `super`, or with a module of the file, leads to the file that defines
//! what it names, through re-exports. Tests are left out: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree};

/// Cycles that are left, by package, each of a module and files that it calls: to be taken away, never added to.
const LEFT: [(&str, &[&str]); 8] = [
    ("cli", &["peer", "peer/gloo", "peer/mpi", "peer/oneccl"]),
    ("cli", &["stress", "stress/library", "stress/loss", "stress/report"]),
    ("cli", &["tune", "tune/check", "tune/gpu"]),
    ("dsl", &["parse", "parse/build", "parse/explain", "parse/parts"]),
    ("macros", &["generate", "generate/shadow"]),
    ("macros", &["parse", "parse/chain", "parse/function"]),
    ("runtime/support", &["fabric", "fabric/write"]),
    (
        "tests",
        &[
            "oracle",
            "oracle/collective",
            "oracle/declared",
            "oracle/files",
            "oracle/number",
            "oracle/round",
            "oracle/statements",
        ],
    ),
];

/// The module path of a file: `["comm", "window"]`.
pub(super) type Module = Vec<String>;

/// The paths that a file names, each as its segments; re-exports are named by what they export.
#[derive(Default)]
struct NamedPaths {
    paths: BTreeSet<Vec<String>>,
    exports: Vec<(String, Vec<String>)>,
}

impl NamedPaths {
    fn of_file(text: &str) -> Self {
        let mut found = NamedPaths::default();
        let file = syn::parse_file(text).expect("a file of Rust");
        found.visit_file(&file);
        found
    }

    /// Takes in a tree of imports; `is_public` if it re-exports.
    fn import(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), is_public),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before, is_public));
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.paths.insert(before.to_vec());
            }
            UseTree::Name(name) => {
                self.import_one(name.ident.to_string(), with(&name.ident), is_public);
            }
            UseTree::Rename(name) => {
                self.import_one(name.rename.to_string(), with(&name.ident), is_public);
            }
            UseTree::Glob(_) => {
                self.paths.insert([before, &["*".to_owned()]].concat());
            }
        }
    }

    fn import_one(&mut self, name: String, path: Vec<String>, is_public: bool) {
        if is_public {
            self.exports.push((name, path.clone()));
        }
        self.paths.insert(path);
    }

    /// Takes in the paths in the tokens of a macro, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(colon) if colon.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => {
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.paths.extend((path.len() > 1).then(|| std::mem::take(&mut path)));
                    path.clear();
                    colons = 0;
                    match other {
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.paths.extend((path.len() > 1).then_some(path));
    }
}

pub(super) fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for NamedPaths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_of_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.paths.insert(segments);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in super::super)` names no item.
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

/// Returns the module and the rest that a path leads to from a file, if it is one of the package's.
fn resolve(
    files: &BTreeMap<Module, NamedPaths>,
    from: &Module,
    path: &[String],
) -> Option<(Module, Vec<String>)> {
    let mut rest = path.to_vec();
    let mut at = match path.first()?.as_str() {
        "crate" => {
            rest.remove(0);
            Vec::new()
        }
        "self" => {
            rest.remove(0);
            from.clone()
        }
        "super" => {
            let mut at = from.clone();
            while rest.first().is_some_and(|name| name == "super") {
                at.pop()?;
                rest.remove(0);
            }
            at
        }
        name => {
            let child = [from.as_slice(), &[name.to_owned()]].concat();
            files.contains_key(&child).then(|| from.clone())?
        }
    };
    while let Some(name) = rest.first() {
        let child = [at.as_slice(), std::slice::from_ref(name)].concat();
        if !files.contains_key(&child) {
            break;
        }
        at = child;
        rest.remove(0);
    }
    files.contains_key(&at).then_some((at, rest))
}

/// Returns the cycles of files, each as the names of its files.
fn cycles(files: &BTreeMap<Module, NamedPaths>) -> Vec<Vec<String>> {
    let names: Vec<String> = files.keys().map(|module| module.join("/")).collect();
    let mut graph = DiGraph::<(), ()>::new();
    let number: BTreeMap<&Module, NodeIndex> =
        files.keys().map(|module| (module, graph.add_node(()))).collect();
    for (module, named) in files {
        for path in &named.paths {
            let Some((mut at, mut rest)) = resolve(files, module, path) else { continue };
            // A module that re-exports a name is not the file that defines it.
            for _ in 0..8 {
                let Some(name) = rest.first() else { break };
                let exported = files[&at].exports.iter().find(|(exported, _)| exported == name);
                let Some((_, path)) = exported else { break };
                let Some(target) = resolve(files, &at, path) else { break };
                (at, rest) = target;
            }
            if at != *module {
                graph.update_edge(number[module], number[&at], ());
            }
        }
    }
    let found = tarjan_scc(&graph).into_iter().filter(|cycle| cycle.len() > 1);
    let mut found: Vec<Vec<String>> = found
        .map(|cycle| {
            let mut cycle: Vec<String> = cycle.iter().map(|at| names[at.index()].clone()).collect();
            cycle.sort();
            cycle
        })
        .collect();
    found.sort();
    found
}

/// Gives the module and the text of each source file below a folder, tests aside.
pub(super) fn sources(folder: &Path, each: &mut dyn FnMut(Module, &str)) {
    let mut folders = vec![(folder.to_path_buf(), Module::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name == "tests" || name.ends_with("_tests") || name == "test" {
                continue;
            }
            let child = [module.as_slice(), std::slice::from_ref(&name)].concat();
            if path.is_dir() {
                folders.push((path, child));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let is_folder = matches!(name.as_str(), "mod" | "lib" | "main");
                let text = fs::read_to_string(&path).expect("a text");
                each(if is_folder { module.clone() } else { child }, &text);
            }
        }
    }
}

/// Returns the folders of the packages, from the root of the workspace.
pub(super) fn packages(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_left_out = name.starts_with('.') || matches!(name.as_str(), "target" | "src");
            if path.is_dir() && !is_left_out {
                folders.push(path);
            } else if name == "Cargo.toml" && folder.join("src").is_dir() {
                found.push(folder.clone());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_files_import_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (mut faults, mut count, mut left) = (Vec::new(), 0, 0);
    for package in packages(root) {
        let shown = package.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        let mut files = BTreeMap::new();
        sources(&package.join("src"), &mut |module, text| {
            files.insert(module, NamedPaths::of_file(text));
        });
        count += files.len();
        for cycle in cycles(&files) {
            let is_known = LEFT.iter().any(|(known, files)| *known == shown && cycle == *files);
            left += usize::from(is_known);
            if !is_known {
                faults.push(format!("{shown}: {}", cycle.join(", ")));
            }
        }
    }
    assert!(count > 700, "only {count} files were found");
    assert_eq!(left, LEFT.len(), "a cycle in the list is gone: take it out");
    assert!(faults.is_empty(), "these files import each other:\n{}", faults.join("\n"));
}

#[test]
fn a_cycle_is_found_through_super_macros_and_exports() {
    let of = |texts: &[(&str, &str)]| {
        let module = |name: &str| -> Module { name.split('/').map(str::to_owned).collect() };
        let mut files: BTreeMap<Module, NamedPaths> =
            texts.iter().map(|(name, text)| (module(name), NamedPaths::of_file(text))).collect();
        files.insert(Vec::new(), NamedPaths::of_file("mod a; mod b;"));
        cycles(&files)
    };
    let pair = || vec![vec!["a/x".to_owned(), "a/y".to_owned()]];
    let outer = "mod x; mod y; pub use x::X; pub use y::Y;";
    let (x, y) = ("use super::Y; pub struct X;", "use crate::a::x::X; pub struct Y;");
    assert_eq!(of(&[("a", outer), ("a/x", x), ("a/y", y)]), pair());
    let by_macro = "macro_rules! m { () => { crate::a::x::X } } pub struct Y;";
    assert_eq!(of(&[("a", outer), ("a/x", x), ("a/y", by_macro)]), pair());
    let by_path = "pub struct Y; fn f() { let _ = super::x::X; }";
    assert_eq!(of(&[("a", outer), ("a/x", x), ("a/y", by_path)]), pair());
    let in_tests = "pub struct Y; #[cfg(test)] mod tests { use crate::a::x::X; }";
    assert!(of(&[("a", outer), ("a/x", x), ("a/y", in_tests)]).is_empty());
    assert!(of(&[("a", outer), ("a/x", x), ("a/y", "pub struct Y;")]).is_empty());
}
