//! Each hint changes the choice; levels in order; preconditions; what is said of those that lost.

use roundelay_compiler::BufferPlacement;
use roundelay_compiler::cost::{LinkCost, LinkRates, PathCost, Topology};

use super::*;
use roundelay_support::dtype::{DType, RedOp};

fn machine() -> MachineDescription {
    MachineDescription { cpu: "test".into(), cores: 64 }
}

fn resolver() -> ChoiceResolver {
    ChoiceResolver::new(Hints::default(), None, &machine())
}

fn hints(text: &str) -> Hints {
    text.parse().expect(text)
}

fn request<'a>(collective: &'a str, topology: &'a Topology, bytes: u64) -> ChoiceRequest<'a> {
    ChoiceRequest {
        collective,
        topology,
        grid: None,
        root: 0,
        bytes,
        dtype: DType::F32,
        op: RedOp::Sum,
        placement: BufferPlacement::InPlace,
        is_cut: false,
        slot_bytes: None,
        transport: "shm",
    }
}

fn choose(collective: &str, topology: &Topology, bytes: u64, call: &str) -> AlgorithmChoice {
    resolver()
        .choose(&request(collective, topology, bytes), &hints(call), &Hints::default())
        .unwrap_or_else(|e| panic!("{collective} {call}: {e}"))
}

fn refused(collective: &str, topology: &Topology, call: &str) -> String {
    resolver()
        .choose(&request(collective, topology, 1 << 20), &hints(call), &Hints::default())
        .expect_err(call)
        .to_string()
}

fn name(ranks: u32, bytes: u64, call: &str) -> &'static str {
    choose("all_reduce", &Topology::one_host(ranks), bytes, call).entry.name
}

fn why<'c>(choice: &'c AlgorithmChoice, name: &str) -> &'c RejectionReason {
    let lost = choice.lost.iter().find(|l| l.name == name);
    &lost.unwrap_or_else(|| panic!("{name} did not lose: {choice:?}")).why
}

/// Returns a topology with Gigabit between hosts.
fn thin(hosts: u32, per: u32) -> Topology {
    let remote = LinkCost { latency_us: 30.0, message_us: 3.0, gbs: 0.125 };
    Topology::even(hosts, per).with(LinkRates { remote, uplink_gbs: 0.125, ..LinkRates::default() })
}

#[test]
fn every_collective_has_a_choice_at_every_count() {
    let mut resolver = resolver();
    for (collective, _) in roundelay_compiler::program::COLLECTIVES {
        for ranks in [1u32, 2, 3, 4, 6, 7, 16, 33] {
            if *collective == "sendrecv" && ranks != 2 {
                continue;
            }
            let topology = Topology::one_host(ranks);
            let count = roundelay_algorithms::of(collective).count();
            for bytes in [0, 8, 64 << 10, 16 << 20] {
                let request = request(collective, &topology, bytes);
                let choice = resolver.choose(&request, &Hints::default(), &Hints::default());
                let choice = choice.unwrap_or_else(|e| panic!("{collective} on {ranks}: {e}"));
                assert_eq!(choice.lost.len() + 1, count);
                let expected = if ranks == 1 { DecidedBy::Default } else { DecidedBy::CostModel };
                assert_eq!(choice.source, expected, "{collective} on {ranks}");
            }
        }
    }
}

#[test]
fn size_and_ranks_decide() {
    assert_eq!(name(2, 8, ""), "one_shot");
    assert!(["one_shot", "recursive_doubling"].contains(&name(4, 8, "")));
    assert_eq!(name(4, 16 << 20, ""), "two_shot");
    assert_ne!(name(64, 8, ""), "ring");
    let one = Topology::one_host(8);
    assert_ne!(choose("broadcast", &one, 16 << 20, "").entry.name, "binomial");
    assert_ne!(choose("broadcast", &one, 8, "").entry.name, "chain");
}

