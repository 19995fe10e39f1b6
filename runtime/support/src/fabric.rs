//! Topology files: the paths between hosts, what they are on each host, and what they can do.
//!
//! ```
//! let fabric = roundelay_support::fabric::FabricTopology::parse(r#"
//! version = 1
//!
//! [classes.backbone]        # what links of a kind can do
//! latency_us = 30
//! gbs = 0.5
//!
//! [[hosts]]
//! name = "a"
//! [[hosts.devices]]
//! name = "eth0"
//! kind = "tcp"              # tcp, rdma or gpu
//! gbs = 0.5
//! [[hosts]]
//! name = "b"
//! [[hosts.devices]]
//! name = "enp1s0"
//! kind = "tcp"
//! gbs = 0.5
//!
//! [[paths]]                 # the best first: what rides no path in particular rides the first
//! name = "eth0"
//! transport = "tcp"         # tcp (a network interface) or rdma (an RDMA device)
//! class = "backbone"
//! devices = { b = "enp1s0" } # what it is called on hosts where that is not its name
//!
//! [[links]]                 # where a path is of another class between two hosts
//! path = "eth0"
//! between = ["a", "b"]
//! class = "backbone"
//! "#).expect("a topology");
//! assert_eq!(fabric.device("eth0", "b"), Some("enp1s0"));
//! ```
//!
//! `roundelay info --topology` writes one of what a machine has, `roundelay tune --links` one with what was
//! measured.

pub mod system;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use roundelay_compiler::cost::{self, PathCost};
use roundelay_compiler::plan::MAX_PATHS;
use roundelay_dsl::diag::{codes, similar};
use serde::Deserialize;
use toml::Spanned;

use crate::error::{Error, ErrorSource};

/// The version of the format.
pub const VERSION: u32 = 1;
/// The transports of paths: network interfaces, and RDMA devices.
pub const TCP: &str = "tcp";
/// See [`TCP`].
pub const RDMA: &str = "rdma";

/// The contents of a topology file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FabricTopology {
    /// The latency and bandwidth of links, by the name of their class.
    pub classes: BTreeMap<String, LinkClass>,
    /// Hosts, as far as they are known.
    pub hosts: Vec<FabricHost>,
    /// The paths between hosts, the best first.
    pub paths: Vec<NetworkPath>,
    /// The pairs of hosts between which a path is of another class than its own.
    pub links: Vec<HostPair>,
}

/// A fault of a topology file, or of names of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The text of a file is wrong.
    #[error("line {line}, column {column}: {why}")]
    File {
        /// The line of the fault, from 1.
        line: usize,
        /// The column of the fault, from 1.
        column: usize,
        /// The fault.
        why: String,
    },
    /// No path has that name.
    #[error("the topology file has no path `{name}`; {near}")]
    NoPath {
        /// The name.
        name: String,
        /// The nearest name, or all of them, in words.
        near: String,
    },
    /// A network interface and an RDMA device have the same name.
    #[error(
        "`{0}` is a network interface of this host and an RDMA device too: a topology file says which of them a \
         path is (the hint `topology`)"
    )]
    Ambiguous(String),
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Self {
        Error::Settings { text: error.to_string(), source: Some(ErrorSource::new(error)) }
    }
}

/// The latency and bandwidth of a class of links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkClass {
    /// The time from one rank's call to another's use of a message without content, in microseconds.
    pub latency_us: f64,
    /// Bandwidth in each direction, in GB/s.
    pub gbs: f64,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FabricHost {
    /// Its name.
    pub name: String,
    /// The devices with which it reaches others, and its GPUs.
    pub devices: Vec<FabricDevice>,
}

/// A network interface, an RDMA device or a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct FabricDevice {
    /// The name that the system gives it.
    pub name: String,
    /// `tcp`, `rdma` or `gpu`.
    pub kind: String,
    /// Its bandwidth in GB/s, if that is given.
    pub gbs: Option<f64>,
}

/// A path between hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPath {
    /// Its name.
    pub name: String,
    /// `tcp` or `rdma`.
    pub transport: String,
    /// The class of its links.
    pub class: String,
    /// Interface or device on hosts where that is not the path's name.
    pub devices: BTreeMap<String, String>,
}

