//! Plans as bytes: what was cut or altered is refused, and never read as another plan.

use std::sync::LazyLock;

use proptest::prelude::*;
use roundelay_algorithms::find;
use roundelay_compiler::{Options, Placement, Plan, Shape, compile};
use roundelay_tests::of_book;
use sha2::{Digest, Sha256};

/// Magic, version and digest stand before the body.
const HEAD: usize = 8 + 4 + 32;

/// Encoded plans of several algorithms.
static PLANS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for (collective, name, shape) in [
        ("all_reduce", "ring", "3"),
        ("all_reduce", "double_binary_tree", "5"),
        ("all_reduce", "two_level", "2x3"),
        ("all_to_all", "bruck", "6"),
        ("barrier", "dissemination", "4"),
    ] {
        let entry = find(collective, name).expect("the book has it");
        let (sources, program) = of_book(entry).expect("the book resolves");
        let shape: Shape = shape.parse().expect("a shape");
        let proved =
            compile(&program, &sources, &shape, &Options::default(), Placement::OutOfPlace);
        all.extend(proved.expect("the book is proved").plans().iter().map(Plan::encode));
    }
    all
});

#[test]
fn decoding_gives_the_plan_back() {
    for bytes in PLANS.iter() {
        let plan = Plan::decode(bytes).expect("what was encoded");
        assert_eq!(&plan.encode(), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_plan_is_refused(which in any::<prop::sample::Index>(), keep in any::<prop::sample::Index>()) {
        let bytes = which.get(&PLANS);
        prop_assert!(Plan::decode(&bytes[..keep.index(bytes.len())]).is_err());
    }

    #[test]
    fn a_flipped_bit_is_refused(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = which.get(&PLANS).clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Plan::decode(&bytes).is_err());
    }

    #[test]
    fn more_bytes_are_refused(which in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut bytes = which.get(&PLANS).clone();
        bytes.extend(more);
        prop_assert!(Plan::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Plan::decode(&bytes).is_err());
    }

    /// A body altered with a digest that fits: decoding checks the plan, and what passes is at least
    /// consistent in itself.
    #[test]
    fn an_altered_body_is_consistent_or_refused(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = which.get(&PLANS).clone();
        let at = HEAD + at.index(bytes.len() - HEAD);
        bytes[at] = value;
        let digest = Sha256::digest(&bytes[HEAD..]);
        bytes[HEAD - digest.len()..HEAD].copy_from_slice(&digest);
        if let Ok(plan) = Plan::decode(&bytes) {
            prop_assert_eq!(plan.check(), Ok(()));
        }
    }
}
