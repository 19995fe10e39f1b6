//! The tuned table: what `roundelay tune` measured on a machine.
//!
//! A row is one measured size: the time of each algorithm that was tried there; on GPUs, of each protocol by
//! which it ran, as in `one_shot packet 8`. Between two sizes the times of an algorithm lie on a line; below
//! the smallest they are those of the smallest, and beyond the largest they grow with the bytes. Where two
//! sizes have nothing in common, and on GPUs, the nearer one counts. Rows of other rank counts, hosts or
//! transports do not count.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use roundelay_compiler::BufferPlacement;
use roundelay_dsl::diag::codes;
use serde::Deserialize;
use toml::Spanned;

use super::MachineDescription;
use super::how::{HowError, Times, parts};
use roundelay_support::error::{Error, ErrorSource};
use roundelay_support::variables;

/// The version of the format.
const VERSION: u32 = 1;
/// The environment variable that names the table; empty, there is none.
pub const VARIABLE: &str = "ROUNDELAY_TUNED";

/// The setting for which a row was measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunedSetting {
    /// The collective.
    pub collective: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of hosts that they were spread over, evenly.
    pub hosts: u32,
    /// The links by which they reached each other.
    pub transport: String,
    /// True if calls were in place.
    pub in_place: bool,
}

/// A table of measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedTable {
    /// The machine on which they were made.
    pub machine: MachineDescription,
    rows: BTreeMap<TunedSetting, BTreeMap<u64, Times>>,
}

/// A fault of a tuned table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
#[non_exhaustive]
pub struct TunedError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    #[source]
    pub fault: TableFault,
}

