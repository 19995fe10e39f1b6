//! Lists the devices of this host that the system reports.

use std::path::Path;

use super::{FabricDevice, FabricError, NetworkPath, RDMA, TCP};

/// The folder in which the system lists them.
pub const SYS: &str = "/sys/class";
const NET: &str = "net";
const INFINIBAND: &str = "infiniband";

/// Returns the network interfaces and RDMA devices that are up, below a folder such as [`SYS`].
pub fn devices(sys: &Path) -> Vec<FabricDevice> {
    let mut devices = interfaces(&sys.join(NET));
    devices.extend(rdma(&sys.join(INFINIBAND)));
    devices
}

/// Returns the names of all RDMA devices of this host.
pub fn rdma_names() -> Vec<String> {
    entries(&Path::new(SYS).join(INFINIBAND))
}

/// Returns the paths of names that no topology file explains: a name is an RDMA device's of this host, or
/// else an interface's, an address or a network, or nothing, as will be found where it is listened at.
///
/// # Errors
///
/// [`FabricError::Ambiguous`].
pub fn named_paths(names: &[String]) -> Result<Vec<NetworkPath>, FabricError> {
    named(names, &entries(&Path::new(SYS).join(NET)), &rdma_names())
}

fn named(
    names: &[String],
    interfaces: &[String],
    devices: &[String],
) -> Result<Vec<NetworkPath>, FabricError> {
    let way = |name: &String| {
        let transport = match (interfaces.contains(name), devices.contains(name)) {
            (true, true) => return Err(FabricError::Ambiguous(name.clone())),
            (false, true) => RDMA,
            (_, false) => TCP,
        };
        let (name, transport) = (name.clone(), transport.to_owned());
        Ok(NetworkPath { name, transport, class: String::new(), devices: Default::default() })
    };
    names.iter().map(way).collect()
}

/// Returns the rate of the first port of a device, in Mbit/s; 0 if the system does not report it.
pub fn mbit(device: &str) -> u32 {
    let port = Path::new(SYS).join(INFINIBAND).join(device).join("ports/1");
    rate(&port).map_or(0, |gbit| (gbit * 1000.0) as u32)
}

/// The reason for which a device moves nothing, as the system reports it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFault {
    /// There is no such device any more.
    #[error("the device is gone")]
    Gone,
    /// Its port is in a state in which it does not work.
    #[error("its port is {0} on this host")]
    Port(String),
}

/// Returns the fault of a device's first port, if it has one.
pub fn fault(device: &str) -> Option<DeviceFault> {
    let state = read(&Path::new(SYS).join(INFINIBAND).join(device).join("ports/1/state"));
    let Some(state) = state else { return Some(DeviceFault::Gone) };
    // "4: ACTIVE"
    let word = state.rsplit(' ').next().unwrap_or_default();
    (word != "ACTIVE").then(|| DeviceFault::Port(word.to_owned()))
}

/// Returns the network interfaces that are up and lead somewhere.
fn interfaces(net: &Path) -> Vec<FabricDevice> {
    let up = |name: &String| {
        let says = |file: &str| read(&net.join(name).join(file));
        let state = says("operstate").unwrap_or_default();
        let loopback = says("type").is_some_and(|kind| kind == "772");
        !loopback && (state == "up" || state == "unknown")
    };
    let device = |name: String| {
        let speed = read(&net.join(&name).join("speed")).and_then(|mbit| mbit.parse::<f64>().ok());
        let gbs = speed.filter(|&mbit| mbit > 0.0 && mbit < 1e9).map(|mbit| mbit / 8000.0);
        FabricDevice { name, kind: TCP.into(), gbs }
    };
    entries(net).into_iter().filter(up).map(device).collect()
}

/// Returns the RDMA devices with an active port.
fn rdma(folder: &Path) -> Vec<FabricDevice> {
    let device = |name: String| {
        let ports = folder.join(&name).join("ports");
        let port = entries(&ports)
            .into_iter()
            .map(|port| ports.join(port))
            .find(|port| read(&port.join("state")).is_some_and(|state| state.contains("ACTIVE")))?;
        let gbs = rate(&port).map(|gbit| gbit / 8.0);
        Some(FabricDevice { name, kind: RDMA.into(), gbs })
    };
    entries(folder).into_iter().filter_map(device).collect()
}

/// Returns the Gbit/s of a port: "100 Gb/sec (4X EDR)" is its width times the speed of a lane.
fn rate(port: &Path) -> Option<f64> {
    let text = read(&port.join("rate"))?;
    text.split_whitespace().next()?.parse().ok().filter(|&gbit: &f64| gbit > 0.0)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// Names in a folder, in order; none if there is no such folder.
fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_devices_or_an_interfaces() {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let (interfaces, devices) = (list(&["eth0", "odd"]), list(&["mlx5_0", "odd"]));
        let names = list(&["mlx5_0", "eth0", "10.0.0.0/8", "nothing"]);
        let named_paths = named(&names, &interfaces, &devices).expect("paths");
        let transports: Vec<&str> = named_paths.iter().map(|way| way.transport.as_str()).collect();
        assert_eq!(transports, [RDMA, TCP, TCP, TCP]);
        let error = named(&list(&["odd"]), &interfaces, &devices).expect_err("both");
        let error = error.to_string();
        assert!(error.contains("`odd` is a network interface"), "{error}");
    }
}
