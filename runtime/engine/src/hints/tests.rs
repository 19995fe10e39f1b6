//! Tests every key, its faults, and the order of levels.

use std::time::Duration;

use super::*;
use roundelay_compiler::device::DeviceProtocol;
use roundelay_dsl::diag::codes;
use roundelay_net::transport::TransportSet;
use roundelay_support::error::Error;

fn hints(text: &str) -> Hints {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn fault(text: &str) -> String {
    text.parse::<Hints>().expect_err(text).to_string()
}

#[test]
fn every_key_has_an_example_that_changes_something() {
    for row in TABLE {
        let read = Hints::from_pairs([(row.name, row.example)]);
        let read = read.unwrap_or_else(|e| panic!("{}: {e}", row.name));
        assert!(!read.is_empty(), "{}", row.name);
        let error = Hints::from_pairs([(row.name, "~")]).expect_err(row.name).to_string();
        assert!(error.contains(row.name) && error.contains(row.values), "{error}");
    }
}

#[test]
fn values_are_read() {
    let h = hints(
        "objective=latency,deterministic=true,lossy=bf16,transport=tcp,shm,channels=4,\
         slot_bytes=256K,timeout=1500ms,lazy=True,interface=eth0.5,rdma_gid=3,gpu_direct=false,\
         ports=50000-50999",
    );
    assert_eq!(h.objective(), Some(ChoiceObjective::Latency));
    assert_eq!((h.deterministic(), h.lazy()), (Some(true), Some(true)));
    assert_eq!(h.lossy(), Some(LossyType::Bf16));
    assert_eq!(h.transport(), Some(TransportSet::TCP.or(TransportSet::SHM)));
    assert_eq!((h.channels(), h.slot_bytes()), (Some(4), Some(256 << 10)));
    assert_eq!(h.timeout(), Some(Duration::from_millis(1500)));
    assert_eq!((h.interface(), h.rdma_gid()), (Some("eth0.5"), Some(3)));
    assert_eq!(h.gpu_direct(), Some(false));
    assert_eq!(h.ports(), roundelay_support::ports::PortRange::new(50000, 50999));
    assert!(hints("").is_empty() && hints(" , ").is_empty());
}

#[test]
fn algorithms_are_named_for_all_collectives_or_for_one() {
    let h = hints("algorithm=ring,broadcast.chain,timeout=1s");
    assert_eq!(h.algorithm("all_reduce"), Some("ring"));
    assert_eq!(h.algorithm("broadcast"), Some("chain"));
    assert_eq!(h.algorithm("barrier"), None, "it has no ring");
    assert_eq!(hints("algorithm=all_reduce.ring").algorithm("all_gather"), None);
}

#[test]
fn algorithms_have_arguments() {
    let h = hints("algorithm=broadcast.k_nomial(k=4),barrier.k_dissemination( k = 3 ),timeout=1s");
    assert_eq!(h.algorithm("broadcast"), Some("k_nomial(k = 4)"));
    assert_eq!(h.algorithm("barrier"), Some("k_dissemination(k = 3)"));
    assert_eq!(h.timeout(), Some(Duration::from_secs(1)));
    let both = hints("algorithm=k_bruck(k=8)");
    assert_eq!(both.algorithm("all_gather"), both.algorithm("all_to_all"));
    assert_eq!(hints("algorithm=k_bruck(k=2)").algorithm("all_gather"), Some("k_bruck"));
}

#[test]
fn what_is_near_is_named() {
    let cases = [
        ("algorithm=k_bruk(k=3)", "no algorithm `k_bruk`, did you mean `k_bruck`?"),
        ("algorithm=all_gather.k_bruck(k=9)", "k goes from 2 to 8"),
        ("algorithm=ring(k=2)", "ring` has no parameter `k`"),
        ("algoritm=ring", "no hint is named `algoritm`; did you mean `algorithm`?"),
        ("zzz=1", "there are algorithm, objective, deterministic"),
        ("algorithm=rign", "the algorithm library has no algorithm `rign`, did you mean `ring`?"),
        (
            "algorithm=all_reduce.binomial",
            "all_reduce has no algorithm `binomial`, there are bidirect",
        ),
        ("algorithm=allreduce.ring", "no collective, did you mean `all_reduce`?"),
        ("algorithm=ring,chain", "two algorithms are named for all collectives"),
        ("objective=latncy", "did you mean `latency`?"),
        ("deterministic=yes", "there are batch_invariant, true, false"),
        ("deterministic=tru", "did you mean `true`?"),
        ("lossy=bf61", "did you mean `bf16`?"),
        ("transport=shm,tpc", "`tpc` is no transport, did you mean `tcp`?"),
        ("transport=shm,shm", "named twice"),
        ("channels=0", "0 is out of range; it takes a number from 1 to 64"),
        ("channels=four", "it is no number"),
        ("slot_bytes=65", "out of range, or not a multiple"),
        ("slot_bytes=1G", "`G` is no unit of size"),
        ("timeout=5y", "`y` is no unit of time"),
        ("timeout=-1s", "it is no unit"),
        ("interface=", "no interface has that name"),
        ("ports=1-0", "no range of ports"),
        ("rdma_gid=256", "256 is out of range; it takes a number from 0 to 255"),
        ("lazy=true,lazy=false", "`lazy` is given twice"),
        ("ring", "`ring` is no hint: write key=value"),
    ];
    for (text, wanted) in cases {
        let found = fault(text);
        let wanted = if text == "timeout=-1s" { "out of range" } else { wanted };
        assert!(found.contains(wanted), "{text}: {found}");
    }
}

#[test]
fn what_no_hardware_has_run_needs_the_feature() {
    for (key, value) in [("protocol", "multicast"), ("gpu_direct", "true"), ("gpu_direct", "1")] {
        let mut hints = Hints::default();
        let row = table::find(key).expect("a key");
        assert!((row.read)(&mut hints, value).is_ok(), "{key}={value}");
        assert_eq!(experimental::check_value(&hints, key, value, true), Ok(()));
        let refused = HintError::Experimental { key, value: value.into() };
        assert_eq!(experimental::check_value(&hints, key, value, false), Err(refused.clone()));
        let text = refused.to_string();
        assert!(text.contains("`--features experimental`") && text.contains(value), "{text}");
        // In the build at hand: accepted with the feature, refused without it.
        let read = Hints::from_pairs([(key, value)]);
        match cfg!(feature = "experimental") {
            true => assert_eq!(read, Ok(hints)),
            false => assert_eq!(read, Err(refused)),
        }
    }
    for text in ["protocol=put", "gpu_direct=false", "gpu_direct=False"] {
        hints(text);
    }
    assert_eq!(check_protocol(DeviceProtocol::Put), Ok(()));
    assert_eq!(check_protocol(DeviceProtocol::Multicast).is_ok(), EXPERIMENTAL);
}

#[test]
fn nearer_levels_go_first_key_by_key() {
    let (call, comm, env) = (
        hints("timeout=1s,algorithm=all_reduce.one_shot"),
        hints("timeout=2s,lazy=true,algorithm=chain"),
        hints("timeout=3s,lazy=false,channels=2,algorithm=broadcast.binomial,all_gather.ring"),
    );
    let merged = MergedHints::new([
        (HintLevel::Environment, &env),
        (HintLevel::Call, &call),
        (HintLevel::Communicator, &comm),
    ]);
    assert_eq!(merged.hints().timeout(), Some(Duration::from_secs(1)));
    assert_eq!(merged.source("timeout"), Some(HintLevel::Call));
    assert_eq!(
        (merged.hints().lazy(), merged.source("lazy")),
        (Some(true), Some(HintLevel::Communicator))
    );
    assert_eq!(merged.source("channels"), Some(HintLevel::Environment));
    assert_eq!(merged.source("interface"), None);
    assert_eq!(merged.algorithm("all_reduce"), Some(("one_shot", HintLevel::Call)));
    assert_eq!(merged.algorithm("broadcast"), Some(("chain", HintLevel::Communicator)));
    assert_eq!(merged.algorithm("all_gather"), Some(("ring", HintLevel::Environment)));
    assert_eq!(merged.algorithm("all_to_all"), None);
    let call = hints("algorithm=ring");
    let merged = MergedHints::new([(HintLevel::Call, &call)]);
    assert_eq!(merged.algorithm("barrier"), Some(("ring", HintLevel::Call)), "to be refused");
}

#[test]
fn the_documentation_has_every_row() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hints.md");
    let page = std::fs::read_to_string(path).expect("docs/hints.md");
    for row in TABLE {
        let line =
            format!("| `{}` | {} | {} | `{}` |", row.name, row.values, row.meaning, row.example);
        assert!(page.contains(&line), "docs/hints.md needs the row\n{line}");
    }
    let rows = page.lines().filter(|l| l.starts_with("| `")).count();
    assert_eq!(rows, TABLE.len(), "rows of keys that do not exist");
}

#[test]
fn the_error_of_a_call_has_that_of_the_hint_as_its_source() {
    use std::error::Error as _;
    let error = Error::from("paths=~".parse::<Hints>().expect_err("no path"));
    assert_eq!(error.code(), codes::SETTINGS);
    let source = error.source().and_then(|source| source.downcast_ref::<HintError>());
    assert!(matches!(source, Some(HintError::Value { key: "paths", .. })), "{error}");
}
