//! Tests plans as bytes: what was cut or altered is refused, and never read as another plan.

use std::sync::LazyLock;

use proptest::prelude::*;
use roundelay_algorithms::find;
use roundelay_compiler::plan::{OpRef, OperationInput, PlanBuffer};
use roundelay_compiler::{BufferPlacement, CompileOptions, Plan, Shape, UnprovedPlan, compile};
use roundelay_tests::fuzz::{self, HEAD};
use roundelay_tests::{SeededRandom, of_library};

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
        let entry = find(collective, name).expect("the library has it");
        let (sources, program) = of_library(entry).expect("the library resolves");
        let shape: Shape = shape.parse().expect("a shape");
        let proved = compile(
            &program,
            &sources,
            &shape,
            &CompileOptions::default(),
            BufferPlacement::OutOfPlace,
        );
        all.extend(proved.expect("the library is proved").plans().iter().map(|plan| plan.encode()));
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
        let bytes = fuzz::sealed(&bytes, &bytes[HEAD..]);
        prop_assert!(fuzz::plan(&bytes).is_ok());
    }
}

/// Plans with bytes or fields changed, and digests that fit: whatever is decoded can be used. `ROUNDS=25` tries this
/// many times as many, `SEED=7` others.
#[test]
fn altered_plans_are_refused_or_usable() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let mut plans = PLANS.clone();
    let entry = find("all_reduce", "multipath").expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let options = CompileOptions { paths: 3, ..CompileOptions::default() };
    let proved = compile(&program, &sources, &Shape::flat(3), &options, BufferPlacement::InPlace);
    plans.extend(proved.expect("it is proved").plans().iter().map(|plan| plan.encode()));
    let mut usable = 0;
    for i in 0..200_000 * number("ROUNDS", 1) {
        let mut dice = SeededRandom(number("SEED", 1) << 32 ^ i);
        let which = dice.below(plans.len());
        let bytes = fuzz::altered(&plans[which], &mut dice);
        let done = std::panic::catch_unwind(|| fuzz::plan(&bytes));
        let Ok(Ok(is)) = done else { panic!("trial {i}: {done:?}") };
        usable += u64::from(is);
    }
    assert!(usable > 1000, "{usable}");
}

/// Sets without a modulus in what a peer offers, which used to panic, are checked.
#[test]
fn offers_are_checked() {
    let plans = PLANS.iter().map(|bytes| Plan::decode(bytes).expect("what was encoded"));
    let mut tried = 0;
    for plan in plans {
        for change in 0..4 {
            let mut changed = plan.clone().into_unproved();
            let pulled = changed.part.lanes.iter_mut().flat_map(|l| &mut l.ops).find_map(|op| {
                op.inputs.iter_mut().find_map(|input| match input {
                    OperationInput::Message { pull, .. } => pull.as_mut(),
                    OperationInput::Local(_) => None,
                })
            });
            let Some(region) = pulled else { continue };
            let set = &mut region.pieces[0].set;
            match change {
                0 => set.modulus = 0,
                1 => set.start = set.modulus,
                2 => (set.modulus, set.start) = (u32::MAX, u32::MAX - 1),
                _ => region.pieces[0].buf = PlanBuffer::Scratch(99),
            }
            tried += 1;
            assert!(Plan::decode(&changed.encode()).is_err(), "{change}");
        }
    }
    assert!(tried > 10, "{tried}");
}

/// Parts of a split by bandwidth have nothing to do with each other: a plan in which they have is refused.
#[test]
fn parts_that_meet_are_refused() {
    let entry = find("all_reduce", "multipath").expect("the library has it");
    let (sources, program) = of_library(entry).expect("the library resolves");
    let options = CompileOptions { paths: 3, ..CompileOptions::default() };
    let proved = compile(&program, &sources, &Shape::flat(3), &options, BufferPlacement::InPlace);
    let plan = proved.expect("it is proved").plans()[1].clone();
    assert_eq!(plan.clone().into_unproved().check().as_ref(), Ok(&plan));
    assert_eq!(Plan::decode(&plan.encode()).as_ref(), Ok(&plan));
    let lane = |plan: &Plan, part| {
        plan.part.lanes.iter().position(|l| l.part == Some(part)).expect("a lane of each part")
    };
    let (first, second) = (lane(&plan, 0), lane(&plan, 1));
    let refused = |change: &dyn Fn(&mut UnprovedPlan), why: &str| {
        let mut changed = plan.clone().into_unproved();
        change(&mut changed);
        let found = Plan::decode(&changed.encode()).expect_err(why).to_string();
        assert!(found.contains(why), "{found} instead of {why}");
    };
    refused(&|p| p.part.lanes[first].part = Some(1), "what is not its own");
    refused(&|p| p.part.lanes[first].part = None, "messages beside the parts");
    refused(&|p| p.part.lanes[first].part = Some(3), "a part of another split");
    refused(&|p| p.header.split = None, "a part of no split");
    refused(&|p| p.header.split.as_mut().expect("a split").parts = 4, "other loads");
    refused(&|p| p.header.split.as_mut().expect("a split").units = 3, "other units");
    refused(
        &|p| p.part.lanes[first].ops[0].after = vec![OpRef { lane: second as u16, op: 0 }],
        "waits for another",
    );
    let channel = plan.part.conns.iter().find(|c| c.path == 1).expect("a path").channel;
    refused(&|p| p.part.conns[0].channel = channel, "a channel rides two paths");
    refused(&|p| p.part.conns[0].path = 8, "rides no path");
}
