//! Builds and starts Gloo, through which PyTorch's processes talk on CPUs. It has TCP only.

use std::path::Path;
use std::process::Command;

use roundelay::fabric::TCP;

use super::{InstallRemedy, PeerError, PeerLibrary, PeerSetting, installed};

const SOURCE: (&str, &str) = ("gloo.cc", include_str!("../../peers/gloo.cc"));
/// The folders in which a compiler looks for headers by default.
const HEADERS: [&str; 2] = ["/usr/include", "/usr/local/include"];

/// Gloo.
pub(crate) struct GlooPeer;

impl PeerLibrary for GlooPeer {
    fn name(&self) -> &'static str {
        "gloo"
    }

    fn transport(&self, _: &'static str) -> &'static str {
        TCP
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
        if !HEADERS.iter().any(|h| Path::new(h).join("gloo/allreduce.h").is_file()) {
            return Err(PeerError::NotInstalled { what: "it".into(), remedy: self.remedy() });
        }
        let mut command = Command::new("g++");
        command.args(["-O2", "-std=c++17", "-w", "-o"]).arg(program).arg(source);
        command.args(["-lgloo", "-pthread"]);
        Ok(command)
    }

    fn remedy(&self) -> InstallRemedy {
        InstallRemedy::debian("libgloo-dev")
    }

    fn start(&self, setting: &PeerSetting<'_>) -> Vec<Command> {
        let rank = |rank: u64| {
            let mut command = Command::new(setting.program);
            command.arg(setting.socket).args([rank.to_string(), setting.ranks.to_string()]);
            command.arg(setting.store);
            command
        };
        (0..setting.ranks).map(rank).collect()
    }
}
