//! Measures other libraries beside ours. There are two kinds.
//!
//! **Beside our ranks**: a [`PeerLibrary`] is the source of a small program (`peers/`, over the common `peer.h`), how
//! to compile it against what is installed, and how to start it on that many ranks so that its data takes the transport
//! that was asked for. `mpi`, `gloo` and `oneccl` are the libraries there are. A program is started once and then
//! measures one size after the other (`session`); its ranks sleep in between, so that they take no time from the
//! library that is measured next.
//!
//! **Inside our ranks**: a library that is opened by the same processes and uses the same device ([`InsideLibrary`]):
//! `nccl`. Its calls are cases of the same job as ours.
//!
//! Whatever cannot be had is reported in words: a library that is not installed, a program that does not
//! compile, a collective that a library lacks, ranks that crash or hang. None of it ends a bench.

mod error;
mod folder;
mod gloo;
mod mpi;
pub(crate) mod nccl;
mod oneccl;
mod session;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use roundelay::choose::NVLINK;
use roundelay::variables;
use serde::{Deserialize, Serialize};

use crate::args::PeerName;
pub(crate) use error::{InstallRemedy, PeerError};
use folder::PrivateFolder;
use session::PeerSession;
pub(crate) use session::SessionAnswer;

/// The environment variable that names the folder of Python's virtual environments.
pub(crate) const FOLDER: &str = "ROUNDELAY_PEERS";

/// The header that all programs include.
const HEADER: (&str, &str) = ("peer.h", include_str!("../../peers/peer.h"));

/// A library that is opened by our ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum InsideLibrary {
    /// NCCL with the buffers that ours have.
    Nccl,
    /// NCCL with buffers that are symmetric windows.
    NcclSym,
}

impl InsideLibrary {
    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            InsideLibrary::Nccl => "nccl",
            InsideLibrary::NcclSym => "nccl-sym",
        }
    }

    /// Returns the variables for the environment of ranks that open a library, without those that are set already.
    pub(crate) fn variables() -> Vec<(&'static str, &'static str)> {
        let (name, value) = nccl::MULTICAST;
        (!variables::is_set(name)).then_some((name, value)).into_iter().collect()
    }
}

/// A library that may be installed.
pub(crate) trait PeerLibrary {
    /// Returns its name in results.
    fn name(&self) -> &'static str;

    /// Returns the transport of its data, where that one is asked for.
    fn transport(&self, asked: &'static str) -> &'static str;

    /// Returns the name and the text of its program.
    fn source(&self) -> (&'static str, &'static str);

    /// Returns the command that compiles the program.
    fn compiler(&self, source: &Path, program: &Path) -> Result<Command, PeerError>;

    /// Says how to get the library, where its headers or its libraries are not found.
    fn remedy(&self) -> InstallRemedy;

    /// Returns the commands that start the program: one launcher, or a process for each rank.
    fn start(&self, setting: &PeerSetting<'_>) -> Vec<Command>;
}

/// The setting in which a program is started.
pub(crate) struct PeerSetting<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// The socket on which its ranks report.
    pub(crate) socket: &'a Path,
    /// An empty folder, for ranks to find each other.
    pub(crate) store: &'a Path,
    /// Number of ranks.
    pub(crate) ranks: u64,
    /// More ranks than cores.
    pub(crate) crowded: bool,
    /// The transport of the data.
    pub(crate) transport: &'a str,
}

/// One size to be measured.
#[derive(Debug, Clone)]
pub(crate) struct PeerOrder {
    /// The collective.
    pub(crate) collective: String,
    /// Type of the elements.
    pub(crate) dtype: &'static str,
    /// Operator.
    pub(crate) op: &'static str,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// Root; if there is none, it turns with every call.
    pub(crate) root: Option<u32>,
    /// True if calls are in place.
    pub(crate) in_place: bool,
    /// Calls before timing.
    pub(crate) warmup: u32,
    /// Timed calls, if it was said.
    pub(crate) iters: Option<u32>,
    /// Seconds for the timed calls, if it was not said how many.
    pub(crate) budget: f64,
    /// Calls that are checked before.
    pub(crate) checks: u64,
    /// Number of ranks.
    pub(crate) ranks: u64,
}

impl PeerOrder {
    /// Returns the order as the line that `peer.h` reads.
    fn line(&self) -> String {
        let root = self.root.map_or(-1, i64::from);
        format!(
            "run {} {} {} {} {root} {} {} {} {} {}\n",
            self.collective,
            self.dtype,
            self.op,
            self.count,
            u8::from(self.in_place),
            self.warmup,
            self.iters.unwrap_or(0),
            self.budget,
            self.checks
        )
    }

