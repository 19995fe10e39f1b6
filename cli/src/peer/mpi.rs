//! Builds and starts the MPIs: Open MPI, MPICH and Intel MPI. There is one program for all; each has its own
//! launcher, and its own variables that send the data through shared memory or through TCP, and make waiting
//! ranks yield.

use std::path::{Path, PathBuf};
use std::process::Command;

use roundelay::fabric::TCP;

use super::{Library, PeerError, Remedy, Setting, environment, installed};
use crate::args::Peer;

const SOURCE: (&str, &str) = ("mpi.c", include_str!("../../peers/mpi.c"));

/// An MPI that may be installed.
pub(crate) struct Mpi {
    name: &'static str,
    /// The name by which users ask for it.
    pub(crate) which: Peer,
    from: From,
    kind: MpiKind,
}

/// The origin of an installation.
enum From {
    /// Compiler, launcher and Debian's packages.
    Debian(&'static str, &'static str, &'static str),
    /// Name of a virtual environment, and the package in it.
    Python(&'static str, &'static str),
}

#[derive(Clone, Copy)]
enum MpiKind {
    OpenMpi,
    Mpich,
    Intel,
}

/// All of them.
pub(crate) const MPIS: [Mpi; 5] = [
    Mpi {
        name: "ompi",
        which: Peer::Ompi,
        from: From::Debian("mpicc.openmpi", "mpirun.openmpi", "openmpi-bin libopenmpi-dev"),
        kind: MpiKind::OpenMpi,
    },
    Mpi {
        name: "ompi5",
        which: Peer::Ompi5,
        from: From::Python("openmpi", "openmpi"),
        kind: MpiKind::OpenMpi,
    },
    Mpi {
        name: "mpich",
        which: Peer::Mpich,
        from: From::Debian("mpicc.mpich", "mpiexec.mpich", "mpich libmpich-dev"),
        kind: MpiKind::Mpich,
    },
    Mpi {
        name: "mpich5",
        which: Peer::Mpich5,
        from: From::Python("mpich", "mpich"),
        kind: MpiKind::Mpich,
    },
    Mpi {
        name: "impi",
        which: Peer::Impi,
        from: From::Python("oneccl", "oneccl-devel"),
        kind: MpiKind::Intel,
    },
];

impl Library for &Mpi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn transport(&self, asked: &'static str) -> &'static str {
        asked
    }

    fn source(&self) -> (&'static str, &'static str) {
        SOURCE
    }

    fn compiler(&self, source: &Path, program: &Path) -> Result<Command, PeerError> {
        let compiler = self.tool(Tool::Compiler)?;
        self.tool(Tool::Launcher)?;
        let mut command = Command::new(compiler);
        command.args(["-O3", "-w", "-o"]).arg(program).arg(source);
        Ok(command)
    }

    fn remedy(&self) -> Remedy {
        match self.from {
            From::Debian(_, _, packages) => Remedy::debian(packages),
            From::Python(_, package) => self
                .environment()
                .err()
                .unwrap_or_else(|| Remedy(format!("install {package} again"))),
        }
    }

    fn start(&self, setting: &Setting<'_>) -> Vec<Command> {
        let Ok(launcher) = self.tool(Tool::Launcher) else { return Vec::new() };
        let mut command = Command::new(launcher);
        if let MpiKind::OpenMpi = self.kind {
            command.args(["--bind-to", "none", "--oversubscribe"]);
        }
        command.args(["-n", &setting.ranks.to_string()]).arg(setting.program).arg(setting.socket);
        command.envs(self.variables(setting).iter().copied());
        if let (MpiKind::Intel, Ok(root)) = (self.kind, self.environment()) {
            let lib = root.join("lib");
            command.env("I_MPI_ROOT", root).env("FI_PROVIDER_PATH", &lib);
            command.env("LD_LIBRARY_PATH", lib);
        }
        vec![command]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Tool {
    Compiler,
    Launcher,
}

impl Mpi {
    fn environment(&self) -> Result<PathBuf, Remedy> {
        match self.from {
            From::Debian(..) => Err(Remedy("it has no environment".into())),
            From::Python(name, package) => environment(name, package),
        }
    }

    /// Returns the compiler or the launcher; or how to get them.
    fn tool(&self, tool: Tool) -> Result<PathBuf, PeerError> {
        let missing =
            |what: &str, remedy| Err(PeerError::NotInstalled { what: what.into(), remedy });
        if let From::Debian(compiler, launcher, packages) = self.from {
            let name = if tool == Tool::Compiler { compiler } else { launcher };
            return match installed(name) {
                true => Ok(name.into()),
                false => missing(name, Remedy::debian(packages)),
            };
        }
        let path = match (tool, self.kind) {
            // The two share one ABI, and Intel's compiler is not on PyPI.
            (Tool::Compiler, MpiKind::Intel) => {
                environment("mpich", "mpich").map(|e| e.join("bin/mpicc"))
            }
            (Tool::Compiler, _) => self.environment().map(|e| e.join("bin/mpicc")),
            (Tool::Launcher, MpiKind::OpenMpi) => self.environment().map(|e| e.join("bin/mpirun")),
            (Tool::Launcher, _) => self.environment().map(|e| e.join("bin/mpiexec.hydra")),
        };
        match path {
            Err(remedy) => missing(self.name, remedy),
            Ok(path) if path.is_file() => Ok(path),
            Ok(path) => missing(self.name, Remedy(format!("there is no {}", path.display()))),
        }
    }

    /// Returns the variables that send the data over its transport. Ranks bind themselves, so no launcher does.
    fn variables(&self, setting: &Setting<'_>) -> Vec<(&'static str, &'static str)> {
        let tcp = setting.transport == TCP;
        let mut set = Vec::new();
        match self.kind {
            MpiKind::OpenMpi => {
                // Whoever runs the bench as root, in a container for example, means it.
                set.extend([
                    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
                    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                    ("OMPI_MCA_pml", "ob1"),
                ]);
                if tcp {
                    set.extend([
                        ("OMPI_MCA_btl", "tcp,self"),
                        ("OMPI_MCA_btl_tcp_if_include", "lo"),
                    ]);
                }
                if setting.crowded {
                    set.push(("OMPI_MCA_mpi_yield_when_idle", "1"));
                }
            }
            // It has no way to yield. Debian's goes through UCX, the wheel's through libfabric.
            MpiKind::Mpich if tcp => set.extend([
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("UCX_TLS", "tcp,self"),
                ("UCX_NET_DEVICES", "lo"),
                ("FI_PROVIDER", "tcp"),
                ("FI_TCP_IFACE", "lo"),
            ]),
            MpiKind::Mpich => {}
            MpiKind::Intel => {
                set.push(("I_MPI_PIN", "0"));
                match setting.transport {
                    "shm" => set.push(("I_MPI_FABRICS", "shm")),
                    _ => set.extend([
                        ("I_MPI_FABRICS", "ofi"),
                        ("I_MPI_COLL_INTRANODE", "pt2pt"),
                        ("FI_PROVIDER", "tcp"),
                        ("FI_TCP_IFACE", "lo"),
                    ]),
                }
                if setting.crowded {
                    set.push(("I_MPI_THREAD_YIELD", "2"));
                }
            }
        }
        set
    }
}
