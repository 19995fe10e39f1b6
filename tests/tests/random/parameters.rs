//! Gives random programs parameters: numbers of their algorithms become parameters with that default, in bounds and
//! without, some numbers a constant of the file, and parts are used with arguments.

use roundelay_algorithms::CATALOGUE;
use roundelay_tests::SeededRandom;

use crate::random::make::{Made, plain};

/// The parameters that an algorithm has at most.
const PARAMETERS_MAX: usize = 3;

/// Makes a program with parameters.
pub(crate) fn program(dice: &mut SeededRandom) -> Made {
    let made = plain(dice);
    let mut constants = Vec::new();
    let mut text = String::new();
    let mut helper = Vec::new();
    // A part is written before what uses it is looked at.
    let blocks: Vec<&str> = split(&made.text);
    let order = |block: &&str| !block.starts_with("algorithm helper");
    let mut sorted: Vec<&str> = blocks.clone();
    sorted.sort_by_key(order);
    let mut written: Vec<(&str, String)> = Vec::new();
    for block in sorted {
        let made = match block.strip_prefix("algorithm ").and_then(|rest| rest.split_once(' ')) {
            Some((name, rest)) => {
                let (body, parameters) = replaced(rest, dice, &mut constants);
                let body = with_arguments(&body, &helper, dice);
                let head = head(&parameters, dice);
                if name == "helper" {
                    helper = parameters;
                }
                format!("algorithm {name}{head} {body}")
            }
            None => block.to_string(),
        };
        written.push((block, made));
    }
    for block in blocks {
        text += written.iter().find(|(own, _)| *own == block).map_or("", |(_, made)| made);
    }
    let constants: Vec<String> =
        constants.iter().enumerate().map(|(i, v)| format!("let c{i} = {v}\n")).collect();
    Made { text: constants.concat() + &text, ..made }
}

/// Makes an algorithm of the library with a radix, alone or used with an argument that is a parameter too.
pub(crate) fn radix(dice: &mut SeededRandom) -> Made {
    let with_radix = |text: &str| text.contains("(k = ") || text.contains("(a = ");
    let all: Vec<_> = CATALOGUE.iter().filter(|entry| with_radix(entry.text)).collect();
    let entry = all[dice.below(all.len())];
    if dice.below(2) == 0 {
        return Made::alone(entry.text.to_string(), false);
    }
    let (collective, name) = (entry.collective, entry.name);
    let parameter = if entry.text.contains("(k = ") { "k" } else { "a" };
    let default = 2 + dice.below(3);
    let value = ["m", "m + 1", "if n > m { m } else { 2 }", "min(m, 4)"][dice.below(4)];
    let text = format!(
        "algorithm main(m = {default} in 2..=6) implements {collective} on n ranks {{
    use {collective}.{name}({parameter} = {value})
}}
"
    );
    Made::alone(text, false)
}

/// Cuts a text before each algorithm.
fn split(text: &str) -> Vec<&str> {
    let mut cuts: Vec<usize> = text.match_indices("algorithm ").map(|(at, _)| at).collect();
    cuts.insert(0, 0);
    cuts.push(text.len());
    cuts.dedup();
    cuts.windows(2).map(|w| &text[w[0]..w[1]]).filter(|piece| !piece.is_empty()).collect()
}

/// Replaces some numbers by names; returns the parameters with their defaults.
fn replaced(
    text: &str,
    dice: &mut SeededRandom,
    constants: &mut Vec<i64>,
) -> (String, Vec<(String, i64)>) {
    let (mut out, mut parameters) = (String::new(), Vec::<(String, i64)>::new());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[at..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |n| at + n);
        let (before, number) = (&rest[..at], &rest[at..end]);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let alone = !before.ends_with(is_word) && !rest[end..].starts_with(is_word);
        // The slots of a schedule are what a test takes out of it again.
        let kept = before.ends_with("slots ") || number.len() > 9 || !alone || dice.below(3) > 0;
        out += before;
        let value: i64 = number.parse().unwrap_or(0);
        let of_same = parameters.iter().position(|(_, default)| *default == value);
        match (kept, of_same) {
            (true, _) => out += number,
            (_, Some(i)) => out += &parameters[i].0,
            (_, None) if dice.below(4) == 0 => {
                out += &format!("c{}", constants.len());
                constants.push(value);
            }
            (_, None) if parameters.len() < PARAMETERS_MAX => {
                let name = format!("p{}", parameters.len());
                out += &name;
                parameters.push((name, value));
            }
            (_, None) => out += number,
        }
        rest = &rest[end..];
    }
    (out + rest, parameters)
}

/// Writes the parameters of an algorithm.
fn head(parameters: &[(String, i64)], dice: &mut SeededRandom) -> String {
    let one = |(name, default): &(String, i64)| match dice.below(3) {
        0 => format!("{name} = {default} in {}..={}", default - 1, default + 2),
        1 => format!("{name} = if true {{ {default} }} else {{ 0 }}"),
        _ => format!("{name} = {default}"),
    };
    let all: Vec<String> = parameters.iter().map(one).collect();
    if all.is_empty() { String::new() } else { format!("({})", all.join(", ")) }
}

/// Gives the parameters of a part arguments where it is used: their defaults, mostly.
fn with_arguments(text: &str, of: &[(String, i64)], dice: &mut SeededRandom) -> String {
    let mut pieces = text.split("use helper");
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let mut given = Vec::new();
        for (name, default) in of {
            match dice.below(8) {
                0..=2 => given.push(format!("{name} = {default}")),
                3 => given.push(format!("{name} = {default} * n / n")),
                4 => given.push(format!("{name} = {}", default + 1)),
                _ => {}
            }
        }
        out += "use helper";
        if !given.is_empty() {
            out += &format!("({})", given.join(", "));
        }
        out += piece;
    }
    out
}
