//! The machine as tables of measurements name it.

use serde::{Deserialize, Serialize};

/// A description by which machines are distinguished: the same for every rank on it, wherever the rank is
/// bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineDescription {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that are online.
    pub cores: u32,
}

impl MachineDescription {
    /// Describes this machine.
    pub fn here() -> Self {
        Self::read(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let field = |line: &'_ str, name: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let cores = text.lines().filter(|l| field(l, "processor").is_some()).count() as u32;
        let cpu = text.lines().find_map(|l| field(l, "model name"));
        match cores {
            0 => MachineDescription { cpu: "unknown".into(), cores: 1 },
            cores => MachineDescription { cpu: cpu.unwrap_or_else(|| "unknown".into()), cores },
        }
    }
}

impl std::fmt::Display for MachineDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cores of {}", self.cores, self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::MachineDescription;

    #[test]
    fn processors_are_counted() {
        let text =
            "processor\t: 0\nmodel name\t: A  B\nflags : x\n\nprocessor\t: 1\nmodel name\t: A  B\n";
        assert_eq!(
            MachineDescription::read(text),
            MachineDescription { cpu: "A B".into(), cores: 2 }
        );
        assert_eq!(MachineDescription::read("").cores, 1);
        assert!(MachineDescription::here().cores >= 1);
    }
}
