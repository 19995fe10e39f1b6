//! Runs device programs on a machine of the test: many warps, a weak memory, a seed that decides who goes
//! on. What comes out is compared bit by bit with the plans run one operation at a time.
//!
//! `SEED=7` draws others, `RUNS=20` more.

mod counted;
mod engines;
mod far;
mod folds;
mod kernel;
mod machine;
mod memory;
mod multicast;
mod mutants;
mod mutate;
mod outside;
mod plans;
mod proxy;
mod reference;
mod remove;
mod window;
mod years;

use std::sync::Arc;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::device::{DeviceOptions, DeviceProgram, DeviceProtocol, prove};
use roundelay_compiler::plan::PlanBuffer;
use roundelay_compiler::program::{BufferStyle, ProgramBuffer};
use roundelay_compiler::{BufferPlacement, Program, ProvedPlans, Shape, compile};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{SeededRandom, is_grid, of_library, read, suite};

use kernel::{BLOCKS, Call};
use reference::{Arithmetic, Buffers, Cut, buffers, tag};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Lowers, proves, and makes a call with random data and sizes.
fn call(
    name: &str,
    proved: &ProvedPlans,
    protocol: DeviceProtocol,
    slots: Option<u32>,
    dice: &mut SeededRandom,
) -> Option<Call> {
    match prove(proved, protocol, &DeviceOptions { slots, ..DeviceOptions::default() }) {
        Ok(programs) => Some(with(name, proved, programs.list().to_vec(), dice)),
        Err(refused) => {
            let barrier = proved.plans()[0].header.collective == "barrier";
            let known = match protocol {
                DeviceProtocol::Packet if barrier => true,
                DeviceProtocol::Engine if refused.0.starts_with("copy engines only copy") => true,
                DeviceProtocol::Multicast
                    if refused.0.starts_with("the switch reads or writes") =>
                {
                    true
                }
                _ => refused.0.contains("12 channels between two ranks; a device has 8"),
            };
            assert!(known, "{name} {protocol}: {refused}");
            None
        }
    }
}

/// Returns a call of these programs, on numbers.
fn with(
    name: &str,
    proved: &ProvedPlans,
    programs: Vec<DeviceProgram>,
    dice: &mut SeededRandom,
) -> Call {
    with_values(name, proved, programs, Arithmetic::Float, dice)
}

/// Returns a call of these programs, on numbers or on marks.
fn with_values(
    name: &str,
    proved: &ProvedPlans,
    programs: Vec<DeviceProgram>,
    arithmetic: Arithmetic,
    dice: &mut SeededRandom,
) -> Call {
    let plans = proved.plans().to_vec();
    let header = &plans[0].header;
    let blocks = header.blocks.max(1) as usize;
    let enough = (header.chunks as usize).div_ceil(blocks);
    // Nothing, fewer elements than chunks, just enough, more, and some that chunks do not divide.
    let count = match dice.below(8) {
        0 => dice.below(enough),
        1 => enough,
        2 => 2 * enough,
        // Enough passes for slots to be used again.
        3 | 4 if !programs[0].protocol.is_one_pass() => enough * (7 + dice.below(4)),
        _ => enough + dice.below(2 * enough + 3),
    };
    let cut = Cut::new(header, count);
    let most = cut.most().max(1);
    let blocks = if most > 6 { 1 } else { 1 + dice.below(BLOCKS) };
    let pass = match programs[0].protocol {
        protocol if protocol.is_one_pass() => most.div_ceil(blocks) + dice.below(2),
        _ if most > 6 => 1,
        _ => 1 + dice.below(most.div_ceil(blocks)),
    };
    let passes = most.div_ceil(blocks * pass);
    let unordered = programs[0].protocol == DeviceProtocol::Multicast;
    let mut before: Vec<Buffers> = Vec::new();
    let mut asked = Vec::new();
    let spec = &proved.graph().instance.spec;
    for plan in &plans {
        let mut all = Buffers::new();
        let mut wanted = Vec::new();
        for buf in buffers(plan) {
            let mut values = vec![f32::from_bits(0x7fc0_0bad); cut.size(plan, buf)];
            let buffer = match buf {
                PlanBuffer::Data => ProgramBuffer::Data,
                PlanBuffer::Input => ProgramBuffer::Input,
                PlanBuffer::Output => ProgramBuffer::Output,
                PlanBuffer::Scratch(i) => ProgramBuffer::Scratch(i),
            };
            let rank = plan.part.rank;
            for c in 0..plan.buffer_chunks(buf).unwrap_or(0) {
                if matches!(buf, PlanBuffer::Data | PlanBuffer::Input)
                    && spec.initial(buffer, rank, c).is_some()
                {
                    let first = cut.place(buf, c);
                    for x in &mut values[first..first + cut.length(c as usize)] {
                        // The switch adds in an order of its own: sums must not depend on it.
                        let parts = if unordered { 1 } else { 1 << dice.below(12) };
                        let number = (dice.below(1 << 20) as f32 - 524_288.0) / parts as f32;
                        *x = match arithmetic {
                            Arithmetic::Float => number,
                            _ => tag(number.to_bits().into()),
                        };
                    }
                }
                if matches!(buf, PlanBuffer::Data | PlanBuffer::Output)
                    && spec.expected(buffer, rank, c).is_some()
                {
                    wanted.push((buf, c));
                }
            }
            all.insert(buf, values);
        }
        before.push(all);
        asked.push(wanted);
    }
    let mut after = before.clone();
    reference::run(&plans, cut, arithmetic, &mut after);
    let protocol = programs[0].protocol;
    let name =
        format!("{name} {protocol} N={} blocks={blocks} pass={pass} passes={passes}", cut.elements);
    let groups = 1 + dice.below(4);
    Call {
        name,
        programs,
        plans,
        cut,
        arithmetic,
        blocks,
        pass,
        passes,
        groups,
        before,
        after,
        asked,
    }
}

