//! Makes texts that are no programs: random bytes, soups of tokens, files cut off or with tokens exchanged.
//! Whatever they are, they are parsed, printed, resolved and compiled without a panic and soon.

use std::time::Duration;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{CompileOptions, Shape, compile};
use roundelay_dsl::diag::render;
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{SeededRandom, read};
use rustix::time::{ClockId, clock_gettime};

use crate::random::judge::PLACEMENTS;

/// Longest that anything may compute: loops are cut off after 2^24 turns.
const SOON: Duration = Duration::from_secs(40);

/// Returns a text.
pub(crate) fn text(dice: &mut SeededRandom) -> String {
    let any = |dice: &mut SeededRandom| CATALOGUE[dice.below(CATALOGUE.len())].text.to_string();
    match dice.below(6) {
        0 => {
            let bytes: Vec<u8> = (0..dice.below(400)).map(|_| dice.below(256) as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        1 => {
            let soup = any(dice) + &crate::random::make::program(dice).text;
            let words = words(&soup);
            (0..dice.below(200)).map(|_| words[dice.below(words.len())].clone() + " ").collect()
        }
        2 => {
            let whole = any(dice);
            let mut end = dice.below(whole.len());
            while !whole.is_char_boundary(end) {
                end -= 1;
            }
            whole[..end].to_string()
        }
        _ => {
            let whole = if dice.below(2) == 0 {
                any(dice)
            } else {
                crate::random::make::program(dice).text
            };
            let mut words = words(&whole);
            for _ in 0..1 + dice.below(4) {
                let (at, from) = (dice.below(words.len()), dice.below(words.len()));
                match dice.below(6) {
                    0 => words[at] = words[from].clone(),
                    1 => words.swap(at, from),
                    2 => words.insert(at, words[from].clone()),
                    3 => drop(words.remove(at)),
                    4 => words[at] = NUMBERS[dice.below(NUMBERS.len())].to_string(),
                    _ => {
                        let numbers: Vec<usize> = (0..words.len())
                            .filter(|&i| {
                                words[i].starts_with(|c: char| c.is_ascii_digit() || c == 'n')
                            })
                            .collect();
                        if !numbers.is_empty() {
                            words[numbers[dice.below(numbers.len())]] =
                                NUMBERS[dice.below(NUMBERS.len())].to_string();
                        }
                    }
                }
            }
            words.concat()
        }
    }
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "4294967296",
    "1000000000",
    "70000",
    "(1 / 0)",
    "(1 << 63)",
    "(0 % (n - 2))",
    "268435456",
    "65536",
];

/// Returns the text as words, signs and blanks.
fn words(text: &str) -> Vec<String> {
    let class = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut words: Vec<String> = Vec::new();
    let mut last = 3;
    for c in text.chars() {
        if class(c) == last && last != 2 || last == 2 && c == '>' {
            if let Some(word) = words.last_mut() {
                word.push(c);
            }
        } else {
            words.push(c.to_string());
        }
        last = class(c);
    }
    words
}

/// Does everything that can be done with a text. Returns how many of its algorithms were proved somewhere.
///
/// # Errors
/// It took too long, or printing is not stable.
pub(crate) fn survive(text: &str) -> Result<usize, String> {
    let begun = worked();
    let mut sources = SourceMap::new();
    let id = sources.add("noise.algo", text);
    match roundelay_dsl::parse(&sources, id) {
        Err(faults) => faults.iter().for_each(|d| drop(render::human(&sources, d, false))),
        Ok(_) => {
            let once = roundelay_dsl::format(&sources, id).map_err(|d| {
                format!("parsed, but not printed: {}", roundelay_tests::say(&sources, &d))
            })?;
            let mut again = SourceMap::new();
            let id = again.add("printed.algo", &once);
            let twice = roundelay_dsl::format(&again, id).map_err(|d| {
                format!(
                    "printed as what is not parsed: {}\n{once}",
                    roundelay_tests::say(&again, &d)
                )
            })?;
            if once != twice {
                return Err(format!("printed as\n{once}\nand again as\n{twice}"));
            }
        }
    }
    soon(begun, "parsing")?;
    let source = match read("noise.algo", text) {
        Ok(source) => source,
        Err((sources, faults)) => {
            faults.iter().for_each(|d| drop(render::human(&sources, d, false)));
            return soon(begun, "resolving").map(|()| 0);
        }
    };
    let options = CompileOptions { limit: 100_000, ..CompileOptions::default() };
    let mut proved = 0;
    for program in &source.programs {
        let shapes = match program.axes.names.len() {
            1 => (1..=4).map(Shape::flat).collect(),
            axes => vec![Shape { axes: vec![2; axes] }],
        };
        for shape in shapes {
            for placement in PLACEMENTS {
                let begun = worked();
                match compile(program, &source.sources, &shape, &options, placement) {
                    Ok(_) => proved += 1,
                    Err(faults) => {
                        faults.iter().for_each(|d| drop(render::human(&source.sources, d, false)));
                    }
                }
                soon(begun, &format!("compiling on {shape}"))?;
            }
        }
    }
    Ok(proved)
}

/// Returns the time that this thread has had a processor: what else the machine does is not counted.
fn worked() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn soon(begun: Duration, what: &str) -> Result<(), String> {
    match worked() - begun {
        took if took > SOON => Err(format!("{what} took {took:?}")),
        _ => Ok(()),
    }
}
