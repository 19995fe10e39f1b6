//! Builds and starts the MPIs: Open MPI, MPICH and Intel MPI. There is one program for all; each has its own
//! launcher, and its own variables that send the data through shared memory or through TCP, and make waiting
//! ranks yield.

use std::path::{Path, PathBuf};
use std::process::Command;

use roundelay::fabric::TCP;

use super::{InstallRemedy, PeerError, PeerLibrary, PeerSetting, environment, installed};
use crate::args::PeerName;

const SOURCE: (&str, &str) = ("mpi.c", include_str!("../../peers/mpi.c"));

/// An MPI that may be installed.
pub(crate) struct MpiPeer {
    name: &'static str,
    /// The name by which users ask for it.
    pub(crate) which: PeerName,
    from: InstallOrigin,
    kind: MpiKind,
}

/// The origin of an installation.
enum InstallOrigin {
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
pub(crate) const MPIS: [MpiPeer; 5] = [
    MpiPeer {
        name: "ompi",
        which: PeerName::Ompi,
        from: InstallOrigin::Debian(
            "mpicc.openmpi",
            "mpirun.openmpi",
            "openmpi-bin libopenmpi-dev",
        ),
        kind: MpiKind::OpenMpi,
    },
    MpiPeer {
        name: "ompi5",
        which: PeerName::Ompi5,
        from: InstallOrigin::Python("openmpi", "openmpi"),
        kind: MpiKind::OpenMpi,
    },
    MpiPeer {
        name: "mpich",
        which: PeerName::Mpich,
        from: InstallOrigin::Debian("mpicc.mpich", "mpiexec.mpich", "mpich libmpich-dev"),
        kind: MpiKind::Mpich,
    },
    MpiPeer {
        name: "mpich5",
        which: PeerName::Mpich5,
        from: InstallOrigin::Python("mpich", "mpich"),
        kind: MpiKind::Mpich,
    },
    MpiPeer {
        name: "impi",
        which: PeerName::Impi,
        from: InstallOrigin::Python("oneccl", "oneccl-devel"),
        kind: MpiKind::Intel,
    },
];

impl PeerLibrary for &MpiPeer {
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
        let compiler = self.tool(MpiTool::Compiler)?;
        self.tool(MpiTool::Launcher)?;
        let mut command = Command::new(compiler);
        command.args(["-O3", "-w", "-o"]).arg(program).arg(source);
        Ok(command)
    }

    fn remedy(&self) -> InstallRemedy {
        match self.from {
            InstallOrigin::Debian(_, _, packages) => InstallRemedy::debian(packages),
            InstallOrigin::Python(_, package) => self
                .environment()
                .err()
                .unwrap_or_else(|| InstallRemedy(format!("install {package} again"))),
        }
    }

    fn start(&self, setting: &PeerSetting<'_>) -> Vec<Command> {
        let Ok(launcher) = self.tool(MpiTool::Launcher) else { return Vec::new() };
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
enum MpiTool {
    Compiler,
    Launcher,
}

impl MpiPeer {
    fn environment(&self) -> Result<PathBuf, InstallRemedy> {
        match self.from {
            InstallOrigin::Debian(..) => Err(InstallRemedy("it has no environment".into())),
            InstallOrigin::Python(name, package) => environment(name, package),
        }
    }

    /// Returns the compiler or the launcher; or how to get them.
    fn tool(&self, tool: MpiTool) -> Result<PathBuf, PeerError> {
        let missing =
            |what: &str, remedy| Err(PeerError::NotInstalled { what: what.into(), remedy });
        if let InstallOrigin::Debian(compiler, launcher, packages) = self.from {
            let name = if tool == MpiTool::Compiler { compiler } else { launcher };
            return match installed(name) {
                true => Ok(name.into()),
                false => missing(name, InstallRemedy::debian(packages)),
            };
        }
        let path = match (tool, self.kind) {
            // The two share one ABI, and Intel's compiler is not on PyPI.
            (MpiTool::Compiler, MpiKind::Intel) => {
                environment("mpich", "mpich").map(|e| e.join("bin/mpicc"))
            }
            (MpiTool::Compiler, _) => self.environment().map(|e| e.join("bin/mpicc")),
            (MpiTool::Launcher, MpiKind::OpenMpi) => {
                self.environment().map(|e| e.join("bin/mpirun"))
            }
            (MpiTool::Launcher, _) => self.environment().map(|e| e.join("bin/mpiexec.hydra")),
        };
        match path {
            Err(remedy) => missing(self.name, remedy),
            Ok(path) if path.is_file() => Ok(path),
            Ok(path) => {
                missing(self.name, InstallRemedy(format!("there is no {}", path.display())))
            }
        }
    }

    /// Returns the variables that send the data over its transport. Ranks bind themselves, so no launcher does.
    fn variables(&self, setting: &PeerSetting<'_>) -> Vec<(&'static str, &'static str)> {
        let tcp = setting.transport == TCP;
        let mut set = Vec::new();
        match self.kind {
            MpiKind::OpenMpi => {
                // A user who runs the bench as root, in a container for example, intends that.
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
