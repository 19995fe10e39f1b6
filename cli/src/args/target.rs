//! The algorithm that a verb works on.

use clap::Args;
use roundelay_compiler::program::ArgumentedName;

use super::parameters::ParameterArgs;

/// The algorithm that a verb works on.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// `collective.name` of the algorithm library, a collective, or a file: what has a `/`, or ends in `.algo`, is
    /// always a file. Arguments may follow, as in `broadcast.k_nomial(k=4)`
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
    #[command(flatten)]
    pub(crate) params: ParameterArgs,
}

impl TargetArgs {
    /// Makes the target of an algorithm by name, on one path.
    pub(crate) fn of(target: String, algorithm: Option<String>, root: u32) -> Self {
        TargetArgs { target, algorithm, root, paths: 1, params: ParameterArgs::default() }
    }

    /// Returns a target for each combination of values of the parameters, which are arguments of its name then.
    pub(crate) fn instances(&self) -> Result<Vec<TargetArgs>, String> {
        if self.params.is_empty() {
            return Ok(vec![self.clone()]);
        }
        let own = self.algorithm.as_deref().unwrap_or(&self.target);
        let own = argumented(own)?;
        let instance = |name: ArgumentedName| {
            let (mut target, mut algorithm) = (self.target.clone(), self.algorithm.clone());
            match &mut algorithm {
                Some(algorithm) => *algorithm = name.to_string(),
                None => target = name.to_string(),
            }
            let params = ParameterArgs::default();
            TargetArgs { target, algorithm, params, ..self.clone() }
        };
        let names = self.params.names(&own)?;
        Ok(names.into_iter().map(instance).collect())
    }

    /// Returns the options under which the algorithm is compiled: its root and the number of paths.
    pub(crate) fn options(&self) -> roundelay_compiler::CompileOptions {
        let (root, paths) = (self.root, self.paths);
        roundelay_compiler::CompileOptions { root, paths, ..Default::default() }
    }
}

/// Returns a name with its arguments; a name that is one of a file has none.
pub(crate) fn argumented(name: &str) -> Result<ArgumentedName, String> {
    if !name.ends_with(')') || std::path::Path::new(name).exists() {
        return Ok(ArgumentedName { name: name.into(), arguments: Vec::new() });
    }
    name.parse()
}