#[test]
fn arguments_are_named_by_hints_and_by_the_table() {
    let eight = Topology::one_host(8);
    let choice = choose("broadcast", &eight, 8, "algorithm=k_nomial(k=4)");
    assert_eq!(choice.name(), "k_nomial(k = 4)");
    assert_eq!(*why(&choice, "k_nomial"), RejectionReason::Overruled);
    let request = request("broadcast", &eight, 8);
    let mut table = TunedTable::new(machine());
    table.insert(&setting(&request), 8, "k_nomial(k = 8)", 1.0);
    table.insert(&setting(&request), 8, "binomial", 2.0);
    let mut resolver = ChoiceResolver::new(Hints::default(), Some(table), &machine());
    let mut chosen = |call: &str| {
        let choice = resolver.choose(&request, &hints(call), &Hints::default()).expect(call);
        (choice.name().to_owned(), choice.source)
    };
    assert_eq!(chosen(""), ("k_nomial(k = 8)".into(), DecidedBy::Tuned));
    assert_eq!(chosen("algorithm=k_nomial(k = 3)").0, "k_nomial(k = 3)");
    assert_eq!(chosen("objective=latency").1, DecidedBy::Hint(HintLevel::Call, "objective"));
}

#[test]
fn a_named_algorithm_is_run_or_refused_with_its_clause() {
    let four = Topology::one_host(4);
    let choice = choose("all_reduce", &four, 1 << 20, "algorithm=ring");
    assert_eq!(choice.entry.name, "ring");
    assert_eq!(choice.source, DecidedBy::Hint(HintLevel::Call, "algorithm"));
    assert_eq!(*why(&choice, "two_shot"), RejectionReason::Overruled);
    let six = Topology::one_host(6);
    let error = refused("all_reduce", &six, "algorithm=halving_doubling");
    assert_eq!(
        error,
        "the hint on the call names all_reduce.halving_doubling, which cannot be run on 6 ranks: it \
         requires pow2(n), which does not hold with n = 6"
    );
    let error = refused("all_reduce", &six, "algorithm=two_level");
    assert!(error.contains("runs on a grid (node, gpu)"), "{error}");
    let error = refused("all_reduce", &six, "algorithm=compressed");
    assert!(error.contains("lossy=bf16 is not given"), "{error}");
    let error = refused("broadcast", &six, "algorithm=ring");
    assert!(error.contains("no broadcast.ring; for broadcast it has bine, binomial"), "{error}");
    let error = refused("all_reduse", &six, "");
    assert!(error.contains("did you mean `all_reduce`?"), "{error}");
}

#[test]
fn preconditions_are_named_for_those_that_lose() {
    let choice = choose("all_reduce", &Topology::one_host(6), 1 << 20, "");
    let RejectionReason::Refused(code, text) = why(&choice, "swing") else { panic!("{choice:?}") };
    assert_eq!(*code, codes::REQUIRES);
    assert_eq!(text, "it requires pow2(n), which does not hold with n = 6");
    assert!(matches!(why(&choice, "ring"), RejectionReason::Predicted(times) if *times > 1.0));
    let order: Vec<f64> = choice.lost.iter().filter_map(|l| l.predicted_us).collect();
    assert!(order.is_sorted() && choice.predicted_us <= order[0], "{order:?}");
}

#[test]
fn the_objective_overrules_the_size() {
    assert_eq!(name(4, 64 << 20, "objective=latency"), name(4, 0, ""));
    assert_eq!(name(4, 8, "objective=bandwidth"), name(4, 1 << 30, ""));
    assert_ne!(name(4, 64 << 20, "objective=latency"), name(4, 64 << 20, ""));
    let four = Topology::one_host(4);
    let choice = choose("all_reduce", &four, 8, "objective=bandwidth");
    assert_eq!(choice.source, DecidedBy::Hint(HintLevel::Call, "objective"));
}