    /// Returns a time that is longer than any library takes that is not stuck. Where ranks share cores, some
    /// never yield and need the scheduler's ticks for every message: they get less, so that a bench ends.
    fn timeout(&self, crowded: bool) -> Duration {
        let base = if crowded { 10.0 } else { 60.0 };
        let calls = if self.iters.is_some() { 240.0 } else { 0.0 };
        Duration::from_secs_f64(base + calls + 15.0 * self.budget.min(1e4))
    }
}

/// A peer that was compiled.
pub(crate) struct ReadyPeer {
    library: Box<dyn PeerLibrary>,
    program: PathBuf,
    folder: PathBuf,
    asked: &'static str,
    /// Its running ranks, and how many.
    session: Option<(u64, PeerSession)>,
    /// Number of times that it was started.
    starts: u32,
}

impl ReadyPeer {
    /// Returns its name.
    pub(crate) fn name(&self) -> &'static str {
        self.library.name()
    }

    /// Returns the transport of its data.
    pub(crate) fn transport(&self) -> &'static str {
        self.library.transport(self.asked)
    }

    /// Starts its ranks if they do not run already; if so, says which version they are of.
    pub(crate) fn version(&mut self, ranks: u64) -> Result<Option<String>, PeerError> {
        let before = self.starts;
        let version = self.session(ranks)?.version.clone();
        Ok((self.starts > before).then_some(version))
    }

    /// Measures one size.
    pub(crate) fn measure(&mut self, order: &PeerOrder) -> SessionAnswer {
        let timeout = order.timeout(crowded(order.ranks));
        let asked = self.session(order.ranks).and_then(|s| s.ask(&order.line(), timeout));
        match asked {
            Ok(answer) => answer,
            Err(why) => {
                // Its ranks are in no known state: the next order starts others.
                self.session = None;
                SessionAnswer::Broken(why.to_string())
            }
        }
    }

    fn session(&mut self, ranks: u64) -> Result<&mut PeerSession, PeerError> {
        if self.session.as_ref().is_some_and(|(n, _)| *n != ranks) {
            self.session = None;
        }
        let (_, session) = match self.session.take() {
            Some(session) => self.session.insert(session),
            None => {
                let session = self.start(ranks)?;
                self.session.insert((ranks, session))
            }
        };
        Ok(session)
    }

    fn start(&mut self, ranks: u64) -> Result<PeerSession, PeerError> {
        self.starts += 1;
        let place = self.folder.join(format!("{}-{}", self.name(), self.starts));
        let (socket, store) = (place.join("socket"), place.join("store"));
        std::fs::create_dir_all(&store).map_err(PeerError::at(&store))?;
        let setting = PeerSetting {
            program: &self.program,
            socket: &socket,
            store: &store,
            ranks,
            crowded: crowded(ranks),
            transport: self.transport(),
        };
        PeerSession::start(self.library.start(&setting), ranks, &place)
    }
}

/// The peers that were asked for, and a folder that lives as long as they are needed.
pub(crate) struct RequestedPeers {
    /// The peers that can be run.
    pub(crate) ready: Vec<ReadyPeer>,
    /// The peers that our ranks open.
    pub(crate) inside: Vec<InsideLibrary>,
    /// The others, with the reason.
    pub(crate) missing: Vec<String>,
    /// Dropped after the peers, which use it.
    _folder: Option<PrivateFolder>,
}

impl RequestedPeers {
    /// Compiles the program for each peer; `announce` is called with the name of each.
    pub(crate) fn new(
        wanted: &[PeerName],
        transport: &'static str,
        mut announce: impl FnMut(&str),
    ) -> RequestedPeers {
        let mut peers = RequestedPeers {
            ready: Vec::new(),
            inside: Vec::new(),
            missing: Vec::new(),
            _folder: None,
        };
        if transport == NVLINK {
            peers.inside = inside(wanted);
            return peers;
        }
        let mut libraries = libraries(wanted);
        if libraries.is_empty() {
            return peers;
        }
        let folder = match PrivateFolder::new() {
            Ok(folder) => folder,
            Err(why) => {
                peers.missing.extend(libraries.iter().map(|l| format!("{}: {why}", l.name())));
                return peers;
            }
        };
        for library in libraries.drain(..) {
            announce(library.name());
            match compile(&*library, folder.path()) {
                Ok(program) => peers.ready.push(ReadyPeer {
                    library,
                    program,
                    folder: folder.path().to_owned(),
                    asked: transport,
                    session: None,
                    starts: 0,
                }),
                Err(why) => peers.missing.push(format!("{}: {why}", library.name())),
            }
        }
        peers._folder = Some(folder);
        peers
    }
}

