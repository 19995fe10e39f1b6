//! The catalogue: a line for each file of the library.

use roundelay_compiler::LibrarySource;

/// One algorithm of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The collective that it implements.
    pub collective: &'static str,
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// Its file, relative to the algorithm library.
    pub path: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

macro_rules! catalogue {
    ($($collective:ident: $($name:ident)*;)*) => {
        /// All algorithms, by collective.
        pub const CATALOGUE: &[CatalogueEntry] = &[$($(library::$collective::$name),*),*];

        /// The entries by name, as Rust prototypes run them: `run(reduce_scatter::ring)`.
        #[allow(non_upper_case_globals, reason = "they are named as their files are")]
        pub mod library {
            use super::CatalogueEntry;
            $(
                #[doc = concat!("Algorithms of `", stringify!($collective), "`.")]
                pub mod $collective {
                    use super::CatalogueEntry;
                    $(
                        #[doc = concat!(
                            "```text\n",
                            include_str!(concat!(
                                "../", stringify!($collective), "/", stringify!($name), ".algo"
                            )),
                            "\n```"
                        )]
                        pub const $name: CatalogueEntry = CatalogueEntry {
                            collective: stringify!($collective),
                            name: stringify!($name),
                            path: concat!(stringify!($collective), "/", stringify!($name), ".algo"),
                            text: include_str!(concat!(
                                "../", stringify!($collective), "/", stringify!($name), ".algo"
                            )),
                        };
                    )*
                }
            )*
        }
    };
}

catalogue! {
    all_gather:
        aggregated_pat bine bruck circulant direct k_bruck locality_bruck multipath neighbor_exchange pat
        recursive_doubling ring sparbit swing trivance;
    all_reduce:
        bidirectional_ring circulant compressed double_binary_tree folded_halving_doubling
        halving_doubling han multipath multipath_two_level one_shot recursive_doubling
        recursive_multiplying ring swing tolerant torus_swing trivance two_level two_shot;
    all_to_all: bruck direct k_bruck multipath pairwise two_level;
    barrier: dissemination k_dissemination;
    broadcast: bine binomial chain double_binary_tree han k_ary k_nomial multipath scatter_all_gather;
    exscan: binomial linear recursive_doubling;
    gather: binomial linear;
    reduce: binomial chain k_ary linear two_shot;
    reduce_scatter: bine circulant direct pairwise pat recursive_halving ring swing trivance;
    scan: binomial linear recursive_doubling;
    scatter: binomial linear;
    sendrecv: direct;
}

/// The algorithm of this name without arguments.
pub(crate) fn plain(collective: &str, name: &str) -> Option<&'static CatalogueEntry> {
    of(collective).find(|e| e.name == name)
}

/// All algorithms for a collective, by name.
pub fn of(collective: &str) -> impl Iterator<Item = &'static CatalogueEntry> {
    CATALOGUE.iter().filter(move |e| e.collective == collective)
}

/// The algorithm library as the compiler's library. It holds algorithms only: files that texts import are read
/// by [`import`](crate::import).
#[derive(Debug, Clone, Copy, Default)]
pub struct AlgorithmLibrary;

impl LibrarySource for AlgorithmLibrary {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        plain(collective, name).map(|e| (format!("library:{}", e.path), e.text.to_string()))
    }

    fn file(&self, _from: &str, _path: &str) -> Result<(String, String), String> {
        Err("the algorithm library has no files".into())
    }
}
