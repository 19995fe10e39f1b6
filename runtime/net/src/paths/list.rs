//! Lists the paths, and what each is on this host.

use std::path::Path;
use std::sync::Arc;

use roundelay_compiler::cost::{LinkCost, PathCost};

use super::options::{PathMedium, PathOptions, TopologyFile};
use crate::transport::TransportSet;
use crate::transport::rdma::{self, DeviceChoice};
use roundelay_support::digest::mix;
use roundelay_support::error::Error;
use roundelay_support::fabric::{FabricTopology, RDMA, system};

/// Settles which paths there are and what each is on this host: those of the topology file that the options
/// name, or of these those that were named; without a file names are of interfaces and RDMA devices.
///
/// # Errors
///
/// [`Error::System`] if the file cannot be read; [`Error::Settings`] if it is wrong, or a path is none;
/// [`Error::Start`] if a path is a device that cannot be had here.
pub fn settle(
    options: &mut PathOptions,
    transports: TransportSet,
    gid: Option<u32>,
) -> Result<(), Error> {
    if let Some(file) = &options.topology {
        let fabric = FabricTopology::load(Path::new(file))?;
        if options.paths.is_empty() {
            options.paths = fabric.paths.iter().map(|path| path.name.clone()).collect();
        }
        let digest = fabric.text().bytes().fold(1, |digest, byte| mix(digest, byte.into()));
        options.topology_file = Some(Arc::new(TopologyFile { fabric, digest }));
    }
    let named_paths = match &options.topology_file {
        Some(file) => file.fabric.named_paths(&options.paths),
        None => system::named_paths(&options.paths),
    };
    let host = host_name(options);
    let mut media: Vec<PathMedium> = Vec::new();
    for way in named_paths? {
        let name = &way.name;
        let place = way.devices.get(&host).unwrap_or(name).clone();
        let medium = match way.transport == RDMA {
            true => PathMedium::Device(DeviceChoice { devices: vec![place], gid }),
            false => PathMedium::Interface(place),
        };
        media.push(medium);
    }
    options.media = media;
    allowed(options, transports)?;
    devices(options)
}

/// Checks that devices are there, and each of them is one path.
fn devices(options: &PathOptions) -> Result<(), Error> {
    let media = || options.paths.iter().zip(&options.media);
    for (at, (name, medium)) in media().enumerate() {
        let Some(choice) = medium.device() else { continue };
        rdma::check(choice).map_err(|why| {
            let device = &choice.devices[0];
            Error::Start(format!(
                "path `{name}` is the RDMA device `{device}` here: {why}; without it: name the others with the \
                 hint `paths`"
            ))
        })?;
        if let Some((same, _)) = media().take(at).find(|(_, known)| *known == medium) {
            return Err(Error::Start(format!(
                "the paths `{same}` and `{name}` are one device here: name devices of their own"
            )));
        }
    }
    Ok(())
}

/// Checks that paths are of transports that may be used. One path is none, unless it is a device.
fn allowed(options: &PathOptions, transports: TransportSet) -> Result<(), Error> {
    let several = options.paths.len() > 1;
    for (name, medium) in options.paths.iter().zip(&options.media) {
        let transport = medium.transport();
        let what = match medium {
            _ if transports.contains(transport) => continue,
            PathMedium::Device(_) => "an RDMA device",
            PathMedium::Interface(_) if several => "a network interface",
            PathMedium::Interface(_) => continue,
        };
        let text = format!(
            "path `{name}` is {what}, and the hint `transport` excludes {transport}: leave out one of them"
        );
        return Err(Error::Settings { text, source: None });
    }
    Ok(())
}

/// Returns the transports that carry data between hosts, if there are several paths.
pub(crate) fn carried(media: &[PathMedium]) -> Option<TransportSet> {
    (media.len() > 1).then(|| media.iter().map(PathMedium::transport).collect())
}

/// Returns the name of this host in topology files.
pub fn host_name(options: &PathOptions) -> String {
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    options.host_label.clone().unwrap_or_else(own)
}

