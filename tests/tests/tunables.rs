//! A tunable is declared in the `tunables.rs` of its package and used elsewhere, no other file declares a duration, and
//! `docs/tunables.md` is the table of all packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use expect_test::expect_file;
use proc_macro2::{TokenStream, TokenTree};
use roundelay::internal::tunables::TunableValue;
use syn::visit::Visit;
use syn::{BinOp, Expr, Item, Lit, Visibility};

use super::imports::{is_of_tests, packages, sources};

/// The text above the tables of the page.
const INTRODUCTION: &str = "\
# Tunables

Durations, limits and thresholds, by package. They change how fast something goes, when it is given up
or how much of it there may be, and never whether a result is right. They are constants: to try another value, change it
in the file `src/tunables.rs` of the package and build. What a program can set without a build is a [hint](hints.md) or an option of a call.

`roundelay info --tunables` prints those that the program is made of; `--json` prints an object for each. The page is
made of the sources: `UPDATE_EXPECT=1 cargo test -p roundelay-tests --test cross_tests tunables::`.
";

/// A tunable as its source has it.
struct DeclaredTunable {
    name: String,
    is_public: bool,
    value: TunableValue,
    meaning: String,
}

/// Returns the tunables that a file declares.
fn declared(file: &syn::File) -> Vec<DeclaredTunable> {
    let is_table = |path: &syn::Path| path.segments.last().is_some_and(|s| s.ident == "tunables");
    let tables = file.items.iter().filter_map(|item| match item {
        Item::Macro(item) if is_table(&item.mac.path) => Some(&item.mac),
        _ => None,
    });
    let constants = tables.flat_map(|table| table.parse_body::<syn::File>().expect("items").items);
    let one = |item: Item| {
        let Item::Const(item) = item else { panic!("a constant") };
        let name = item.ident.to_string();
        let value = match value(&item.expr) {
            Some(Number::Plain(value)) => TunableValue::number(&name, value),
            Some(Number::Time(time)) => TunableValue::Duration(time),
            None => panic!("{name}: write a number or `Duration::from_…`, so that it can be read"),
        };
        let is_public = matches!(item.vis, Visibility::Public(_));
        DeclaredTunable { name, is_public, value, meaning: meaning(&item.attrs) }
    };
    constants.map(one).collect()
}

/// Returns the text of doc comments, as one line.
fn meaning(attributes: &[syn::Attribute]) -> String {
    let text = |attribute: &syn::Attribute| match &attribute.meta.require_name_value().ok()?.value {
        Expr::Lit(text) => match &text.lit {
            Lit::Str(text) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

/// The value of an expression.
enum Number {
    Plain(u64),
    Time(Duration),
}

fn value(expr: &Expr) -> Option<Number> {
    let plain = |expr: &Expr| match value(expr)? {
        Number::Plain(value) => Some(value),
        Number::Time(_) => None,
    };
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(value) => value.base10_parse().ok().map(Number::Plain),
            _ => None,
        },
        Expr::Binary(both) => {
            let (a, b) = (plain(&both.left)?, plain(&both.right)?);
            match both.op {
                BinOp::Shl(_) => Some(Number::Plain(a << b)),
                BinOp::Mul(_) => Some(Number::Plain(a * b)),
                _ => None,
            }
        }
        Expr::Call(call) => {
            let Expr::Path(made) = &*call.func else { return None };
            let number = plain(call.args.first()?)?;
            let time = match made.path.segments.last()?.ident.to_string().as_str() {
                "from_secs" => Duration::from_secs(number),
                "from_millis" => Duration::from_millis(number),
                "from_micros" => Duration::from_micros(number),
                "from_nanos" => Duration::from_nanos(number),
                _ => return None,
            };
            Some(Number::Time(time))
        }
        _ => None,
    }
}

/// The constants with durations that a file declares outside of tests.
#[derive(Default)]
struct DurationConstants(Vec<String>);

impl DurationConstants {
    fn of(text: &str) -> Vec<String> {
        let mut found = DurationConstants::default();
        found.visit_file(&syn::parse_file(text).expect("a file of Rust"));
        found.0
    }

    fn add(&mut self, attributes: &[syn::Attribute], name: &syn::Ident, of: &syn::Type) {
        let mut names = TypeSegments::default();
        names.visit_type(of);
        if names.has_duration && !is_of_tests(attributes) {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for DurationConstants {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.add(&item.attrs, &item.ident, &item.ty);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.add(&item.attrs, &item.ident, &item.ty);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.add(&item.attrs, &item.ident, &item.ty);
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        self.add(&item.attrs, &item.ident, &item.ty);
    }
}

/// Finds out if a type has a duration in it.
#[derive(Default)]
struct TypeSegments {
    has_duration: bool,
}

impl<'ast> Visit<'ast> for TypeSegments {
    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        self.has_duration |= segment.ident == "Duration";
        syn::visit::visit_path_segment(self, segment);
    }
}

/// Adds the identifiers among the tokens, those of macros included.
fn add_identifiers(tokens: TokenStream, into: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => _ = into.insert(name.to_string()),
            TokenTree::Group(group) => add_identifiers(group.stream(), into),
            _ => {}
        }
    }
}

fn identifiers(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add_identifiers(text.parse().expect("tokens"), &mut found);
    found
}