#[test]
fn rounding_must_be_allowed() {
    let hosts = thin(4, 1);
    assert_eq!(choose("all_reduce", &hosts, 64 << 20, "lossy=bf16").entry.name, "compressed");
    for call in ["", "lossy=none", "lossy=f16"] {
        let choice = choose("all_reduce", &hosts, 64 << 20, call);
        assert!(matches!(why(&choice, "compressed"), RejectionReason::Lossy(_)), "{call}");
    }
    let mut integers = request("all_reduce", &hosts, 1 << 20);
    integers.dtype = DType::I32;
    let choice = resolver().choose(&integers, &hints("lossy=bf16"), &Hints::default());
    let choice = choice.expect("a choice");
    assert!(why(&choice, "compressed").to_string().contains("sums of floats, not for sum of i32"));
    // A wire type that is no narrower than the data does not round.
    let mut brain = request("all_reduce", &hosts, 1 << 20);
    brain.dtype = DType::Bf16;
    let choice = resolver().choose(&brain, &hints("algorithm=compressed"), &Hints::default());
    assert!(choice.is_ok());
}

#[test]
fn deterministic_sums_take_the_ranks_in_order() {
    for (ranks, bytes) in [(4, 8), (4, 16 << 20), (16, 16 << 20), (7, 1 << 20)] {
        let chosen = name(ranks, bytes, "deterministic=true");
        assert!(["one_shot", "two_shot"].contains(&chosen), "{chosen}");
    }
    let eight = Topology::one_host(8);
    let choice = choose("all_reduce", &eight, 1 << 20, "deterministic=true");
    assert!(matches!(why(&choice, "ring"), RejectionReason::Unordered(_)));
    for collective in ["reduce", "reduce_scatter"] {
        let choice = choose(collective, &eight, 1 << 20, "deterministic=batch_invariant");
        let in_order = ["linear", "direct", "pairwise", "two_shot"];
        assert!(in_order.contains(&choice.entry.name), "{}", choice.entry.name);
    }
    let choice = choose("broadcast", &eight, 1 << 20, "deterministic=true");
    assert!(
        choice.lost.iter().all(|l| !matches!(l.why, RejectionReason::Unordered(_))),
        "nothing is added there"
    );
    // The order of integers changes nothing; that of maxima of floats says which of two zeros is first.
    let mut maxima = request("all_reduce", &eight, 1 << 20);
    maxima.op = RedOp::Max;
    let choose = |request: &ChoiceRequest<'_>| {
        resolver()
            .choose(request, &hints("deterministic=true"), &Hints::default())
            .expect("a choice")
    };
    assert!(matches!(why(&choose(&maxima), "ring"), RejectionReason::Unordered(_)));
    maxima.dtype = DType::I32;
    assert!(matches!(why(&choose(&maxima), "ring"), RejectionReason::Predicted(_)));
}

#[test]
fn a_named_schedule_without_one_order_is_refused_at_its_line() {
    let four = Topology::one_host(4);
    let error = refused("all_reduce", &four, "deterministic=batch_invariant,algorithm=ring");
    assert!(error.contains("order of operands depends on the place of an element"), "{error}");
    assert!(error.contains("all_reduce/ring.algo:") && error.contains("data[0] is"), "{error}");
    // One order for all elements is enough if the schedule is named; where the choice is free it is the ascending one.
    let named =
        choose("all_reduce", &four, 1 << 20, "deterministic=true,algorithm=recursive_doubling");
    assert_eq!(named.entry.name, "recursive_doubling");
    let free = choose("all_reduce", &four, 1 << 20, "deterministic=true");
    let RejectionReason::Unordered(refusal) = why(&free, "recursive_doubling") else {
        panic!("{free:?}")
    };
    assert!(refusal.why.contains("name it to run it"), "{refusal}");
    assert!(free.remarks.iter().any(|r| r.contains("batch-invariant for sum of f32: ascending")));
    // From the environment and the communicator too.
    let asked = hints("deterministic=batch_invariant");
    let mut environment = ChoiceResolver::new(asked.clone(), None, &machine());
    let request = request("all_reduce", &four, 64 << 20);
    let none = Hints::default();
    for choice in
        [environment.choose(&request, &none, &none), resolver().choose(&request, &none, &asked)]
    {
        assert!(matches!(why(&choice.expect("a choice"), "ring"), RejectionReason::Unordered(_)));
    }
    let free =
        environment.choose(&request, &hints("deterministic=false"), &none).expect("a choice");
    assert!(!matches!(why(&free, "halving_doubling"), RejectionReason::Unordered(_)));
    let error = refused("all_reduce", &four, "deterministic=true,algorithm=compressed,lossy=bf16");
    assert!(error.contains("rounds on the wire"), "{error}");
}

