//! The algorithm that a verb works on.

use clap::Args;

/// The algorithm that a verb works on.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// `collective.name` of the algorithm library, a collective, or a file: what has a `/`, or ends in `.algo`, is
    /// always a file
    #[arg(value_name = "FILE|NAME")]
    pub(crate) target: String,
    /// The algorithm to take from a file that declares several
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// The root of a rooted collective
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// Paths between the hosts, for `split … in paths`
    #[arg(long, value_name = "PATHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) paths: u32,
}

impl TargetArgs {
    /// Makes the target of an algorithm by name, on one path.
    pub(crate) fn of(target: String, algorithm: Option<String>, root: u32) -> Self {
        TargetArgs { target, algorithm, root, paths: 1 }
    }

    /// Returns the options under which the algorithm is compiled: its root and the number of paths.
    pub(crate) fn options(&self) -> roundelay_compiler::CompileOptions {
        let (root, paths) = (self.root, self.paths);
        roundelay_compiler::CompileOptions { root, paths, ..Default::default() }
    }
}