/// The kinds of faults of a tuned table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableFault {
    /// The text is no TOML, or lacks a field, or has one too many.
    #[error("{0}")]
    Toml(String),
    /// The table is of another version of the format.
    #[error("version {0}, and this is for {VERSION}")]
    Version(u32),
    /// A row is of no placement.
    #[error("`{0}` is neither in_place nor out_of_place")]
    Placement(String),
    /// A row has no times.
    #[error("a row without times")]
    NoTimes,
    /// A row names an algorithm that the algorithm library does not have.
    #[error("the algorithm library has no {0}")]
    Algorithm(String),
    /// A row names no setting of GPUs.
    #[error(transparent)]
    How(#[from] HowError),
    /// A time is none.
    #[error("{0} is no time")]
    Time(String),
    /// Two rows are of the same calls.
    #[error("a second row of {0} bytes for the same calls")]
    Twice(u64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    version: Spanned<u32>,
    machine: MachineDescription,
    #[serde(default)]
    rows: Vec<Spanned<TableRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableRow {
    collective: String,
    ranks: u32,
    hosts: u32,
    transport: String,
    placement: String,
    bytes: u64,
    us: Times,
}

impl TunedTable {
    /// Makes a table without rows.
    pub fn new(machine: MachineDescription) -> Self {
        TunedTable { machine, rows: BTreeMap::new() }
    }

    /// Returns the path of this user's table: the value of [`VARIABLE`], or `roundelay/tuned.toml` in the
    /// user's folder for configuration. `None` if neither is known, or the variable is empty.
    pub fn path() -> Option<PathBuf> {
        if variables::is_set(VARIABLE) {
            return variables::path(VARIABLE);
        }
        let config = variables::path("XDG_CONFIG_HOME")
            .or_else(|| Some(variables::path("HOME")?.join(".config")))?;
        Some(config.join("roundelay").join("tuned.toml"))
    }

    /// Reads a table; `None` if there is no such file, or the system lets this process into no folder on the way to it,
    /// unless [`VARIABLE`] asks for it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the file is there and cannot be read; [`Error::Settings`] with path and line if it is
    /// damaged.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let named = variables::path(VARIABLE).is_some();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map(Some).map_err(|why| Error::Settings {
                text: format!(
                    "the tuned table {} is damaged: {why}; mend it, or write it anew with \
                     `roundelay tune`",
                    path.display()
                ),
                source: Some(ErrorSource::new(why)),
            }),
            Err(_) if !named && std::fs::symlink_metadata(path).is_err() => Ok(None),
            Err(e) => Err(Error::System {
                code: codes::FILE,
                text: format!("the tuned table {} cannot be read: {e}", path.display()),
                source: ErrorSource::new(e),
            }),
        }
    }

    /// Reads the text of a table.
    ///
    /// # Errors
    ///
    /// The fault and its line.
    pub fn parse(text: &str) -> Result<Self, TunedError> {
        let file: TableFile = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(0, |span| line(text, span.start));
            TunedError { line, fault: TableFault::Toml(e.message().into()) }
        })?;
        let version = *file.version.get_ref();
        if version != VERSION {
            let line = line(text, file.version.span().start);
            return Err(TunedError { line, fault: TableFault::Version(version) });
        }
        let mut tuned = TunedTable::new(file.machine);
        for row in file.rows {
            let line = line(text, row.span().start);
            tuned.row(row.into_inner()).map_err(|fault| TunedError { line, fault })?;
        }
        Ok(tuned)
    }

    fn row(&mut self, row: TableRow) -> Result<(), TableFault> {
        let in_place = match row.placement.as_str() {
            "in_place" => true,
            "out_of_place" => false,
            other => return Err(TableFault::Placement(other.into())),
        };
        if row.us.is_empty() {
            return Err(TableFault::NoTimes);
        }
        for (name, us) in &row.us {
            let (name, _) = parts(name)?;
            if roundelay_algorithms::find(&row.collective, name).is_none() {
                return Err(TableFault::Algorithm(format!("{}.{name}", row.collective)));
            }
            if !us.is_finite() || *us <= 0.0 {
                return Err(TableFault::Time(format!("{us} us for {name}")));
            }
        }
        let TableRow { collective, ranks, hosts, transport, bytes, us, .. } = row;
        let setting = TunedSetting { collective, ranks, hosts, transport, in_place };
        if self.rows.entry(setting).or_default().insert(bytes, us).is_some() {
            return Err(TableFault::Twice(bytes));
        }
        Ok(())
    }

    /// Adds a measurement, in place of an earlier one of the same algorithm at the same size.
    pub fn insert(&mut self, setting: &TunedSetting, bytes: u64, algorithm: &str, us: f64) {
        let sizes = self.rows.entry(setting.clone()).or_default();
        sizes.entry(bytes).or_default().insert(algorithm.into(), us);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.values().map(BTreeMap::len).sum()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&TunedSetting, u64, &Times)> {
        self.rows.iter().flat_map(|(p, sizes)| sizes.iter().map(move |(b, t)| (p, *b, t)))
    }

    /// Returns the times of a call of `bytes`: those of algorithms that were measured around that size.
    /// Calls in place and out of place stand for each other where only one was measured.
    pub fn times(&self, setting: &TunedSetting, bytes: u64) -> Option<Times> {
        let other = TunedSetting { in_place: !setting.in_place, ..setting.clone() };
        let sizes = self.rows.get(setting).or_else(|| self.rows.get(&other))?;
        let below = sizes.range(..=bytes).next_back();
        let above = sizes.range(bytes..).next();
        match (below, above) {
            (Some((a, times)), Some((b, _))) if a == b => Some(times.clone()),
            (Some((a, low)), Some((b, high))) => {
                let share = (bytes - a) as f64 / (b - a) as f64;
                let both = low.iter().filter_map(|(name, t)| Some((name, t, high.get(name)?)));
                let both: Times =
                    both.map(|(name, t, u)| (name.clone(), t + (u - t) * share)).collect();
                // Protocols of GPUs change with the size: a size between two rows has the times of the nearer one.
                let has_protocol = |name: &String| parts(name).is_ok_and(|(_, how)| how.is_some());
                let protocols = both.is_empty() || low.keys().any(has_protocol);
                let lower = u128::from(bytes).pow(2) < u128::from(*a) * u128::from(*b);
                let nearer = if lower { low } else { high };
                Some(if protocols { nearer.clone() } else { both })
            }
            (None, Some((_, times))) => Some(times.clone()),
            (Some((a, times)), None) => {
                let grown = bytes as f64 / (*a).max(1) as f64;
                Some(times.iter().map(|(name, t)| (name.clone(), t * grown)).collect())
            }
            (None, None) => None,
        }
    }

    /// Returns the text of the table, which [`TunedTable::parse`] reads.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# Measured by `roundelay tune`: microseconds a call, fastest first. Choices prefer this to the\n\
             # cost model. Any row may be changed or removed.\n\
             version = {VERSION}\n\n[machine]\ncpu = {}\ncores = {}\n",
            quoted(&self.machine.cpu),
            self.machine.cores
        );
        for (setting, bytes, times) in self.rows() {
            let mut times: Vec<(&String, &f64)> = times.iter().collect();
            times.sort_by(|a, b| a.1.total_cmp(b.1));
            let times: Vec<String> =
                times.iter().map(|(name, us)| format!("{} = {us:?}", key(name))).collect();
            let placement = if setting.in_place { "in_place" } else { "out_of_place" };
            let _ = write!(
                text,
                "\n[[rows]]\ncollective = {}\nranks = {}\nhosts = {}\ntransport = {}\nplacement = \
                 \"{placement}\"\nbytes = {bytes}\nus = {{ {} }}\n",
                quoted(&setting.collective),
                setting.ranks,
                setting.hosts,
                quoted(&setting.transport),
                times.join(", ")
            );
        }
        text
    }
}

impl TunedSetting {
    /// Returns true if calls are in place, as plans name it.
    pub fn placed(placement: BufferPlacement) -> bool {
        placement == BufferPlacement::InPlace
    }
}

/// Quotes a TOML string.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the name of a time: unquoted, where TOML allows it.
fn key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.into() } else { quoted(name) }
}

