//! Reads obligations from their text.

use roundelay_compiler::all_n::{FormulaVariable, LinearFormula, LinearTerm, ProofObligation};

/// Reads a list of obligations.
pub(super) fn read_obligations(text: &str) -> Vec<ProofObligation> {
    let mut obligations = Vec::new();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "obligation" {
            obligations.push(ProofObligation::new(rest));
            continue;
        }
        let last: &mut ProofObligation = obligations.last_mut().unwrap();
        match word {
            "variables" => last.variables = rest.split(' ').map(str::to_owned).collect(),
            "assume" => last.assumptions.push(read_formula(rest, &last.variables)),
            "goal" => last.goal = read_formula(rest, &last.variables),
            _ => panic!("{line}"),
        }
    }
    obligations
}

/// Reads a formula over named variables.
pub(super) fn read_formula(text: &str, names: &[String]) -> LinearFormula {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (formula, rest) = read_words(&words, names);
    assert!(rest.is_empty(), "{text}");
    formula
}

fn read_words<'a, 'b>(words: &'a [&'b str], names: &[String]) -> (LinearFormula, &'a [&'b str]) {
    if words[0] != "(" {
        return (read_relation(words[0], names), &words[1..]);
    }
    let mut rest = &words[2..];
    let mut parts = Vec::new();
    while rest[0] != ")" {
        let (part, after) = read_words(rest, names);
        parts.push(part);
        rest = after;
    }
    let formula = match words[1] {
        "and" => LinearFormula::And(parts),
        "or" => LinearFormula::Or(parts),
        "not" => LinearFormula::Not(Box::new(parts.remove(0))),
        "iff" => LinearFormula::iff(parts.remove(0), parts.remove(0)),
        other => panic!("{other}"),
    };
    (formula, &rest[1..])
}

fn read_relation(word: &str, names: &[String]) -> LinearFormula {
    match word {
        "true" => return LinearFormula::True,
        "false" => return LinearFormula::False,
        _ => {}
    }
    if let Some(term) = word.strip_suffix("<=0") {
        return LinearFormula::AtMost(read_term(term, names));
    }
    LinearFormula::Equal(read_term(word.strip_suffix("=0").unwrap(), names))
}

fn read_term(word: &str, names: &[String]) -> LinearTerm {
    let spaced = word.replace('-', " -").replace('+', " +");
    let mut term = LinearTerm::default();
    for part in spaced.split_whitespace() {
        let (sign, body) = match part.strip_prefix('-') {
            Some(body) => (-1, body),
            None => (1, part.trim_start_matches('+')),
        };
        let one = match (body.parse::<i128>(), body.split_once('*')) {
            (Ok(constant), _) => LinearTerm::from(constant),
            (_, Some((factor, name))) => {
                variable(name, names).scale(factor.parse().unwrap()).unwrap()
            }
            (_, None) => variable(body, names),
        };
        term = term.add_scaled(&one, sign).unwrap();
    }
    term
}

fn variable(name: &str, names: &[String]) -> LinearTerm {
    let index = names.iter().position(|other| other == name).unwrap();
    FormulaVariable(u32::try_from(index).unwrap()).into()
}