/// Returns the libraries that are meant, in the order in which they are shown.
fn libraries(wanted: &[PeerName]) -> Vec<Box<dyn PeerLibrary>> {
    let has = |peer| wanted.contains(&PeerName::All) || wanted.contains(&peer);
    let mut all: Vec<Box<dyn PeerLibrary>> = Vec::new();
    for mpi in &mpi::MPIS {
        if has(mpi.which) || has(PeerName::Mpi) {
            all.push(Box::new(mpi));
        }
    }
    if has(PeerName::Oneccl) {
        all.push(Box::new(oneccl::OneCcl));
    }
    if has(PeerName::Gloo) {
        all.push(Box::new(gloo::GlooPeer));
    }
    all
}

/// Returns the wanted libraries inside our ranks, each in its variants.
fn inside(wanted: &[PeerName]) -> Vec<InsideLibrary> {
    match wanted.iter().any(|peer| matches!(peer, PeerName::All | PeerName::Nccl)) {
        true => vec![InsideLibrary::Nccl, InsideLibrary::NcclSym],
        false => Vec::new(),
    }
}

fn compile(library: &dyn PeerLibrary, folder: &Path) -> Result<PathBuf, PeerError> {
    let (name, text) = library.source();
    let (source, program) = (folder.join(name), folder.join(library.name()));
    for (path, text) in [(folder.join(HEADER.0), HEADER.1), (source.clone(), text)] {
        std::fs::write(&path, text).map_err(PeerError::at(&path))?;
    }
    let mut command = library.compiler(&source, &program)?;
    let tool = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Err(error) => Err(PeerError::At { what: tool, error }),
        Ok(out) if !out.status.success() => {
            let said = String::from_utf8_lossy(&out.stderr);
            Err(missing(&said, library.remedy()).unwrap_or_else(|| {
                let said = session::cause(&said).to_owned();
                PeerError::Compiler { tool, said }
            }))
        }
        Ok(_) => Ok(program),
    }
}

/// Returns what a compiler did not find, and how to get it.
fn missing(said: &str, remedy: InstallRemedy) -> Option<PeerError> {
    let after = |line: &str, mark: &str| Some(line.split_once(mark)?.1.to_owned());
    let header = said.lines().find_map(|line| {
        let after = after(line, "fatal error: ")?;
        Some(after.split_once(": No such file")?.0.to_owned())
    });
    if let Some(header) = header {
        let own = header.contains('/') && !header.starts_with("sys/") || header == "mpi.h";
        let remedy = match (own, header.ends_with(".h")) {
            (true, _) => remedy,
            (_, true) => InstallRemedy::debian("libc6-dev"),
            (_, false) => InstallRemedy::debian("g++"),
        };
        return Some(PeerError::Missing { kind: "header", name: header, remedy });
    }
    let library = said.lines().find_map(|line| after(line, "cannot find -l"))?;
    let library = library.split([':', ' ']).find(|word| !word.is_empty())?;
    Some(PeerError::Missing { kind: "library", name: library.into(), remedy })
}

/// Returns true if there are more ranks than cores.
fn crowded(ranks: u64) -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| ranks > cores.get() as u64)
}

/// Returns the folder of Python's virtual environments, and one environment in it.
fn environment(name: &str, package: &str) -> Result<PathBuf, InstallRemedy> {
    let Some(folder) = variables::path(FOLDER) else {
        return Err(InstallRemedy(format!(
            "`python3 -m venv DIR/{name} && DIR/{name}/bin/pip install {package}`, then set {FOLDER} to DIR"
        )));
    };
    let folder = folder.join(name);
    match folder.join("lib").is_dir() {
        true => Ok(folder),
        false => {
            let at = folder.display();
            Err(InstallRemedy(format!("`python3 -m venv {at} && {at}/bin/pip install {package}`")))
        }
    }
}

/// Returns true if a program is found in a folder of `PATH`.
fn installed(program: &str) -> bool {
    let paths = variables::raw("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}
