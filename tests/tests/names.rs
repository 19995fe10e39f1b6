//! A type can be searched for: its name is unique in its package, and has two words at least.
//!
//! `names.txt` lists the types for which that is not so yet, by package; it only shrinks. The bare words of the
//! glossary are among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;

use super::imports::{is_of_tests, packages, sources};

/// Second words that say nothing.
const EMPTY_WORDS: [&str; 9] =
    ["Data", "Info", "Item", "Helper", "Manager", "Util", "Thing", "Impl", "Base"];

/// The names of the types that a package defines, and how often.
#[derive(Default)]
struct TypeNames(BTreeMap<String, usize>);

impl TypeNames {
    fn add(&mut self, attributes: &[syn::Attribute], name: &syn::Ident) {
        if !is_of_tests(attributes) {
            *self.0.entry(name.to_string()).or_default() += 1;
        }
    }

    /// Returns what is wrong with the names: `Kind`, or `PlanKey twice`.
    fn faults(&self) -> BTreeSet<String> {
        let fault = |(name, &count): (&String, &usize)| match (words(name), count) {
            (0..=1, _) => Some(name.clone()),
            (_, 2..) => Some(format!("{name} twice")),
            _ => None,
        };
        self.0.iter().filter_map(fault).collect()
    }
}

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.attrs, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.attrs, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.attrs, &item.ident);
    }
}

/// Returns the number of words of a name in capitals: two of `PlanKey`, one of `Plan`. Names of C are not counted.
fn words(name: &str) -> usize {
    match name.starts_with(char::is_lowercase) {
        true => 2,
        false => name.chars().filter(|c| c.is_uppercase()).count(),
    }
}

#[test]
fn types_have_names_that_can_be_searched_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (mut found, mut empty) = (String::new(), Vec::new());
    for package in packages(root) {
        let mut names = TypeNames::default();
        sources(&package.join("src"), &mut |_, text| {
            names.visit_file(&syn::parse_file(text).expect("a file of Rust"));
        });
        let shown = package.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        let said =
            |word: &str| names.0.keys().find(|name| words(name) == 2 && name.ends_with(word));
        empty.extend(EMPTY_WORDS.iter().filter_map(|word| said(word)).cloned());
        for fault in names.faults() {
            found.push_str(&format!("{shown}: {fault}\n"));
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/names.txt");
    let known = fs::read_to_string(&file).expect("the list");
    let (found, known): (BTreeSet<&str>, BTreeSet<&str>) =
        (found.lines().collect(), known.lines().collect());
    let new: Vec<&&str> = found.difference(&known).collect();
    let gone: Vec<&&str> = known.difference(&found).collect();
    assert!(new.is_empty(), "names of one word, or of two types in one package: {new:#?}");
    assert!(gone.is_empty(), "take these out of {}: {gone:#?}", file.display());
    assert!(empty.is_empty(), "second words that say nothing: {empty:?}");
}

#[test]
fn a_bare_word_and_a_name_of_two_types_are_found() {
    let mut names = TypeNames::default();
    let text = "struct Kind; struct PlanKey; mod a { struct PlanKey; } enum PathOptions {}
                #[cfg(test)] mod tests { struct State; }";
    names.visit_file(&syn::parse_file(text).expect("a file"));
    assert_eq!(names.faults().into_iter().collect::<Vec<_>>(), ["Kind", "PlanKey twice"]);
    assert_eq!((words("rl_comm"), words("RedOp"), words("Plan")), (2, 2, 1));
}
