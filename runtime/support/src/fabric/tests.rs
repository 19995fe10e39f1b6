use super::*;

const TWO: &str = include_str!("../../../../examples/topology.toml");

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| name.to_string()).collect()
}

#[test]
fn the_example_is_read_and_what_is_written_is_read_again() {
    let fabric = FabricTopology::parse(TWO).expect("a topology");
    assert_eq!(fabric.paths.len(), 2);
    assert_eq!(fabric.device("eth0", "a"), Some("eth0"));
    assert_eq!(fabric.device("eth1", "b"), Some("enp3s0"));
    assert_eq!(fabric.device("eth2", "b"), None);
    let text = fabric.text();
    assert_eq!(FabricTopology::parse(&text), Ok(fabric.clone()), "{text}");
    assert_eq!(FabricTopology::parse(&text).expect("a topology").text(), text);
    let odd = FabricHost { name: "a \"b\" \\ c".into(), devices: vec![] };
    let fabric = FabricTopology { hosts: vec![odd], ..FabricTopology::default() };
    assert_eq!(FabricTopology::parse(&fabric.text()), Ok(fabric));
}

#[test]
fn the_slowest_link_of_a_path_counts() {
    let fabric = FabricTopology::parse(TWO).expect("a topology");
    let costs = fabric.costs(None, &[]).expect("costs");
    let seen: Vec<(&str, f64)> = costs.iter().map(|c| (c.name.as_str(), c.link.gbs)).collect();
    assert_eq!(seen, [("eth0", 0.5), ("eth1", 0.125)]);
    let of = |hosts: &[&str]| fabric.costs(Some(&names(&["eth1"])), &names(hosts));
    assert_eq!(of(&["a", "b"]).expect("costs")[0].link.gbs, 0.125);
    let slow = of(&["a", "b", "c"]).expect("costs")[0].link;
    assert_eq!((slow.gbs, slow.latency_us), (0.0125, 900.0), "a and c are far apart");
    let error = fabric.costs(Some(&names(&["eth7"])), &[]).expect_err("no such path").to_string();
    assert!(error.contains("`eth7`") && error.contains("did you mean"), "{error}");
}

#[test]
fn paths_of_any_transport_are_chosen_by_name() {
    let text = TWO.replacen(
        "name = \"eth0\"\ntransport = \"tcp\"",
        "name = \"ib\"\ntransport = \"rdma\"\ndevices = { a = \"mlx5_0\" }",
        1,
    );
    let fabric = FabricTopology::parse(&text).expect("a topology");
    let named_paths = fabric.named_paths(&names(&["eth1", "ib"])).expect("paths");
    let transports: Vec<&str> = named_paths.iter().map(|way| way.transport.as_str()).collect();
    assert_eq!(transports, [TCP, RDMA]);
    assert_eq!((fabric.device("ib", "a"), fabric.device("ib", "b")), (Some("mlx5_0"), Some("ib")));
    assert_eq!(FabricTopology::parse(&fabric.text()), Ok(fabric.clone()));
    let error = fabric.named_paths(&names(&["ib0"])).expect_err("no such path").to_string();
    assert!(error.contains("no path `ib0`; did you mean `ib`?"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_line_and_column() {
    let cases = [
        ("version = 1", "version = 9", "line 4, column 11: version 9"),
        ("[classes.wide]", "[classes.wide", "line "),
        ("gbs = 0.5", "gbs = 0", "`wide` has no time or no bandwidth"),
        ("gbs = 0.5", "gbps = 4", "gbps"),
        (
            "class = \"narrow\"",
            "class = \"norrow\"",
            "no class is named `norrow`; did you mean `narrow`?",
        ),
        ("kind = \"tcp\"", "kind = \"tpc\"", "`tpc` is not known; did you mean `tcp`?"),
        ("transport = \"tcp\"", "transport = \"smoke\"", "there are tcp, rdma"),
        ("transport = \"tcp\"", "transport = \"nvlink\"", "`nvlink` is no path: GPUs of one host"),
        ("transport = \"tcp\"", "transport = \"shm\"", "`shm` is no path: ranks of one host"),
        (
            "name = \"eth1\"\ntransport",
            "name = \"eth0\"\ntransport",
            "path `eth0` stands here a second time",
        ),
        ("name = \"b\"", "name = \"a\"", "host `a` stands here a second time"),
        ("between = [\"a\", \"c\"]", "between = [\"a\", \"x\"]", "no host is named `x`"),
        ("path = \"eth1\"", "path = \"eth3\"", "no path is named `eth3`; did you mean"),
        ("latency_us = 30", "latency_us = -1", "latency_us is 0 or more"),
    ];
    for (from, to, wanted) in cases {
        assert!(TWO.contains(from), "{from}");
        let found = FabricTopology::parse(&TWO.replacen(from, to, 1)).expect_err(to).to_string();
        let placed = found.starts_with("line ") && found.contains(", column ");
        assert!(placed && found.contains(wanted), "{to}: {found}");
    }
    let error =
        FabricTopology::load(std::path::Path::new("/nowhere/topology.toml")).expect_err("no file");
    assert!(error.to_string().contains("/nowhere/topology.toml"), "{error}");
}