/// Returns the line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> TunedSetting {
        TunedSetting {
            collective: "all_reduce".into(),
            ranks: 2,
            hosts: 1,
            transport: "shm".into(),
            in_place: true,
        }
    }

    fn table() -> TunedTable {
        let mut table =
            TunedTable::new(MachineDescription { cpu: "a \"b\" \\ c".into(), cores: 2 });
        for (bytes, one, two) in [(8, 0.3, 0.6), (1024, 0.7, 0.8), (1 << 20, 400.0, 125.5)] {
            table.insert(&setting(), bytes, "one_shot", one);
            table.insert(&setting(), bytes, "two_shot", two);
        }
        table.insert(&setting(), 8, "ring", 0.9);
        table
    }

    #[test]
    fn a_table_that_cannot_be_reached_is_none() {
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        // A name behind a file is out of reach for everybody, as one in a folder that is closed to this user.
        let file = std::env::current_exe().expect("this test");
        let at = file.join(".config").join("tuned.toml");
        assert!(TunedTable::load(&at).expect("an optional file").is_none());
        assert!(TunedTable::load(&file).is_err(), "one that is there and no table");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = table().text();
        assert_eq!(TunedTable::parse(&text), Ok(table()), "{text}");
        assert_eq!(TunedTable::parse(&text).expect("a table").text(), text);
    }

    #[test]
    fn times_between_sizes_lie_on_a_line() {
        let table = table();
        let times = |bytes| table.times(&setting(), bytes).expect("times");
        assert_eq!(times(8).len(), 3);
        assert_eq!(times(0), times(8), "below the smallest");
        let half = times((8 + 1024) / 2);
        assert!((half["one_shot"] - 0.5).abs() < 1e-9 && !half.contains_key("ring"), "{half:?}");
        assert_eq!(times(2 << 20)["two_shot"], 251.0);
        let out = TunedSetting { in_place: false, ..setting() };
        assert_eq!(table.times(&out, 8), table.times(&setting(), 8));
        assert_eq!(table.times(&TunedSetting { ranks: 3, ..setting() }, 8), None);
    }

    #[test]
    fn ways_of_gpus_are_kept_apart() {
        let setting = TunedSetting { transport: "nvlink".into(), ..setting() };
        let mut table = TunedTable::new(MachineDescription { cpu: "x".into(), cores: 2 });
        table.insert(&setting, 1024, "one_shot packet 8", 4.5);
        table.insert(&setting, 1 << 20, "ring put 64", 40.0);
        let text = table.text();
        assert!(text.contains("us = { \"one_shot packet 8\" = 4.5 }"), "{text}");
        assert_eq!(TunedTable::parse(&text), Ok(table.clone()));
        let near = |bytes| table.times(&setting, bytes).expect("times").into_keys().next();
        assert_eq!(near(8192).as_deref(), Some("one_shot packet 8"));
        assert_eq!(near(1 << 19).as_deref(), Some("ring put 64"));
        let damaged = text.replace("packet 8", "pocket 8");
        assert!(
            TunedTable::parse(&damaged).is_err_and(|why| why.to_string().contains("`pocket 8`"))
        );
    }

    #[test]
    fn arguments_are_a_part_of_the_name() {
        let setting = TunedSetting { collective: "broadcast".into(), ..setting() };
        let mut table = TunedTable::new(MachineDescription { cpu: "x".into(), cores: 2 });
        table.insert(&setting, 8, "k_nomial(k = 4)", 1.0);
        table.insert(&setting, 16, "k_nomial(k = 4)", 3.0);
        let text = table.text();
        assert!(text.contains("us = { \"k_nomial(k = 4)\" = 1.0 }"), "{text}");
        assert_eq!(TunedTable::parse(&text), Ok(table.clone()));
        assert_eq!(
            table.times(&setting, 12).expect("times")["k_nomial(k = 4)"],
            2.0,
            "no protocol"
        );
        let damaged =
            TunedTable::parse(&text.replace("k = 4", "k = 9")).expect_err("out of its bounds");
        assert!(damaged.to_string().contains("no broadcast.k_nomial(k = 9)"), "{damaged}");
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let good = table().text();
        let cases = [
            ("version = 1", "version = 2", "line 3: version 2"),
            ("ranks = 2", "ranks = -2", "line 11: "),
            (
                "one_shot = 0.3",
                "one_shoe = 0.3",
                "the algorithm library has no all_reduce.one_shoe",
            ),
            ("one_shot = 0.3", "one_shot = 0.0", "0 us for one_shot is no time"),
            ("bytes = 1024", "bytes = 8", "a second row of 8 bytes"),
            ("bytes = 1024", "bites = 1024", "bites"),
            ("\"in_place\"", "\"here\"", "`here` is neither"),
            ("[machine]", "[machine", "line 5"),
        ];
        for (from, to, wanted) in cases {
            let found = TunedTable::parse(&good.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(found.contains(wanted) && found.contains("line "), "{to}: {found}");
        }
    }
}