/// Returns the costs of the paths: those of the topology file, or else of interfaces and devices; `speeds` are
/// the least of all ranks, in Mbit/s, or 0. Hosts are those of the ranks, in their order.
pub fn costs(
    options: &PathOptions,
    hosts: &[String],
    speeds: &[u32],
) -> Result<Vec<PathCost>, Error> {
    if options.paths.len() < 2 {
        return Ok(Vec::new());
    }
    if let Some(file) = &options.topology_file {
        let mut hosts = hosts.to_vec();
        hosts.sort();
        hosts.dedup();
        return Ok(file.fabric.costs(Some(&options.paths), &hosts)?);
    }
    let known = speeds.iter().all(|&speed| speed > 0 && speed < u32::MAX);
    let cost = |((name, medium), &speed): ((&String, &PathMedium), &u32)| {
        // Nine tenths and a half of a link are content.
        let gbs = if known { f64::from(speed) / 8000.0 * 0.95 } else { LinkCost::NETWORK.gbs };
        let link = if medium.device().is_some() { LinkCost::DEVICE } else { LinkCost::NETWORK };
        PathCost { name: name.clone(), link: LinkCost { gbs, ..link } }
    };
    Ok(options.paths.iter().zip(&options.media).zip(speeds).map(cost).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(paths: &[&str]) -> PathOptions {
        PathOptions {
            paths: paths.iter().map(|path| path.to_string()).collect(),
            ..PathOptions::default()
        }
    }

    fn text(result: Result<(), Error>) -> String {
        result.expect_err("refused").to_string()
    }

    #[test]
    fn a_path_is_what_the_file_says_it_is_on_this_host() {
        let file =
            std::env::temp_dir().join(format!("roundelay-paths-{}.toml", std::process::id()));
        let lines = r#"
            version = 1
            classes.any = { latency_us = 1, gbs = 1 }
            paths = [
                { name = "slow", transport = "tcp", class = "any", devices = { here = "127.0.0.1" } },
                { name = "other", transport = "tcp", class = "any" },
                { name = "fast", transport = "rdma", class = "any", devices = { here = "nowhere9" } },
            ]
        "#;
        std::fs::write(&file, lines).expect("a file");
        let given = |paths: &[&str]| PathOptions {
            topology: Some(file.display().to_string()),
            host_label: Some("here".into()),
            ..options(paths)
        };
        let mut two = given(&["other", "slow"]);
        settle(&mut two, TransportSet::default(), None).expect("settled");
        let media = ["other", "127.0.0.1"].map(|name| PathMedium::Interface(name.into()));
        assert_eq!(two.media, media);
        assert_eq!(carried(&two.media), Some(TransportSet::TCP));
        let all = text(settle(&mut given(&[]), TransportSet::default(), None));
        assert!(all.contains("path `fast` is the RDMA device `nowhere9` here: "), "{all}");
        let none = text(settle(&mut given(&["slow", "fest"]), TransportSet::default(), None));
        assert!(none.contains("no path `fest`; did you mean `fast`?"), "{none}");
        std::fs::remove_file(&file).expect("the file goes");
    }

    #[test]
    fn paths_must_be_of_transports_that_may_be_used() {
        let device = |name: &str| {
            PathMedium::Device(DeviceChoice {
                devices: vec![name.into()],
                ..DeviceChoice::default()
            })
        };
        let interface = |name: &str| PathMedium::Interface(name.into());
        let said = |media: &[PathMedium], transports| {
            let mut options = options(&["a", "b"][..media.len()]);
            options.media = media.to_vec();
            allowed(&options, transports).err().map(|e| e.to_string())
        };
        let (no_rdma, no_tcp) = (TransportSet::TCP, TransportSet::RDMA);
        let mixed = [interface("eth0"), device("mlx5_0")];
        assert_eq!(said(&mixed, TransportSet::default()), None);
        let without = said(&mixed, no_rdma).expect("refused");
        assert!(without.contains("path `b` is an RDMA device") && without.contains("rdma"));
        let without = said(&mixed, no_tcp).expect("refused");
        assert!(without.contains("path `a` is a network interface") && without.contains("tcp"));
        assert_eq!(said(&mixed[..1], no_tcp), None, "one interface is where ranks listen");
        assert!(said(&mixed[1..], no_rdma).is_some());
        let kinds = [&mixed[..], &[device("a"), device("b")], &mixed[1..]].map(carried);
        assert_eq!(
            kinds,
            [Some(TransportSet::TCP.or(TransportSet::RDMA)), Some(TransportSet::RDMA), None]
        );
    }
}
