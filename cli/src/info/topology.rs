//! Implements `roundelay info --topology`: writes what this machine has to reach others with, as a topology file.

use std::path::Path;

use roundelay::cuda::probe;
use roundelay::fabric::{FabricDevice, FabricHost, FabricTopology, LinkClass, NetworkPath, RDMA};
use roundelay::internal::system;
use roundelay_compiler::cost::LinkCost;
use roundelay_compiler::plan::MAX_PATHS;
use serde::Serialize;

use crate::report::{VerbReport, VerbResult, print};

/// Returns the name of this host.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// Prints the file.
pub(super) fn topology(report: VerbReport) -> VerbResult {
    let fabric = detected(Path::new(system::SYS));
    let text = fabric.text();
    if report.json {
        #[derive(Serialize)]
        struct TopologyRow<'a> {
            host: String,
            paths: Vec<&'a str>,
            topology: &'a str,
        }
        let paths = fabric.paths.iter().map(|path| path.name.as_str()).collect();
        report.result(&TopologyRow { host: host(), paths, topology: &text });
        return Ok(());
    }
    print(&format!(
        "# What {} has, as the system says it: latencies are guesses, and so are bandwidths of devices that\n\
         # say nothing. `roundelay tune --links` measures. Leave out paths that do not reach the other hosts, and\n\
         # of a RoCE device and the interface below it one: they share a cable.\n\
         {text}",
        host()
    ));
    Ok(())
}

/// Returns the devices below a folder such as `/sys/class`, the fastest first.
fn detected(sys: &Path) -> FabricTopology {
    let mut devices = system::devices(sys);
    devices.sort_by(|a, b| b.gbs.unwrap_or(0.0).total_cmp(&a.gbs.unwrap_or(0.0)));
    let mut fabric = FabricTopology::default();
    for device in devices.iter().take(MAX_PATHS as usize) {
        let gbs = device.gbs.unwrap_or(LinkCost::NETWORK.gbs);
        let usual = if device.kind == RDMA { LinkCost::DEVICE } else { LinkCost::NETWORK };
        let latency_us = usual.latency_us;
        let class = format!("{}-{:.0}", device.kind, gbs * 8000.0);
        fabric.classes.insert(class.clone(), LinkClass { latency_us, gbs });
        let (name, transport) = (device.name.clone(), device.kind.clone());
        fabric.paths.push(NetworkPath { name, transport, class, devices: Default::default() });
    }
    if let Ok(machine) = probe() {
        devices.extend(machine.devices.iter().map(|gpu| FabricDevice {
            name: format!("GPU {}: {}", gpu.index, gpu.name),
            kind: "gpu".into(),
            gbs: None,
        }));
    }
    fabric.hosts.push(FabricHost { name: host(), devices });
    fabric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_become_paths_the_fastest_first() {
        let sys = std::env::temp_dir().join(format!("roundelay-sys-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = sys.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
            std::fs::write(path, text).expect("a file is written");
        };
        for (name, state, kind, speed) in [
            ("lo", "unknown", "772", "-1"),
            ("eth0", "up", "1", "1000"),
            ("eth1", "up", "1", "10000"),
            ("eth2", "down", "1", "40000"),
            ("veth", "unknown", "1", "-1"),
        ] {
            file(&format!("net/{name}/operstate"), state);
            file(&format!("net/{name}/type"), kind);
            file(&format!("net/{name}/speed"), speed);
        }
        file("infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
        file("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
        file("infiniband/mlx5_1/ports/1/state", "1: DOWN");
        let fabric = detected(&sys);
        std::fs::remove_dir_all(&sys).expect("the folder goes");
        let paths: Vec<&str> = fabric.paths.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(paths, ["mlx5_0", "eth1", "eth0", "veth"]);
        assert_eq!(fabric.classes["tcp-10000"].gbs, 1.25);
        assert_eq!(fabric.paths[0].transport, "rdma");
        assert_eq!(FabricTopology::parse(&fabric.text()), Ok(fabric), "what is written is read");
    }
}
