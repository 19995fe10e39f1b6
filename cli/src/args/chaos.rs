//! The faults of `run --chaos`, and their rates.

use std::fmt;
use std::str::FromStr;

/// A fault of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A rank is killed.
    Kill,
    /// A rank is stopped for a while.
    Stop,
    /// A rank has a fifth of its time for a while.
    Slow,
    /// A rank comes late to a call or to a generation.
    Late,
    /// A TCP connection between two ranks is cut.
    Cut,
}

impl FaultKind {
    pub(crate) const ALL: [FaultKind; 5] =
        [FaultKind::Kill, FaultKind::Stop, FaultKind::Slow, FaultKind::Late, FaultKind::Cut];

    pub(crate) fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Stop => "stop",
            FaultKind::Slow => "slow",
            FaultKind::Late => "late",
            FaultKind::Cut => "cut",
        }
    }
}

/// The faults of a job, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FaultRates([f64; FaultKind::ALL.len()]);

impl FaultRates {
    /// Returns how many of this fault there are a second.
    pub(crate) fn of(&self, fault: FaultKind) -> f64 {
        self.0[fault as usize]
    }
}

impl FromStr for FaultRates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rates = FaultRates::default();
        for part in text.split(',') {
            let read = part.split_once('=').and_then(|(name, rate)| {
                let rate: f64 = rate.strip_suffix("/s")?.parse().ok()?;
                let fault = FaultKind::ALL.into_iter().find(|fault| fault.name() == name)?;
                (rate > 0.0 && rate <= 100.0).then_some((fault, rate))
            });
            let Some((fault, rate)) = read else {
                return Err(format!(
                    "`{part}` is no fault and its rate: kill=0.1/s kills a rank every ten seconds, stop=0.1/s stops \
                     one for a while, slow=0.1/s leaves one a fifth of its time for a while, late=0.1/s has one come \
                     late, cut=0.1/s cuts a TCP connection; rates are up to 100/s"
                ));
            };
            rates.0[fault as usize] = rate;
        }
        Ok(rates)
    }
}

impl fmt::Display for FaultRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = FaultKind::ALL.into_iter().filter(|&fault| self.of(fault) > 0.0);
        let texts: Vec<String> =
            named.map(|fault| format!("{}={}/s", fault.name(), self.of(fault))).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_printed() {
        let text = "kill=0.1/s,stop=2/s,slow=4/s,late=0.5/s,cut=3/s";
        let rates: FaultRates = text.parse().expect("rates");
        assert_eq!(rates, FaultRates([0.1, 2.0, 4.0, 0.5, 3.0]));
        assert_eq!((rates.of(FaultKind::Cut), rates.to_string().as_str()), (3.0, text));
        for bad in
            ["", "kill", "kill=1", "kill=0/s", "kill=NaN/s", "kill=-1/s", "burn=1/s", "kill=1/s,"]
        {
            assert!(bad.parse::<FaultRates>().expect_err(bad).contains("is no fault"), "{bad}");
        }
    }
}
