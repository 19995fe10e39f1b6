//! The identity of this build: version, commit, features, target.

use std::sync::LazyLock;

/// The commit of the source; none where the build was not told, as that of a source archive.
pub(crate) const COMMIT: Option<&str> = option_env!("ROUNDELAY_COMMIT");

/// The features of the build that the command line has.
pub(crate) const FEATURES: &[(&str, bool)] =
    &[("rdma", cfg!(feature = "rdma")), ("experimental", cfg!(feature = "experimental"))];

static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = COMMIT.unwrap_or("unknown: ROUNDELAY_COMMIT was not set when it was built");
    format!(
        "{}\ncommit    {commit}\nfeatures  {}\ntarget    {}",
        env!("CARGO_PKG_VERSION"),
        features(),
        target()
    )
});

/// Returns what `--version` prints behind the name.
pub(crate) fn long_version() -> &'static str {
    &LONG_VERSION
}

/// Returns the names of the features that this build has.
pub(crate) fn features() -> String {
    let names: Vec<&str> =
        FEATURES.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    if names.is_empty() { "none beside the default ones".to_owned() } else { names.join(" ") }
}

/// Returns the target of the build.
pub(crate) fn target() -> String {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-{}-{libc}", std::env::consts::ARCH, std::env::consts::OS)
}