#[test]
fn at_least_two_schedules_of_each_collective_are_batch_invariant() {
    for dtype in [DType::F32, DType::Bf16] {
        for (collective, root) in
            [("all_reduce", 0), ("reduce", 0), ("reduce", 3), ("reduce_scatter", 0)]
        {
            let four = Topology::one_host(4);
            let request = ChoiceRequest { dtype, root, ..request(collective, &four, 1 << 20) };
            let choice =
                resolver().choose(&request, &hints("deterministic=true"), &Hints::default());
            let choice = choice.expect("a choice");
            let others =
                choice.lost.iter().filter(|l| matches!(l.why, RejectionReason::Predicted(_)));
            let others: Vec<&str> = others.map(|l| l.name).collect();
            assert!(!others.is_empty(), "{collective} of {dtype}: {} alone", choice.entry.name);
            // A chain that ends at the last rank adds in order, and rounds sums of 16 bits at every stop.
            let is_chain = others.contains(&"chain") || choice.entry.name == "chain";
            assert_eq!(is_chain, collective == "reduce" && root == 3 && dtype == DType::F32);
        }
    }
}

#[test]
fn transports_and_slots_change_what_is_fast() {
    let at = 96 << 10;
    let four = Topology::one_host(8);
    let time = |call: &str| choose("all_reduce", &four, at, call).predicted_us;
    assert!(time("transport=tcp") > 4.0 * time(""), "{} {}", time("transport=tcp"), time(""));
    let differs = |bytes: u64| name(8, bytes, "transport=tcp") != name(8, bytes, "");
    assert!((10..24).any(|shift| differs(1 << shift)), "links are alike at every size");
    let chain = |call: &str| choose("broadcast", &four, 16 << 20, call).predicted_us;
    assert!(chain("algorithm=chain,slot_bytes=64") > 2.0 * chain("algorithm=chain"));
}

#[test]
fn hosts_make_a_grid() {
    let thin = thin(2, 4);
    let choice = choose("all_reduce", &thin, 16 << 20, "");
    assert_eq!((choice.entry.name, choice.shape.to_string().as_str()), ("two_level", "2x4"));
    let RejectionReason::Predicted(times) = why(&choice, "ring") else { panic!("{choice:?}") };
    // 2(n-1)/n against 2(m-1)/m of the data over the uplink.
    assert!((times / 1.75 - 1.0).abs() < 0.25, "{times}");
    let odd = Topology::new(&[0, 0, 0, 1]);
    let choice = choose("all_reduce", &odd, 16 << 20, "");
    assert!(why(&choice, "two_level").to_string().contains("not spread evenly"));
    let grid = Shape { axes: vec![2, 2] };
    let four = Topology::one_host(4);
    let given = ChoiceRequest { grid: Some(&grid), ..request("all_reduce", &four, 8) };
    let choice = resolver().choose(&given, &hints("algorithm=two_level"), &Hints::default());
    assert_eq!(choice.expect("a choice").shape, grid);
}

/// Returns a table in which `ring` is fastest at 1 KiB and above.
fn table() -> TunedTable {
    let mut table = TunedTable::new(machine());
    let four = Topology::one_host(4);
    let setting = setting(&request("all_reduce", &four, 0));
    for (algorithm, small, large) in
        [("ring", 9.0, 50.0), ("two_shot", 10.0, 100.0), ("halving_doubling", 5.0, 200.0)]
    {
        table.insert(&setting, 1 << 10, algorithm, small);
        table.insert(&setting, 1 << 20, algorithm, large);
    }
    table
}

