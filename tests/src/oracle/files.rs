//! Looks up names: in a file, in the files that it imports, then in the algorithm library.

use std::cell::Cell;
use std::collections::BTreeMap;

use roundelay_algorithms::CATALOGUE;
use roundelay_dsl::ast::{Algorithm, Collective, File, FnDef, Item};
use roundelay_dsl::span::SourceMap;

use super::{Stop, wrong};

/// The parsed files of the library.
#[derive(Debug, Default)]
pub struct Shelves {
    files: BTreeMap<(String, String), File>,
}

impl Shelves {
    /// Reads all files of the algorithm library.
    pub fn new() -> Shelves {
        let mut files = BTreeMap::new();
        for e in CATALOGUE {
            if let Some(file) = tree(e.text) {
                files.insert((e.collective.to_string(), e.name.to_string()), file);
            }
        }
        Shelves { files }
    }
}

fn tree(text: &str) -> Option<File> {
    let mut sources = SourceMap::new();
    let id = sources.add("oracle.algo", text);
    roundelay_dsl::parse(&sources, id).ok()
}

/// A parsed text, and those that it may import.
#[derive(Debug)]
pub struct Text {
    pub(super) file: File,
    imports: BTreeMap<String, File>,
}

impl Text {
    /// Parses a text, and others by the paths that imports name them by; `None` if one is no program.
    pub fn parsed(text: &str, files: &[(String, String)]) -> Option<Text> {
        let imports: Option<BTreeMap<_, _>> =
            files.iter().map(|(path, text)| Some((path.clone(), tree(text)?))).collect();
        Some(Text { file: tree(text)?, imports: imports? })
    }
}

/// All that one evaluation may look up, and what it may still do before it is too much.
pub(super) struct World<'a> {
    pub(super) shelves: &'a Shelves,
    pub(super) text: &'a Text,
    /// Paths between hosts.
    pub(super) paths: usize,
    pub(super) left: Cell<u64>,
}

/// A declaration, and the file in which its names are looked up.
type Found<'a, T> = Option<(&'a File, &'a T)>;

impl<'a> World<'a> {
    pub(super) fn spend(&self, what: u64) -> Result<(), Stop> {
        let left = self.left.get().checked_sub(what);
        self.left.set(left.ok_or(Stop::Unsupported("very long programs"))?);
        Ok(())
    }

    fn look<T>(
        &self,
        file: &'a File,
        depth: u32,
        of: &dyn Fn(&'a Item) -> Option<&'a T>,
    ) -> Result<Found<'a, T>, Stop> {
        if let Some(found) = file.items.iter().find_map(of) {
            return Ok(Some((file, found)));
        }
        for item in &file.items {
            let Item::Import(import) = item else { continue };
            let other = self.text.imports.get(&import.path);
            let other = other.ok_or_else(|| wrong("RL0210 no such file"))?;
            if depth > 16 {
                return Err(wrong("RL0210 a file imports itself"));
            }
            if let Some(found) = self.look(other, depth + 1, of)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the algorithm of that name, as a file sees it.
    pub(super) fn algorithm(
        &self,
        file: &'a File,
        collective: &str,
        name: &str,
    ) -> Result<(&'a File, &'a Algorithm), Stop> {
        let of = |item: &'a Item| match item {
            Item::Algorithm(a) if a.name.text == name && a.collective.text == collective => Some(a),
            _ => None,
        };
        if let Some(found) = self.look(file, 0, &of)? {
            return Ok(found);
        }
        let file = self.shelves.files.get(&(collective.to_string(), name.to_string()));
        let found = file.and_then(|file| Some((file, file.items.iter().find_map(of)?)));
        found.ok_or(Stop::Unsupported("algorithms that it does not find"))
    }

    /// Returns the declared collective of that name, as a file sees it.
    pub(super) fn collective(
        &self,
        file: &'a File,
        name: &str,
    ) -> Result<(&'a File, &'a Collective), Stop> {
        let found = self.look(file, 0, &|item| match item {
            Item::Collective(c) if c.name.text == name => Some(c),
            _ => None,
        })?;
        found.ok_or(Stop::Unsupported("collectives that it does not find"))
    }

    /// Returns the function of that name, as a file sees it.
    pub(super) fn function(&self, file: &'a File, name: &str) -> Result<Found<'a, FnDef>, Stop> {
        self.look(file, 0, &|item| match item {
            Item::Fn(f) if f.name.text == name => Some(f),
            _ => None,
        })
    }
}