/// A path between two hosts that is not of its usual class.
#[derive(Debug, Clone, PartialEq)]
pub struct HostPair {
    /// The path.
    pub path: String,
    /// The hosts, in either order.
    pub between: [String; 2],
    /// The class of the path between these hosts.
    pub class: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricFile {
    version: Spanned<u32>,
    #[serde(default)]
    classes: BTreeMap<String, Spanned<FileClass>>,
    #[serde(default)]
    hosts: Vec<FileHost>,
    #[serde(default)]
    paths: Vec<FilePath>,
    #[serde(default)]
    links: Vec<FileLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileClass {
    latency_us: f64,
    gbs: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHost {
    name: Spanned<String>,
    #[serde(default)]
    devices: Vec<FileDevice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDevice {
    name: String,
    kind: Spanned<String>,
    gbs: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePath {
    name: Spanned<String>,
    transport: Spanned<String>,
    class: Spanned<String>,
    #[serde(default)]
    devices: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    path: Spanned<String>,
    between: [Spanned<String>; 2],
    class: Spanned<String>,
}

impl FabricTopology {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if it cannot be read; [`Error::Settings`] with path, line and column if it is wrong.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            let text = format!("the topology file {shown} cannot be read: {e}");
            Error::System { code: codes::FILE, text, source: ErrorSource::new(e) }
        })?;
        Self::parse(&text).map_err(|why| Error::Settings {
            text: format!("the topology file {shown} is wrong: {why}"),
            source: Some(ErrorSource::new(why)),
        })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// [`FabricError::File`].
    pub fn parse(text: &str) -> Result<Self, FabricError> {
        let reader = FileReader { text };
        let file: FabricFile = toml::from_str(text).map_err(|e| {
            let (line, column) = place(text, e.span().map_or(0, |span| span.start));
            FabricError::File { line, column, why: e.message().into() }
        })?;
        if *file.version.get_ref() != VERSION {
            let what = format!("version {}, and this is for {VERSION}", file.version.get_ref());
            return Err(reader.at(&file.version, what));
        }
        let mut fabric = FabricTopology::default();
        for (name, class) in file.classes {
            let FileClass { latency_us, gbs } = *class.get_ref();
            if !(latency_us.is_finite() && latency_us >= 0.0 && gbs.is_finite() && gbs > 0.0) {
                let what = format!(
                    "class `{name}` has no time or no bandwidth: latency_us is 0 or more, gbs more than 0"
                );
                return Err(reader.at(&class, what));
            }
            fabric.classes.insert(name, LinkClass { latency_us, gbs });
        }
        for host in file.hosts {
            reader.host(&mut fabric, host)?;
        }
        for path in file.paths {
            reader.path(&mut fabric, path)?;
        }
        for link in file.links {
            reader.link(&mut fabric, link)?;
        }
        Ok(fabric)
    }

    /// Returns the path of that name.
    pub fn path(&self, name: &str) -> Option<&NetworkPath> {
        self.paths.iter().find(|path| path.name == name)
    }

    /// Returns the paths of these names.
    ///
    /// # Errors
    ///
    /// [`FabricError::NoPath`].
    pub fn named_paths(&self, names: &[String]) -> Result<Vec<NetworkPath>, FabricError> {
        names.iter().map(|name| self.known(name).cloned()).collect()
    }

    fn known(&self, name: &str) -> Result<&NetworkPath, FabricError> {
        let unknown = || FabricError::NoPath { name: name.into(), near: self.near(name) };
        self.path(name).ok_or_else(unknown)
    }

    /// Returns the interface or device that a path is on a host; `None` if there is no such path.
    pub fn device(&self, path: &str, host: &str) -> Option<&str> {
        let path = self.path(path)?;
        Some(path.devices.get(host).unwrap_or(&path.name))
    }

    /// Returns the class of a path between two hosts.
    pub fn between(&self, path: &str, one: &str, other: &str) -> Option<LinkClass> {
        let same = |link: &&HostPair| {
            let [a, b] = &link.between;
            link.path == path && ((a == one && b == other) || (a == other && b == one))
        };
        let class = match self.links.iter().find(same) {
            Some(link) => &link.class,
            None => &self.path(path)?.class,
        };
        self.classes.get(class).copied()
    }

    /// Returns the paths of these names, or all, as the cost model sees them among these hosts: the slowest
    /// class between any two counts. Where no hosts are named, the paths' own classes count.
    ///
    /// # Errors
    ///
    /// [`FabricError::NoPath`].
    pub fn costs(
        &self,
        names: Option<&[String]>,
        hosts: &[String],
    ) -> Result<Vec<PathCost>, FabricError> {
        let all: Vec<String>;
        let names = match names {
            Some(names) => names,
            None => {
                all = self.paths.iter().map(|path| path.name.clone()).collect();
                &all
            }
        };
        let mut costs = Vec::new();
        for name in names {
            let path = self.known(name)?;
            let mut worst = self.classes.get(&path.class).copied();
            let pairs = (0..hosts.len()).flat_map(|i| (0..i).map(move |k| (i, k)));
            let found: Vec<LinkClass> =
                pairs.filter_map(|(i, k)| self.between(name, &hosts[i], &hosts[k])).collect();
            if !found.is_empty() {
                let latency_us = found.iter().map(|c| c.latency_us).fold(0.0, f64::max);
                let gbs = found.iter().map(|c| c.gbs).fold(f64::INFINITY, f64::min);
                worst = Some(LinkClass { latency_us, gbs });
            }
            let worst = worst.unwrap_or(LinkClass { latency_us: 0.0, gbs: 1.0 });
            costs.push(PathCost { name: name.clone(), link: worst.link() });
        }
        Ok(costs)
    }

    /// Returns the text of the file, which [`FabricTopology::parse`] reads.
    pub fn text(&self) -> String {
        write::text(self)
    }

    fn near(&self, name: &str) -> String {
        near(name, self.paths.iter().map(|path| path.name.as_str()))
    }
}

impl LinkClass {
    /// Returns the link as the cost model has it: a further message of a round costs a rank what it costs
    /// with TCP in general.
    pub fn link(self) -> cost::LinkCost {
        let LinkClass { latency_us, gbs } = self;
        cost::LinkCost {
            latency_us,
            message_us: cost::LinkCost::NETWORK.message_us.min(latency_us),
            gbs,
        }
    }
}

/// Checks the content of a file; an error names its place.
struct FileReader<'t> {
    text: &'t str,
}

impl FileReader<'_> {
    fn at<T>(&self, what: &Spanned<T>, why: String) -> FabricError {
        let (line, column) = place(self.text, what.span().start);
        FabricError::File { line, column, why }
    }