#[test]
fn levels_go_in_order() {
    let four = Topology::one_host(4);
    let request = request("all_reduce", &four, 1 << 20);
    let (call, comm) = (hints("algorithm=swing"), hints("algorithm=circulant"));
    let none = Hints::default();
    let env = || hints("algorithm=bidirectional_ring");
    let mut all = ChoiceResolver::new(env(), Some(table()), &machine());
    let mut run = |call: &Hints, comm: &Hints| {
        let choice = all.choose(&request, call, comm).expect("a choice");
        (choice.entry.name, choice.source)
    };
    assert_eq!(run(&call, &comm), ("swing", DecidedBy::Hint(HintLevel::Call, "algorithm")));
    assert_eq!(
        run(&none, &comm),
        ("circulant", DecidedBy::Hint(HintLevel::Communicator, "algorithm"))
    );
    let environment = DecidedBy::Hint(HintLevel::Environment, "algorithm");
    assert_eq!(run(&none, &none), ("bidirectional_ring", environment));
    let mut tuned = ChoiceResolver::new(Hints::default(), Some(table()), &machine());
    let choice = tuned.choose(&request, &none, &none).expect("a choice");
    assert_eq!((choice.entry.name, choice.source), ("ring", DecidedBy::Tuned));
    assert_eq!(choice.measured_us, Some(50.0));
    assert_eq!(*why(&choice, "two_shot"), RejectionReason::Measured(2.0));
    assert_eq!(*why(&choice, "circulant"), RejectionReason::Unmeasured);
    let mut model = resolver();
    let choice = model.choose(&request, &none, &none).expect("a choice");
    assert_eq!((choice.entry.name, choice.source), ("two_shot", DecidedBy::CostModel));
    let one = Topology::one_host(1);
    let alone = ChoiceRequest { topology: &one, ..request };
    let choice = tuned.choose(&alone, &none, &none).expect("a choice");
    assert_eq!(choice.source, DecidedBy::Default);
}

#[test]
fn the_table_gives_way_to_what_hints_forbid() {
    let four = Topology::one_host(4);
    let request = request("all_reduce", &four, 1 << 20);
    let mut tuned = ChoiceResolver::new(Hints::default(), Some(table()), &machine());
    let mut run = |text: &str| {
        let choice = tuned.choose(&request, &hints(text), &Hints::default()).expect(text);
        (choice.entry.name, choice.source)
    };
    assert_eq!(run("deterministic=true"), ("two_shot", DecidedBy::Tuned));
    assert_eq!(run("objective=latency").1, DecidedBy::Hint(HintLevel::Call, "objective"));
    assert_eq!(run("transport=tcp").1, DecidedBy::CostModel, "measured over shared memory");
}

#[test]
fn a_table_of_another_machine_does_not_apply_and_says_so() {
    let here = MachineDescription { cores: 2, ..machine() };
    let mut resolver = ChoiceResolver::new(Hints::default(), Some(table()), &here);
    let four = Topology::one_host(4);
    let request = request("all_reduce", &four, 1 << 20);
    let choice = resolver.choose(&request, &Hints::default(), &Hints::default());
    let choice = choice.expect("a choice");
    assert_eq!(choice.source, DecidedBy::CostModel);
    assert!(choice.remarks[0].contains("measured on 64 cores of test, and this is 2 cores"));
}

#[test]
fn choices_are_the_same_bit_for_bit() {
    for ranks in [2, 5, 16, 40] {
        let topology = Topology::one_host(ranks);
        for bytes in [8, 12345, 1 << 22] {
            let once = choose("all_reduce", &topology, bytes, "");
            let again = choose("all_reduce", &topology, bytes, "");
            assert_eq!(once.entry, again.entry);
            assert_eq!(once.predicted_us.to_bits(), again.predicted_us.to_bits());
        }
    }
}

