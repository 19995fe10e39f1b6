//! The rates of faults in `run --chaos`.

use std::fmt;
use std::str::FromStr;

/// The faults of a job, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    /// Ranks that are killed.
    pub(crate) kill: f64,
    /// Ranks that are stopped for a while.
    pub(crate) stop: f64,
    /// TCP connections between two ranks that are cut.
    pub(crate) cut: f64,
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rates = Rates::default();
        for part in text.split(',') {
            let read = part.split_once('=').and_then(|(name, rate)| {
                let rate: f64 = rate.strip_suffix("/s")?.parse().ok()?;
                (rate > 0.0 && rate <= 100.0).then_some((name, rate))
            });
            match read {
                Some(("kill", rate)) => rates.kill = rate,
                Some(("stop", rate)) => rates.stop = rate,
                Some(("cut", rate)) => rates.cut = rate,
                _ => {
                    return Err(format!(
                        "`{part}` is no fault and its rate: kill=0.1/s kills a rank every ten seconds, stop=0.1/s \
                         stops one for a while, cut=0.1/s cuts a TCP connection; rates are up to 100/s"
                    ));
                }
            }
        }
        Ok(rates)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("kill", self.kill), ("stop", self.stop), ("cut", self.cut)];
        let named = named.iter().filter(|(_, rate)| *rate > 0.0);
        let texts: Vec<String> = named.map(|(name, rate)| format!("{name}={rate}/s")).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_printed() {
        let rates: Rates = "kill=0.1/s,stop=2/s,cut=3/s".parse().expect("rates");
        assert_eq!(rates, Rates { kill: 0.1, stop: 2.0, cut: 3.0 });
        assert_eq!(rates.to_string(), "kill=0.1/s,stop=2/s,cut=3/s");
        for bad in
            ["", "kill", "kill=1", "kill=0/s", "kill=NaN/s", "kill=-1/s", "burn=1/s", "kill=1/s,"]
        {
            assert!(bad.parse::<Rates>().expect_err(bad).contains("is no fault"), "{bad}");
        }
    }
}
