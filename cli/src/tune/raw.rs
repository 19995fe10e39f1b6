//! Keeps every result as it comes, a line of JSON each, beside the table.

use std::io::Write;
use std::path::{Path, PathBuf};

use roundelay::choose::MachineDescription;
use roundelay::choose::TunedSetting;
use serde::{Deserialize, Serialize};

/// One measured point, of one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RawResult {
    machine: MachineDescription,
    version: String,
    collective: String,
    ranks: u32,
    hosts: u32,
    transport: String,
    in_place: bool,
    bytes: u64,
    algorithm: String,
    us: f64,
}

impl RawResult {
    pub(super) fn new(setting: &TunedSetting, bytes: u64, algorithm: &str, us: f64) -> Self {
        let TunedSetting { collective, ranks, hosts, transport, in_place } = setting.clone();
        RawResult {
            machine: MachineDescription::here(),
            version: env!("CARGO_PKG_VERSION").into(),
            collective,
            ranks,
            hosts,
            transport,
            in_place,
            bytes,
            algorithm: algorithm.into(),
            us,
        }
    }

    fn is(&self, setting: &TunedSetting, bytes: u64, algorithm: &str) -> bool {
        self.bytes == bytes
            && self.algorithm == algorithm
            && self.collective == setting.collective
            && (self.ranks, self.hosts, self.in_place)
                == (setting.ranks, setting.hosts, setting.in_place)
            && self.transport == setting.transport
    }
}

/// The results so far.
pub(super) struct RawTable {
    path: PathBuf,
    known: Vec<RawResult>,
}

impl RawTable {
    /// Opens the results beside a table that were measured on this machine by this version; none if they are
    /// not to be used. What cannot be read (a line that was being written when a run was stopped) is passed
    /// over.
    pub(super) fn open(table: &Path, fresh: bool) -> Self {
        let path = table.with_extension("jsonl");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let here = MachineDescription::here();
        let mut known: Vec<RawResult> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        known.retain(|r| !fresh && r.machine == here && r.version == env!("CARGO_PKG_VERSION"));
        RawTable { path, known }
    }

    /// Returns the latest times of a point, at most `most`.
    pub(super) fn times(
        &self,
        setting: &TunedSetting,
        bytes: u64,
        algorithm: &str,
        most: u32,
    ) -> Vec<f64> {
        let all = self.known.iter().rev().filter(|r| r.is(setting, bytes, algorithm));
        all.take(most as usize).map(|r| r.us).collect()
    }

    /// Keeps a result.
    pub(super) fn add(&mut self, result: RawResult) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        // A line that was cut off must not take this one with it.
        writeln!(file, "\n{}", serde_json::to_string(&result)?)?;
        self.known.push(result);
        Ok(())
    }
}
