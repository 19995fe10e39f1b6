//! Tests several paths between hosts, through the binary.

use std::path::Path;

use crate::support::roundelay;
use roundelay_tests::{CheckNeeds, skip};

const TOPOLOGY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/topology.toml");

#[test]
fn algorithms_over_paths_are_proved_shown_and_run() {
    let proved =
        roundelay(&["check", "all_reduce.multipath", "-n", "2,3", "--paths", "3", "--json"]).ok();
    assert!(proved.json().iter().all(|line| line["verdict"] == "proved"));
    let plan =
        roundelay(&["show", "broadcast.multipath", "-n", "2", "--paths", "2", "--stage", "plan"])
            .ok();
    assert!(plan.out.contains("lane 2 part 1") && plan.out.contains("via 1"), "{}", plan.out);
    let mut run =
        vec!["run", "all_to_all.multipath", "-n", "3", "--bytes", "1K,1M", "--iters", "2"];
    run.extend(["--paths", "2", "--json"]);
    assert!(roundelay(&run).ok().json().iter().all(|line| line["wrong"] == 0));
    roundelay(&["check", "all_reduce.multipath", "--paths", "9"]).fails(2, &["9 is not in 1..=8"]);
}

#[test]
fn calls_between_hosts_ride_the_paths_that_are_named() {
    let run = |paths: &str| {
        let hint = format!("paths={paths}");
        let args = ["run", "all_reduce.multipath", "-n", "2", "--hosts", "2", "--bytes", "1M"];
        roundelay(&[&args[..], &["--iters", "2", "--json", "--hint", &hint]].concat())
    };
    run("127.0.0.1,nowhere0").fails(3, &["RL0709", "nowhere0"]);
    match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => assert!(run("127.0.0.1,::1").ok().json().iter().all(|line| line["wrong"] == 0)),
        Err(why) => {
            skip(CheckNeeds::Ipv6, format!("only one path without IPv6: {why}"));
        }
    }
}

#[test]
fn a_path_that_is_no_device_here_says_so() {
    let text = std::fs::read_to_string(TOPOLOGY).expect("the example");
    let text = text.replacen(
        "name = \"eth1\"\ntransport = \"tcp\"",
        "name = \"eth1\"\ntransport = \"rdma\"",
        1,
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices.toml");
    std::fs::write(&file, text).expect("a file");
    let run = |paths: &str| {
        let hint = format!("topology={},paths={paths}", file.display());
        let args = ["run", "all_reduce.multipath", "-n", "2", "--hosts", "2", "--bytes", "1K"];
        roundelay(&[&args[..], &["--hint", &hint]].concat())
    };
    run("eth1").fails(3, &["RL0709", "path `eth1` is the RDMA device `eth1` here: "]);
    run("eth1+eth2").fails(2, &["no path `eth2`; did you mean"]);
}

#[test]
fn explain_shows_shares_and_why() {
    let hint = format!("topology={TOPOLOGY}");
    let explain = |more: &[&str]| {
        let mut args = vec!["explain", "all_reduce", "-n", "2", "--hosts", "2", "--hint", &hint];
        args.extend(more);
        roundelay(&args)
    };
    let text = explain(&["--bytes", "16M"]).ok().out;
    assert!(text.contains("multipath (cost model)") && text.contains("80.0 %"), "{text}");
    assert!(text.contains("several paths from ") && text.contains("eth1"), "{text}");
    let json = explain(&["--bytes", "16M", "--json"]).ok().json().remove(0);
    let shares = json["division"]["paths"].as_array().expect("paths");
    let sum: f64 = shares.iter().map(|p| p["share"].as_f64().expect("a share")).sum();
    assert!((sum - 1.0).abs() < 1e-9 && shares.len() == 2, "{json}");
    explain(&["--hint", "paths=eth9"]).fails(2, &["no path `eth9`", "did you mean"]);
    roundelay(&["explain", "all_reduce", "--hint", "topology=/nowhere.toml"])
        .fails(1, &["/nowhere.toml"]);
}

#[test]
fn topology_files_are_written() {
    let text = roundelay(&["info", "--topology"]).ok().out;
    let fabric = roundelay::fabric::FabricTopology::parse(&text);
    assert_eq!(fabric.expect("a topology").hosts.len(), 1, "{text}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("measured.toml").display().to_string();
    let _ = std::fs::remove_file(&file);
    let links = |more: &[&str]| {
        let mut args = vec!["tune", "--links", "-n", "2", "--paths", "127.0.0.1", "-o", &file];
        args.extend(more);
        roundelay(&args)
    };
    let planned = links(&["--dry-run", "--json"]).ok().json();
    assert_eq!(planned[0]["state"], "planned");
    assert!(!Path::new(&file).exists(), "nothing is written");
    let measured = links(&["--json"]).ok().json();
    assert!(measured[0]["gbs"].as_f64().is_some_and(|gbs| gbs > 0.0), "{measured:?}");
    let text = std::fs::read_to_string(&file).expect("a file");
    let fabric = roundelay::fabric::FabricTopology::parse(&text).expect("a topology");
    assert_eq!((fabric.paths.len(), fabric.hosts.len()), (1, 2), "{text}");
    roundelay(&["tune", "--links"]).fails(2, &["name the paths"]);
    roundelay(&["tune", "--links", "--paths", "eth0"]).fails(2, &["links are between hosts"]);
}