/// The tunables of a package, and the identifiers and durations in its other files.
#[derive(Default)]
struct PackageTunables {
    declared: Vec<DeclaredTunable>,
    identifiers: BTreeSet<String>,
    durations: Vec<String>,
}

/// Returns what each package of the product has, by its name.
fn product() -> BTreeMap<String, PackageTunables> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut all = BTreeMap::new();
    for folder in packages(root) {
        let shown = folder.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        if ["tests", "examples", "fuzz"].contains(&shown.as_str()) {
            continue;
        }
        let mut package = PackageTunables::default();
        sources(&folder.join("src"), &mut |module, text| match module == ["tunables"] {
            true => package.declared = declared(&syn::parse_file(text).expect("a file of Rust")),
            false => {
                add_identifiers(text.parse().expect("tokens"), &mut package.identifiers);
                let at = |name| format!("{shown}/src/{}: {name}", module.join("/"));
                package.durations.extend(DurationConstants::of(text).into_iter().map(at));
            }
        });
        all.insert(shown, package);
    }
    all
}

/// Returns the tunables that nothing uses: a public one may be used by any package, another one only by its own.
fn unused(product: &BTreeMap<String, PackageTunables>) -> Vec<String> {
    let is_used = |own: &PackageTunables, tunable: &DeclaredTunable| {
        own.identifiers.contains(&tunable.name)
            || tunable.is_public && product.values().any(|p| p.identifiers.contains(&tunable.name))
    };
    let of = |(shown, own): (&String, &PackageTunables)| {
        let unused = own.declared.iter().filter(|tunable| !is_used(own, tunable));
        unused.map(|tunable| format!("{shown}: {}", tunable.name)).collect::<Vec<_>>()
    };
    product.iter().flat_map(of).collect()
}

#[test]
fn the_page_is_the_table() {
    let mut page = INTRODUCTION.to_owned();
    let product = product();
    for (folder, package) in product.iter().filter(|(_, package)| !package.declared.is_empty()) {
        let name = match folder.strip_prefix("runtime/").unwrap_or(folder) {
            "runtime" => "roundelay".to_owned(),
            part => format!("roundelay-{part}"),
        };
        let head = "| name | default | meaning |\n|---|---|---|";
        let _ = writeln!(page, "\n## {name}\n\n{head}");
        for DeclaredTunable { name, value, meaning, .. } in &package.declared {
            assert!(meaning.ends_with('.'), "{name}: a meaning is a sentence: {meaning}");
            let _ = writeln!(page, "| `{name}` | {value} | {meaning} |");
        }
    }
    expect_file!["../../docs/tunables.md"].assert_eq(&page);
}

#[test]
fn durations_are_declared_among_the_tunables() {
    let product = product();
    let found: Vec<&String> = product.values().flat_map(|package| &package.durations).collect();
    assert!(found.is_empty(), "declare these in the `tunables.rs` of the package: {found:#?}");
    assert!(product.values().map(|package| package.declared.len()).sum::<usize>() > 200);
}

#[test]
fn every_tunable_is_used() {
    let unused = unused(&product());
    assert!(unused.is_empty(), "remove these tunables, which nothing uses: {unused:#?}");
}

#[test]
fn a_duration_elsewhere_and_an_unused_tunable_are_found() {
    let text = "const LOOK: Duration = REST; static NAP: std::time::Duration = LOOK;
        const PAUSES: [Duration; 2] = [LOOK; 2]; const MOST: (usize, Duration) = (1, LOOK); const N: u8 = 1;
        impl A { const GRACE: Option<Duration> = None; fn f() { const BRISK: Duration = LOOK; } }
        #[cfg(test)] mod tests { const PATIENCE: Duration = LOOK; }
        tunables! { const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5); }";
    assert_eq!(DurationConstants::of(text), ["LOOK", "NAP", "PAUSES", "MOST", "GRACE", "BRISK"]);

    let table = "a::tunables! {
        /// The longest
        /// sleep.
        pub const SLEEP_MAX: Duration = Duration::from_micros(5 * 8);
        /// A turn.
        pub(crate) const TURN_BYTES: usize = 3 << 10;
        /// Polls.
        const POLLS: u32 = 4_000; }";
    let table = || declared(&syn::parse_file(table).expect("a file"));
    let shown = table().into_iter().map(|t| format!("{} {} {}", t.name, t.value, t.meaning));
    let rows =
        ["SLEEP_MAX 40 us The longest sleep.", "TURN_BYTES 3 KiB A turn.", "POLLS 4000 Polls."];
    assert_eq!(shown.collect::<Vec<_>>(), rows);

    let package = |declared, text| {
        let identifiers = identifiers(text);
        PackageTunables { declared, identifiers, durations: Vec::new() }
    };
    let mut product = BTreeMap::new();
    product.insert("a".to_owned(), package(table(), "/// POLLS\nfn f() { g!(TURN_BYTES) }"));
    product.insert("b".to_owned(), package(Vec::new(), "fn f() -> Duration { SLEEP_MAX + POLLS }"));
    assert_eq!(unused(&product), ["a: POLLS"]);
    product.remove("b");
    assert_eq!(unused(&product), ["a: SLEEP_MAX", "a: POLLS"]);
}