    fn one_of(&self, word: &Spanned<String>, known: &[&str]) -> Result<String, FabricError> {
        match known.contains(&word.get_ref().as_str()) {
            true => Ok(word.get_ref().clone()),
            false => {
                let near = near(word.get_ref(), known.iter().copied());
                Err(self.at(word, format!("`{}` is not known; {near}", word.get_ref())))
            }
        }
    }

    fn class(
        &self,
        fabric: &FabricTopology,
        name: &Spanned<String>,
    ) -> Result<String, FabricError> {
        match fabric.classes.contains_key(name.get_ref()) {
            true => Ok(name.get_ref().clone()),
            false => {
                let near = near(name.get_ref(), fabric.classes.keys().map(String::as_str));
                Err(self.at(name, format!("no class is named `{}`; {near}", name.get_ref())))
            }
        }
    }

    fn host(&self, fabric: &mut FabricTopology, host: FileHost) -> Result<(), FabricError> {
        if fabric.hosts.iter().any(|h| h.name == *host.name.get_ref()) {
            let what = format!("host `{}` stands here a second time", host.name.get_ref());
            return Err(self.at(&host.name, what));
        }
        let mut devices = Vec::new();
        for device in host.devices {
            if let Some(gbs) = device.gbs.as_ref().filter(|gbs| {
                let gbs = *gbs.get_ref();
                !gbs.is_finite() || gbs <= 0.0
            }) {
                return Err(self.at(gbs, format!("{} GB/s is no bandwidth", gbs.get_ref())));
            }
            let gbs = device.gbs.map(Spanned::into_inner);
            let kind = self.one_of(&device.kind, &[TCP, RDMA, "gpu"])?;
            devices.push(FabricDevice { name: device.name, kind, gbs });
        }
        fabric.hosts.push(FabricHost { name: host.name.into_inner(), devices });
        Ok(())
    }

    fn path(&self, fabric: &mut FabricTopology, path: FilePath) -> Result<(), FabricError> {
        if fabric.path(path.name.get_ref()).is_some() {
            let what = format!("path `{}` stands here a second time", path.name.get_ref());
            return Err(self.at(&path.name, what));
        }
        if fabric.paths.len() as u32 >= MAX_PATHS {
            return Err(self.at(&path.name, format!("more than {MAX_PATHS} paths")));
        }
        if let Some(why) = inside(path.transport.get_ref()) {
            return Err(self.at(&path.transport, why));
        }
        let transport = self.one_of(&path.transport, &[TCP, RDMA])?;
        let class = self.class(fabric, &path.class)?;
        let (name, devices) = (path.name.into_inner(), path.devices);
        fabric.paths.push(NetworkPath { name, transport, class, devices });
        Ok(())
    }

    fn link(&self, fabric: &mut FabricTopology, link: FileLink) -> Result<(), FabricError> {
        if fabric.path(link.path.get_ref()).is_none() {
            let near = fabric.near(link.path.get_ref());
            let what = format!("no path is named `{}`; {near}", link.path.get_ref());
            return Err(self.at(&link.path, what));
        }
        for host in &link.between {
            if !fabric.hosts.iter().any(|h| h.name == *host.get_ref()) {
                let near = near(host.get_ref(), fabric.hosts.iter().map(|h| h.name.as_str()));
                return Err(self.at(host, format!("no host is named `{}`; {near}", host.get_ref())));
            }
        }
        let class = self.class(fabric, &link.class)?;
        let between = link.between.map(Spanned::into_inner);
        fabric.links.push(HostPair { path: link.path.into_inner(), between, class });
        Ok(())
    }
}

/// Returns the reason for which a transport that there is makes no path.
fn inside(transport: &str) -> Option<String> {
    let what = match transport {
        "nvlink" => {
            "GPUs of one host reach each other over NVLink inside the kernel that executes a plan (docs/device.md)"
        }
        "shm" => "ranks of one host share memory",
        _ => return None,
    };
    Some(format!(
        "`{transport}` is no path: {what}, whatever the paths, which lead to other hosts: tcp or rdma"
    ))
}

fn near<'c>(name: &str, all: impl Iterator<Item = &'c str> + Clone) -> String {
    match (similar(name, all.clone()), all.clone().count()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, 0) => "there is none".into(),
        (None, _) => format!("there are {}", all.collect::<Vec<_>>().join(", ")),
    }
}

/// Returns line and column of a byte, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests;