fn shapes(program: &Program) -> Vec<Shape> {
    if is_grid(program) {
        [[2, 2], [3, 2], [2, 4]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (2..=8).map(Shape::flat).collect()
    }
}

/// Proves a program at a shape, in every placement that it has.
fn placed(
    sources: &SourceMap,
    program: &Arc<Program>,
    shape: &Shape,
    of: &mut impl FnMut(BufferPlacement, &ProvedPlans),
) {
    let placements = match program.style {
        BufferStyle::Data => vec![BufferPlacement::InPlace, BufferPlacement::OutOfPlace],
        BufferStyle::InputOutput => vec![BufferPlacement::OutOfPlace],
    };
    for placement in placements {
        let options = roundelay_compiler::CompileOptions::default();
        if let Ok(proved) = compile(program, sources, shape, &options, placement) {
            of(placement, &proved);
        }
    }
}

/// Calls `of` with everything of the library at the shapes that it allows, proved.
fn proofs(mut of: impl FnMut(&str, &Shape, &ProvedPlans)) {
    for entry in CATALOGUE {
        let name = format!("{}.{}", entry.collective, entry.name);
        let (sources, program) = of_library(entry).expect("the library resolves");
        for shape in shapes(&program) {
            placed(&sources, &program, &shape, &mut |placement, proved| {
                of(&format!("{name} -n {shape} {placement:?}"), &shape, proved);
            });
        }
    }
}

/// Runs all others: the algorithm library in channels, and the suite.
fn others(mut of: impl FnMut(&str, &Shape, &ProvedPlans)) {
    let mut texts: Vec<(String, String)> = Vec::new();
    for entry in CATALOGUE {
        if let Some(body) = entry.text.trim_end().strip_suffix('}')
            && !body.contains("schedule {")
        {
            let text = format!("{body}    schedule {{ channels 2 pipeline 2 }}\n}}\n");
            texts.push((format!("{} in channels", entry.path), text));
        }
    }
    for path in suite() {
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        if name.starts_with("good_") {
            texts.push((name, std::fs::read_to_string(&path).expect("the suite can be read")));
        }
    }
    for (name, text) in texts {
        let Ok(source) = read(&name, &text) else { continue };
        for program in &source.programs {
            let shapes = match is_grid(program) {
                true => vec![Shape { axes: vec![2, 2] }],
                false => [2, 3, 4].map(Shape::flat).to_vec(),
            };
            for shape in shapes {
                placed(&source.sources, program, &shape, &mut |placement, proved| {
                    let name = format!("{name}: {} -n {shape} {placement:?}", program.name);
                    of(&name, &shape, proved);
                });
            }
        }
    }
}

/// Runs in every protocol: several calls in a row, of other sizes and protocols, on the same memory.
#[derive(Default)]
struct RunTally {
    runs: usize,
    failures: Vec<String>,
}

impl RunTally {
    fn run(&mut self, name: &str, proved: &ProvedPlans) {
        let only = std::env::var("ONLY").unwrap_or_default();
        if !name.contains(&only) {
            return;
        }
        let (seed, repeats) = (setting("SEED", 1), setting("RUNS", 1));
        for (protocol, k) in DeviceProtocol::ALL
            .into_iter()
            .flat_map(|protocol| (0..repeats).map(move |k| (protocol, k)))
        {
            let seed = seed * 1000 + k * 7 + self.runs as u64;
            let mut dice = SeededRandom(seed);
            let slots = [None, Some(8)][dice.below(2)];
            let protocols =
                [protocol, DeviceProtocol::ALL[dice.below(DeviceProtocol::ALL.len())], protocol];
            let calls: Vec<Call> =
                protocols.iter().filter_map(|&w| call(name, proved, w, slots, &mut dice)).collect();
            if calls.is_empty() {
                continue;
            }
            self.runs += 1;
            if let Err(e) = machine::run(&calls, machine::NONE, seed) {
                let names: Vec<&str> = calls.iter().map(|c| c.name.as_str()).collect();
                self.failures.push(format!("{}: {e}", names.join(" | ")));
            }
        }
    }

    fn end(self, least: usize) {
        let RunTally { runs, failures } = self;
        assert!(failures.is_empty(), "{} of {runs}\n{}", failures.len(), failures.join("\n"));
        assert!(runs > least || std::env::var("ONLY").is_ok(), "{runs}");
    }
}

#[test]
fn the_library_is_run_in_every_way() {
    let mut tally = RunTally::default();
    proofs(|name, _, proved| tally.run(name, proved));
    tally.end(1500);
}

#[test]
fn so_are_channels_and_the_suite() {
    let mut tally = RunTally::default();
    others(|name, _, proved| tally.run(name, proved));
    tally.end(500);
}
