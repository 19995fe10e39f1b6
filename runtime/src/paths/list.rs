//! Which paths there are, and what each is on this host.

use std::path::Path;
use std::sync::Arc;

use roundelay_compiler::cost::{Link, PathCost};

use crate::bind::mix;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::net::Options;

/// A topology file, and what tells it from others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sheet {
    fabric: Fabric,
    pub(crate) digest: u64,
}

/// Reads the topology file that the options name, if they do: the paths that it has, unless some were
/// named, and what each is on this host.
///
/// # Errors
///
/// [`Error::Usage`] if the file cannot be read or is wrong, or has no such path.
pub(crate) fn settle(options: &mut Options) -> Result<(), Error> {
    let Some(file) = &options.topology else { return Ok(()) };
    let fabric = Fabric::load(Path::new(file))?;
    if options.paths.is_empty() {
        options.paths = fabric.paths.iter().map(|path| path.name.clone()).collect();
    }
    let host = host_name(options);
    let mut places = Vec::new();
    for name in &options.paths {
        let (Some(path), Some(place)) = (fabric.path(name), fabric.device(name, &host)) else {
            let known: Vec<&str> = fabric.paths.iter().map(|path| path.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "the topology file {file} has no path `{name}`; there are {}",
                known.join(", ")
            )));
        };
        if path.transport != "tcp" && options.paths.len() > 1 {
            return Err(Error::Usage(format!(
                "path `{name}` of {file} is of transport {}; several paths at once are possible over tcp \
                 only: name those with the hint `paths`",
                path.transport
            )));
        }
        places.push(place.to_owned());
    }
    let words = fabric.text().bytes().fold(1, |digest, byte| mix(digest, byte.into()));
    (options.places, options.sheet) = (places, Some(Arc::new(Sheet { fabric, digest: words })));
    Ok(())
}

/// What this host is called in topology files.
pub(crate) fn host_name(options: &Options) -> String {
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    options.host_label.clone().unwrap_or_else(own)
}

/// What the paths can do: as the topology file says, or else interfaces do; `speeds` are the least that any
/// rank's say, in Mbit/s, or 0. Hosts are those of the ranks, in their order.
pub(crate) fn costs(
    options: &Options,
    hosts: &[String],
    speeds: &[u32],
) -> Result<Vec<PathCost>, Error> {
    if options.paths.len() < 2 {
        return Ok(Vec::new());
    }
    if let Some(sheet) = &options.sheet {
        let mut hosts = hosts.to_vec();
        hosts.sort();
        hosts.dedup();
        return sheet.fabric.costs(Some(&options.paths), &hosts).map_err(Error::Usage);
    }
    let known = speeds.iter().all(|&speed| speed > 0 && speed < u32::MAX);
    let cost = |(name, &speed): (&String, &u32)| {
        // Nine tenths and a half of a link are content.
        let gbs = if known { f64::from(speed) / 8000.0 * 0.95 } else { Link::NETWORK.gbs };
        PathCost { name: name.clone(), link: Link { gbs, ..Link::NETWORK } }
    };
    Ok(options.paths.iter().zip(speeds).map(cost).collect())
}
