//! Values for the parameters of the algorithm that a verb works on.

use std::str::FromStr;

use clap::Args;
use roundelay_compiler::program::{ArgumentValue, ArgumentedName};

/// More combinations of values than this are refused.
const INSTANCES_MAX: usize = 256;

/// Values for parameters, as `-p` gives them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ParameterArgs {
    /// A value for a parameter of the algorithm, or several to compare: k=4, k=2,4,8 or k=2..8; repeatable
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUES")]
    params: Vec<ParameterValues>,
}

/// `k=4`, `k=2,4,8` or `k=2..8` (both ends included).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterValues {
    name: String,
    values: Vec<ArgumentValue>,
}

impl FromStr for ParameterValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, list)) = text.split_once('=') else {
            return Err(format!("`{text}` has no `=`: write -p NAME=VALUE, as in -p k=4"));
        };
        let mut values = Vec::new();
        for part in list.split(',').map(str::trim) {
            match part.split_once("..") {
                None => values.push(part.parse()?),
                Some((from, to)) => {
                    let end = |s: &str| match s.trim().parse()? {
                        ArgumentValue::Number(end) => Ok(end),
                        ArgumentValue::Truth(_) => Err(format!("`{part}` is no range of numbers")),
                    };
                    let (from, to) = (end(from)?, end(to.strip_prefix('=').unwrap_or(to))?);
                    if from > to || to.abs_diff(from) >= INSTANCES_MAX as u64 {
                        return Err(format!(
                            "`{part}` has no values, or more than {INSTANCES_MAX} of them"
                        ));
                    }
                    values.extend((from..=to).map(ArgumentValue::Number));
                }
            }
        }
        Ok(ParameterValues { name: name.trim().into(), values })
    }
}

impl ParameterArgs {
    /// Returns true if no parameter is given a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// Returns a name with each combination of the values, beside the arguments that it has.
    pub(crate) fn names(&self, name: &ArgumentedName) -> Result<Vec<ArgumentedName>, String> {
        let mut all = vec![name.clone()];
        for ParameterValues { name, values } in &self.params {
            if all.len().saturating_mul(values.len()) > INSTANCES_MAX {
                return Err(format!(
                    "-p asks for more than {INSTANCES_MAX} combinations of values: give fewer"
                ));
            }
            let with = |row: &ArgumentedName, value: &ArgumentValue| {
                let mut row = row.clone();
                row.arguments.push((name.clone(), *value));
                row
            };
            all = all.iter().flat_map(|row| values.iter().map(|v| with(row, v))).collect();
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_combined() {
        let params = ["k=2,4", "up=true", "j=3..5"].map(|text| text.parse().expect(text)).to_vec();
        let name: ArgumentedName = "tree(m = 1)".parse().expect("a name");
        let all = ParameterArgs { params }.names(&name).expect("six");
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!((all.len(), &*all[0]), (6, "tree(m = 1, k = 2, up = true, j = 3)"));
        assert_eq!(all[5], "tree(m = 1, k = 4, up = true, j = 5)");
        for wrong in ["k", "k=", "k=two", "k=4..2", "k=1..1000", "k=true..false"] {
            assert!(wrong.parse::<ParameterValues>().is_err(), "{wrong}");
        }
        let params = vec!["k=1..200".parse().expect("many"); 2];
        assert!(ParameterArgs { params }.names(&name).is_err());
    }
}
