//! Builds and starts oneCCL on hosts, as PyPI has it.

use std::path::Path;
use std::process::Command;

use super::{InstallRemedy, PeerError, PeerLibrary, PeerSetting, environment, installed};

const SOURCE: (&str, &str) = ("oneccl.cc", include_str!("../../peers/oneccl.cc"));

/// oneCCL.
pub(crate) struct OneCcl;

impl PeerLibrary for OneCcl {
    fn name(&self) -> &'static str {
        "oneccl"
    }

    fn transport(&self, asked: &'static str) -> &'static str {
        asked
    }

    fn source(&self) -> (&'static str, &'static str) {
        SOURCE
    }

    fn compiler(&self, source: &Path, program: &Path) -> Result<Command, PeerError> {
        if !installed("g++") {
            return Err(PeerError::NotInstalled {
                what: "g++".into(),
                remedy: InstallRemedy::debian("g++"),
            });
        }
        let root = environment("oneccl", "oneccl-devel")
            .map_err(|remedy| PeerError::NotInstalled { what: "it".into(), remedy })?;
        let mut command = Command::new("g++");
        command.args(["-O2", "-std=c++17", "-w", "-o"]).arg(program).arg(source);
        command.arg("-I").arg(root.join("include")).arg("-L").arg(root.join("lib"));
        // The other ABI that the package brings is for other headers.
        command.args(["-l:libccl.so.1", "-Wl,--allow-shlib-undefined"]);
        Ok(command)
    }

    fn remedy(&self) -> InstallRemedy {
        environment("oneccl", "oneccl-devel")
            .err()
            .unwrap_or_else(|| InstallRemedy("install oneccl-devel again".into()))
    }

    fn start(&self, setting: &PeerSetting<'_>) -> Vec<Command> {
        let Ok(root) = environment("oneccl", "oneccl-devel") else { return Vec::new() };
        let lib = root.join("lib");
        let rank = |rank: u64| {
            let mut command = Command::new(setting.program);
            command.arg(setting.socket).args([rank.to_string(), setting.ranks.to_string()]);
            command.arg(setting.store);
            command.env("LD_LIBRARY_PATH", &lib).env("FI_PROVIDER_PATH", &lib);
            command.env("CCL_ATL_TRANSPORT", "ofi").env("FI_TCP_IFACE", "lo");
            command.env("CCL_KVS_IFACE", "lo").env("CCL_LOG_LEVEL", "error");
            let shm = if setting.transport == "shm" { "1" } else { "0" };
            // Its threads would want cores of their own, beside those of the ranks.
            command.env("CCL_ATL_SHM", shm).env("CCL_WORKER_OFFLOAD", "0");
            if setting.crowded {
                command.env("CCL_YIELD", "sched_yield");
            }
            command
        };
        (0..setting.ranks).map(rank).collect()
    }
}
