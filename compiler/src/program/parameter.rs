//! Parameters of programs: their values, and names with arguments, such as `k_nomial(k = 4)`.
//!
//! A program has a value for each of its parameters: its default, or the argument that was given. The name of a
//! program shows the arguments that are not the default, so that it says which plans are meant wherever a name does.

use std::fmt::{self, Display, Write};
use std::str::FromStr;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;
use serde::Serialize;

use super::expression::Slot;

/// A parameter of a program, with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramParameter {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// Its variable.
    pub slot: Slot,
    /// The value that it has in this program.
    pub value: ArgumentValue,
    /// The value that it has where none is given.
    #[serde(skip)]
    pub default: ArgumentValue,
    /// The least and the greatest value that it may have.
    #[serde(skip)]
    pub bounds: Option<(i64, i64)>,
    /// Span of the declaration.
    #[serde(skip)]
    pub span: Span,
}

impl ProgramParameter {
    /// Returns why a value is none that the parameter may have.
    pub fn refusal(&self, value: ArgumentValue) -> Option<Diagnostic> {
        let name = &self.name;
        let wrong = |code, message: String, help: String| {
            let d = Diagnostic::error(code, message);
            Some(d.label(self.span, "declared here").help(help))
        };
        match (value, self.default, self.bounds) {
            (ArgumentValue::Number(v), ArgumentValue::Number(_), Some((least, most)))
                if !(least..=most).contains(&v) =>
            {
                let message = format!("{name} = {v} is out of the bounds of `{name}`");
                wrong(codes::ARGUMENT, message, format!("{name} goes from {least} to {most}"))
            }
            (ArgumentValue::Number(_), ArgumentValue::Truth(_), _) => {
                let message = format!("`{name}` is a truth value, and {value} is a number");
                wrong(codes::TYPE, message, format!("write `{name} = true` or `{name} = false`"))
            }
            (ArgumentValue::Truth(_), ArgumentValue::Number(default), _) => {
                let message = format!("`{name}` is a number, and {value} is a truth value");
                wrong(codes::TYPE, message, format!("write a number, as in `{name} = {default}`"))
            }
            _ => None,
        }
    }
}

/// A value for a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum ArgumentValue {
    /// A number.
    Number(i64),
    /// A truth value.
    Truth(bool),
}

impl ArgumentValue {
    /// Returns the value as expressions hold it: truth values are 0 and 1.
    pub fn number(self) -> i64 {
        match self {
            ArgumentValue::Number(value) => value,
            ArgumentValue::Truth(value) => value.into(),
        }
    }

    /// Returns the value of an expression, which is a truth value or a number.
    pub(crate) fn of(value: i64, truth: bool) -> Self {
        if truth { ArgumentValue::Truth(value != 0) } else { ArgumentValue::Number(value) }
    }
}

impl Display for ArgumentValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentValue::Number(value) => value.fmt(f),
            ArgumentValue::Truth(value) => value.fmt(f),
        }
    }
}

impl FromStr for ArgumentValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(ArgumentValue::Truth(true)),
            "false" => Ok(ArgumentValue::Truth(false)),
            number => number.parse().map(ArgumentValue::Number).map_err(|_| {
                format!("`{number}` is no value of a parameter: write a number, `true` or `false`")
            }),
        }
    }
}

/// A name with arguments, as in `k_nomial(k = 4)`; without any, it is a name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentedName {
    /// The name before the parenthesis.
    pub name: String,
    /// The arguments, in the order in which they are written.
    pub arguments: Vec<(String, ArgumentValue)>,
}

impl FromStr for ArgumentedName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, rest)) = text.split_once('(') else {
            return Ok(ArgumentedName { name: text.trim().into(), arguments: Vec::new() });
        };
        let Some(list) = rest.trim_end().strip_suffix(')') else {
            return Err(format!("`{text}` has no `)` at its end"));
        };
        let mut arguments = Vec::new();
        for argument in list.split(',') {
            let Some((parameter, value)) = argument.split_once('=') else {
                return Err(format!(
                    "`{}` is no argument: write `parameter = value`, as in `{}(k = 4)`",
                    argument.trim(),
                    name.trim()
                ));
            };
            arguments.push((parameter.trim().into(), value.trim().parse()?));
        }
        Ok(ArgumentedName { name: name.trim().into(), arguments })
    }
}

impl Display for ArgumentedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (parameter, value)) in self.arguments.iter().enumerate() {
            write!(f, "{}{parameter} = {value}", if i == 0 { "(" } else { ", " })?;
        }
        if self.arguments.is_empty() { Ok(()) } else { f.write_char(')') }
    }
}
