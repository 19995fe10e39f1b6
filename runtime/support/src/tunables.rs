//! The tunables of all packages: durations, limits and thresholds. They change how fast something goes, when it is
//! given up or how much of it there may be, and never whether a result is right.
//!
//! [`tunables!`](crate::tunables!) declares them, with their meaning, in one file `tunables.rs` of each package;
//! `roundelay info --tunables` and `docs/tunables.md` list them. Sizes of formats and of arrays are no tunables: they
//! stand beside their code.

use std::fmt;
use std::time::Duration;

/// A tunable: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunableRow {
    /// The package that declares it.
    pub package: &'static str,
    /// Its name, which is unique in the package.
    pub name: &'static str,
    /// Its value.
    pub default: TunableValue,
    /// The quantity that it bounds, and why it has this value.
    pub meaning: &'static str,
}

/// The value of a tunable, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunableValue {
    /// A length of time.
    Duration(Duration),
    /// A size.
    Bytes(u64),
    /// A number of anything else.
    Count(u64),
}

impl TunableValue {
    /// Returns the value of a tunable that is a number: of bytes, if its name has that word.
    pub const fn number(name: &str, value: u64) -> Self {
        let mut rest = name.as_bytes();
        while let [_, tail @ ..] = rest {
            if let [b'B', b'Y', b'T', b'E', b'S', ..] = rest {
                return TunableValue::Bytes(value);
            }
            rest = tail;
        }
        TunableValue::Count(value)
    }
}

impl fmt::Display for TunableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, units): (u128, &[(u128, &str)]) = match *self {
            TunableValue::Duration(time) => (
                time.as_nanos(),
                &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")],
            ),
            TunableValue::Bytes(bytes) => {
                (bytes.into(), &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
            }
            TunableValue::Count(count) => return write!(f, "{count}"),
        };
        let whole = units.iter().find(|(size, _)| value >= *size && value % size == 0);
        let (size, unit) = whole.copied().unwrap_or((1, units[units.len() - 1].1));
        write!(f, "{} {unit}", value / size)
    }
}

/// Declares the tunables of a package as constants, and their list `TUNABLES`. The doc comment of each is its meaning,
/// and its type and name are its unit: `Duration`, a number of bytes if the name has the word `BYTES`, else a count.
#[macro_export]
macro_rules! tunables {
    ($(
        $(#[doc = $meaning:literal])+
        $visibility:vis const $name:ident: $type:ident = $value:expr;
    )+) => {
        $(
            $(#[doc = $meaning])+
            $visibility const $name: $type = $value;
        )+

        /// The tunables of this package, in the order of the source.
        pub const TUNABLES: &[$crate::tunables::TunableRow] = &[$(
            $crate::tunables::TunableRow {
                package: env!("CARGO_PKG_NAME"),
                name: stringify!($name),
                default: $crate::tunables!(@value $type $name),
                meaning: concat!($($meaning),+).trim_ascii_start(),
            }
        ),+];
    };
    (@value Duration $name:ident) => { $crate::tunables::TunableValue::Duration($name) };
    (@value $type:ident $name:ident) => {
        $crate::tunables::TunableValue::number(stringify!($name), $name as u64)
    };
}

tunables! {
    /// The time between two checks for an interrupt, such as Ctrl-C, in a wait. A person does not notice it.
    pub const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
    /// The length of a yield from which on another program had the core: a peer spins for less.
    pub(crate) const TAKEN_CORE_YIELD_MIN: Duration = Duration::from_micros(400);
    /// The length of a yield from which on another thread had the core, if only for as long as a rank spins.
    pub(crate) const SHARED_CORE_YIELD_MIN: Duration = Duration::from_micros(20);
    /// The time for which a rank does not spin after a yield of `SHARED_CORE_YIELD_MIN`.
    pub(crate) const SHARED_CORE_NO_SPIN_TIME: Duration = Duration::from_millis(5);
    /// The time within which two yields of `TAKEN_CORE_YIELD_MIN` show that the core is contended; one alone
    /// may be an accident.
    pub(crate) const TAKEN_CORE_YIELDS_WITHIN: Duration = Duration::from_millis(100);
    /// The time after a sleep on a contended core within which one yield of `TAKEN_CORE_YIELD_MIN` is enough
    /// for the next sleep.
    pub(crate) const RECENT_SLEEP_TIME: Duration = Duration::from_secs(10);
    /// The time for which waits on a contended core sleep before they try to yield again. It doubles up to
    /// `CONTENDED_SLEEP_TIME_MAX`.
    pub(crate) const CONTENDED_SLEEP_TIME: Duration = Duration::from_millis(400);
    /// The longest time for which waits on a contended core sleep before they try to yield again.
    pub(crate) const CONTENDED_SLEEP_TIME_MAX: Duration = Duration::from_millis(1600);
    /// Elements of a fold from which on its result is stored past the caches; with fewer it does not pay.
    pub(crate) const STREAMED_ELEMENTS_MIN: usize = 1024;
    /// The most that the C library copies in a loop of vectors; more may go by `rep movsb`, which is slow for
    /// some alignments.
    pub(crate) const LOOPED_COPY_BYTES: usize = 1 << 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        let text = |value: TunableValue| value.to_string();
        let time = |nanos| text(TunableValue::Duration(Duration::from_nanos(nanos)));
        assert_eq!([time(0), time(1_500), time(50_000)], ["0 ns", "1500 ns", "50 us"]);
        assert_eq!([time(1_600_000_000), time(9_000_000_000)], ["1600 ms", "9 s"]);
        assert_eq!(text(TunableValue::number("PIPE_TURN_BYTES", 1 << 20)), "1 MiB");
        assert_eq!(text(TunableValue::number("VIEW_BYTES_MIN", 1000)), "1000 B");
        assert_eq!(text(TunableValue::number("FAST_POLLS", 1 << 10)), "1024");
    }

    #[test]
    fn a_row_is_what_was_declared() {
        let row =
            TUNABLES.iter().find(|row| row.name == "INTERRUPT_CHECK_INTERVAL").expect("the row");
        assert_eq!(row.default, TunableValue::Duration(INTERRUPT_CHECK_INTERVAL));
        assert_eq!(row.package, "roundelay-support");
        assert!(row.meaning.starts_with("The time between two checks"), "{row:?}");
    }
}
