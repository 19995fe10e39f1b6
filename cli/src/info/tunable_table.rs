//! Implements `roundelay info --tunables`: prints the table of the tunables that the program is made of.

use roundelay::internal::library_tunables;
use roundelay::internal::tunables::{TunableRow, TunableValue};
use serde::Serialize;

use crate::report::{VerbReport, VerbResult};
use crate::tunables::TUNABLES;

/// A tunable, as programs read it: the default as text, and as a number in one of three units.
#[derive(Serialize)]
struct TunableEntry {
    package: &'static str,
    name: &'static str,
    default: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_count: Option<u64>,
    meaning: &'static str,
}

impl TunableEntry {
    fn new(row: &TunableRow) -> Self {
        let TunableRow { package, name, default, meaning } = *row;
        let (mut default_us, mut default_bytes, mut default_count) = (None, None, None);
        match default {
            TunableValue::Duration(time) => default_us = Some(time.as_secs_f64() * 1e6),
            TunableValue::Bytes(bytes) => default_bytes = Some(bytes),
            TunableValue::Count(count) => default_count = Some(count),
        }
        let default = default.to_string();
        TunableEntry { package, name, default, default_us, default_bytes, default_count, meaning }
    }
}

/// Prints the table, by package.
pub(super) fn tunables(report: VerbReport) -> VerbResult {
    let mut package = "";
    for row in library_tunables().iter().chain(TUNABLES) {
        let entry = TunableEntry::new(row);
        report.result(&entry);
        if entry.package != package {
            let gap = if package.is_empty() { "" } else { "\n" };
            report.line(format!("{gap}{}:", entry.package));
            package = entry.package;
        }
        report.line(format!("  {:34} {:>10}  {}", entry.name, entry.default, entry.meaning));
    }
    Ok(())
}
