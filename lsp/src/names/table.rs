//! The names of a text: what is defined, and what each use means.

use roundelay_dsl::span::Span;

/// The kind of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    Constant,
    Function,
    Collective,
    Algorithm,
    /// A parameter of an algorithm or of a function.
    Parameter,
    Axis,
    /// `let`, `for`, `split` and what a contract binds.
    Variable,
    /// The variable of an `each`.
    Rank,
    /// A scratch buffer.
    Buffer,
}

impl NameKind {
    /// Returns the words for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            NameKind::Constant => "constant",
            NameKind::Function => "function",
            NameKind::Collective => "collective",
            NameKind::Algorithm => "algorithm",
            NameKind::Parameter => "parameter",
            NameKind::Axis => "axis",
            NameKind::Variable => "variable",
            NameKind::Rank => "rank",
            NameKind::Buffer => "scratch buffer",
        }
    }
}

/// A definition.
#[derive(Debug, Clone)]
pub(crate) struct NameDefinition {
    pub(crate) name: String,
    pub(crate) kind: NameKind,
    /// The name itself.
    pub(crate) span: Span,
    /// The declaration or the block in which the name is known.
    pub(crate) scope: Span,
    /// The comment lines before it.
    pub(crate) docs: Vec<String>,
}

/// The meaning of a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameMeaning {
    /// A definition of this text, by its index.
    Defined(usize),
    /// A function: a built-in one, or one of an imported file.
    Function,
    /// `root`, `paths` and other words that the language gives a value.
    Word,
    /// `data`, `input` or `output`.
    Buffer,
    /// A collective: a built-in one, or one of an imported file.
    Collective,
    /// An algorithm of the library or of an imported file, for that collective.
    Algorithm(String),
    /// A parameter of the algorithm that is used, or a word of the schedule.
    Argument,
}

/// A use of a name.
#[derive(Debug, Clone)]
pub(crate) struct NameUse {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) meaning: NameMeaning,
}

/// The names of one text.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable {
    pub(crate) definitions: Vec<NameDefinition>,
    pub(crate) uses: Vec<NameUse>,
    /// The paths that it imports, and where they are written.
    pub(crate) imports: Vec<(String, Span)>,
}

/// The name at a place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NameAt<'t> {
    Definition(usize, &'t NameDefinition),
    Use(&'t NameUse),
    /// A path that is imported.
    Import(&'t str),
}

impl NameTable {
    /// Returns the name at a byte of the text.
    pub(crate) fn at(&self, byte: usize) -> Option<NameAt<'_>> {
        let holds = |span: Span| (span.start as usize..=span.end as usize).contains(&byte);
        if let Some(found) = self.uses.iter().find(|u| holds(u.span)) {
            return Some(NameAt::Use(found));
        }
        let import = self.imports.iter().find(|(_, span)| holds(*span));
        if let Some((path, _)) = import {
            return Some(NameAt::Import(path));
        }
        let defined = self.definitions.iter().enumerate().find(|(_, d)| holds(d.span));
        defined.map(|(i, d)| NameAt::Definition(i, d))
    }

    /// Returns the places of a definition and of its uses, in the order of the text.
    pub(crate) fn places(&self, definition: usize) -> Vec<Span> {
        let own = self.definitions.get(definition).map(|d| d.span);
        let meant = |u: &&NameUse| u.meaning == NameMeaning::Defined(definition);
        let mut all: Vec<Span> =
            own.into_iter().chain(self.uses.iter().filter(meant).map(|u| u.span)).collect();
        all.sort();
        all
    }

    /// Returns the definitions that are known at a byte, the innermost last.
    pub(crate) fn known(&self, byte: usize) -> impl Iterator<Item = &NameDefinition> {
        let holds = move |span: Span| (span.start as usize..=span.end as usize).contains(&byte);
        self.definitions.iter().filter(move |d| holds(d.scope))
    }
}