#[test]
fn on_crowded_cores_fewer_rounds_win_among_those_that_are_alike() {
    let lost = |cores| {
        let rates = LinkRates { cores, ..LinkRates::default() };
        let choice = choose("all_reduce", &Topology::one_host(4).with(rates), 16 << 20, "");
        let chosen = choice.predicted_us;
        let faster = choice.lost.iter().filter(|l| l.predicted_us.is_some_and(|us| us < chosen));
        (choice.entry.name, faster.map(|l| l.why.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(lost(64).1, Vec::<String>::new());
    let (name, faster) = lost(2);
    assert_eq!(name, "two_shot");
    assert!(!faster.is_empty() && faster.iter().all(|why| why == "predicted alike"), "{faster:?}");
}

/// Returns hosts with paths of 4 and 1 Gbit/s between them.
fn two_paths(hosts: u32, per: u32) -> Topology {
    let path = |name: &str, gbs| PathCost {
        name: name.into(),
        link: LinkCost { latency_us: 30.0, message_us: 3.0, gbs },
    };
    Topology::even(hosts, per).over(vec![path("wide", 0.5), path("narrow", 0.125)])
}

#[test]
fn several_paths_make_multipath_a_candidate() {
    let topology = two_paths(2, 1);
    for collective in ["all_reduce", "all_gather", "broadcast", "all_to_all"] {
        let large = choose(collective, &topology, 64 << 20, "");
        assert_eq!(large.entry.name, "multipath", "{collective}");
        let division = large.division.as_ref().expect("a division");
        let shares: Vec<f64> = division.parts.iter().map(|p| p.share).collect();
        assert!((shares[0] - 0.8).abs() < 0.01 && (shares[1] - 0.2).abs() < 0.01, "{shares:?}");
        assert!(division.alone_us > 1.2 * large.predicted_us, "{division:?}");
        assert!(division.threshold.is_some_and(|bytes| bytes > 1 << 10), "{division:?}");
        let small = choose(collective, &topology, 1 << 10, "");
        assert!(!small.entry.name.starts_with("multipath"), "{collective}");
        assert_eq!(small.division, None, "{collective}");
        let hinted = choose(collective, &topology, 1 << 10, "algorithm=multipath");
        let parts = hinted.division.expect("a division").parts;
        assert_eq!(parts.iter().map(|p| p.share).collect::<Vec<_>>(), [1.0, 0.0], "{collective}");
    }
    assert_eq!(
        choose("all_reduce", &two_paths(2, 2), 64 << 20, "").entry.name,
        "multipath_two_level"
    );
}

#[test]
fn with_one_path_or_one_host_it_is_none_unless_it_is_asked_for() {
    let choice = choose("all_reduce", &thin(2, 1), 64 << 20, "");
    assert!(why(&choice, "multipath").to_string().contains("there is one"));
    let one = Topology::one_host(2).over(two_paths(2, 1).paths);
    let choice = choose("all_reduce", &one, 64 << 20, "");
    assert!(why(&choice, "multipath").to_string().contains("on one"));
    let choice = choose("all_reduce", &one, 1 << 20, "algorithm=multipath");
    assert_eq!((choice.entry.name, choice.division), ("multipath", None));
}

#[test]
fn a_table_of_one_path_says_nothing_of_several() {
    let topology = two_paths(2, 1);
    let request = request("all_reduce", &topology, 64 << 20);
    let mut tuned = TunedTable::new(machine());
    tuned.insert(&setting(&request), 64 << 20, "ring", 1.0);
    let choose = |tuned: &TunedTable| {
        let mut resolver = ChoiceResolver::new(Hints::default(), Some(tuned.clone()), &machine());
        resolver.choose(&request, &Hints::default(), &Hints::default()).expect("a choice")
    };
    assert_eq!(choose(&tuned).entry.name, "multipath");
    tuned.insert(&setting(&request), 64 << 20, "multipath", 3.0);
    assert_eq!(choose(&tuned).entry.name, "ring");
}
