//! Makes hosts that are network namespaces, joined by a switch for each path. Needs root and `ip`; where
//! these are not, tests say so and end.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Emulated hosts; they vanish with this.
pub(crate) struct Lab {
    name: String,
    hosts: u32,
}

/// Runs a command; says whether it went well.
fn done(program: &str, args: &str) -> bool {
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Lab {
    /// Makes `hosts` hosts, and a path of each of these rates, in Mbit/s; 0 is without a limit. Host k has
    /// address 10.79.P.(k + 1) on interface `railP`. Returns `None`, and reports a skip, if namespaces cannot
    /// be made here.
    pub(crate) fn new(hosts: u32, rates: &[u32]) -> Option<Lab> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let lab = Lab { name: format!("rl{}x{number}", std::process::id()), hosts };
        if !lab.make(rates) {
            let why = format!("network namespaces cannot be made here: {}", lab.name);
            roundelay_tests::skip(roundelay_tests::CheckNeeds::Namespaces, why);
            return None;
        }
        Some(lab)
    }

    fn make(&self, rates: &[u32]) -> bool {
        let (name, switch) = (&self.name, format!("{}s", self.name));
        let mut well = done("ip", &format!("netns add {switch}"));
        for host in 0..self.hosts {
            well = well && done("ip", &format!("netns add {name}h{host}"));
            well = well && done("ip", &format!("-n {name}h{host} link set lo up"));
        }
        for (path, &rate) in rates.iter().enumerate() {
            well = well && done("ip", &format!("-n {switch} link add br{path} type bridge"));
            well = well && done("ip", &format!("-n {switch} link set br{path} up"));
            for host in 0..self.hosts {
                let at = format!("{name}h{host}");
                well = well && [
                    format!(
                        "link add rail{path} netns {at} type veth peer name p{host}.{path} netns \
                             {switch}"
                    ),
                    format!("-n {switch} link set p{host}.{path} master br{path} up"),
                    format!("-n {at} addr add 10.79.{path}.{}/24 dev rail{path}", host + 1),
                    format!("-n {at} link set rail{path} up"),
                ]
                .iter()
                .all(|args| done("ip", args));
                well = well && (rate == 0 || self.limit(host, path as u32, rate));
            }
        }
        well
    }

    /// Limits a host's cable on a path, both ways.
    pub(crate) fn limit(&self, host: u32, path: u32, rate: u32) -> bool {
        let (name, burst) = (&self.name, (rate * 125).max(131_072));
        let ends = [
            (format!("{name}h{host}"), format!("rail{path}")),
            (format!("{name}s"), format!("p{host}.{path}")),
        ];
        ends.iter().all(|(space, device)| {
            let limit = format!("root tbf rate {rate}mbit burst {burst} latency 50ms");
            done("ip", &format!("netns exec {space} tc qdisc replace dev {device} {limit}"))
        })
    }

    /// Cuts a host's cable on a path without a notice to either end: what is sent is dropped on the way.
    pub(crate) fn drop_silently(&self, host: u32, path: u32) {
        let what = format!("-n {}s link set p{host}.{path} nomaster", self.name);
        assert!(done("ip", &what), "{what}");
    }

    /// Mends it.
    pub(crate) fn mend(&self, host: u32, path: u32) {
        let what = format!("-n {}s link set p{host}.{path} master br{path} up", self.name);
        assert!(done("ip", &what), "{what}");
    }

    /// Takes a host's interface down or up.
    pub(crate) fn set_link(&self, host: u32, path: u32, state: &str) {
        let what = format!("-n {}h{host} link set rail{path} {state}", self.name);
        assert!(done("ip", &what), "{what}");
    }

    /// Returns a command on a host.
    pub(crate) fn on(&self, host: u32, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}h{host}", self.name)]).arg(program);
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            done("ip", &format!("netns del {}h{host}", self.name));
        }
        done("ip", &format!("netns del {}s", self.name));
    }
}
