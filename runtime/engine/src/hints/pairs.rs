//! Reads hints from pairs, texts and the environment, by the rows of the table.

use roundelay_net::bootstrap::HINTS as VARIABLE;
use roundelay_support::variables;

use super::error::{HintError, ValueError};
use super::experimental::{EXPERIMENTAL, check_value};
use super::table::find;
use super::values::Hints;

impl Hints {
    /// Reads pairs, as frameworks pass them.
    ///
    /// # Errors
    ///
    /// [`HintError`] for an unknown key, a value that the key does not have or that this build does not, or a key given
    /// twice.
    ///
    /// ```
    /// let hints = roundelay_engine::hints::Hints::from_pairs([("algorithm", "ring"), ("timeout", "5s")])?;
    /// assert_eq!(hints.algorithm("all_reduce"), Some("ring"));
    /// let error = roundelay_engine::hints::Hints::from_pairs([("algoritm", "ring")]).unwrap_err();
    /// assert!(error.to_string().contains("did you mean `algorithm`?"));
    /// # Ok::<(), roundelay_engine::hints::HintError>(())
    /// ```
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, HintError> {
        let mut hints = Hints::default();
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in pairs {
            let row = find(key.as_ref().trim())?;
            if seen.contains(&row.name) {
                return Err(HintError::Twice(row.name));
            }
            seen.push(row.name);
            let value = value.as_ref().trim();
            (row.read)(&mut hints, value).map_err(|ValueError(why)| {
                let (key, value, values) = (row.name, value.into(), row.values);
                HintError::Value { key, value, why, values }
            })?;
            check_value(&hints, row.name, value, EXPERIMENTAL)?;
        }
        Ok(hints)
    }

    /// Returns the hints of the environment; none where [`VARIABLE`] is not set.
    ///
    /// # Errors
    ///
    /// [`HintError`], naming the variable.
    pub fn from_env() -> Result<Self, HintError> {
        let Some(value) = variables::raw(VARIABLE) else { return Ok(Hints::default()) };
        let text = value.into_string().map_err(|_| HintError::NoText)?;
        text.parse().map_err(|e| HintError::Environment(Box::new(e)))
    }
}

impl std::str::FromStr for Hints {
    type Err = HintError;

    /// Parses `key=value,key=value`. A part without `=` belongs to the value before it, so lists need no
    /// quotes: `transport=shm,tcp,timeout=5s`. So does what stands in parentheses.
    fn from_str(text: &str) -> Result<Self, HintError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            // An argument of an algorithm: `algorithm=two_trees(k=4,j=2)`.
            let within = |(_, value): &(String, String)| {
                value.matches('(').count() > value.matches(')').count()
            };
            let is_key = |key: &str| !key.contains('(') && !pairs.last().is_some_and(within);
            let pair = part.split_once('=').filter(|(key, _)| is_key(key));
            match (pair, pairs.last_mut()) {
                (Some((key, value)), _) => pairs.push((key.trim().into(), value.trim().into())),
                (None, Some((_, value))) => {
                    value.push(',');
                    value.push_str(part);
                }
                (None, None) => return Err(HintError::NoPair(part.into())),
            }
        }
        Hints::from_pairs(pairs)
    }
}
