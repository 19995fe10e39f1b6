//! Tests that every rank can compile for itself: the same text and shape give the same bytes, and one rank's
//! plan made alone is that rank's plan among all.

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{
    BufferPlacement, CompileOptions, Program, Shape, UnprovedPlan, compile, project,
};
use roundelay_tests::{instance, is_grid, of_library, read, roots, say};

fn shapes(program: &Program) -> Vec<Shape> {
    if is_grid(program) {
        [[2, 2], [2, 3], [3, 2], [4, 2], [3, 3]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (1..=9).chain([16, 17]).map(Shape::flat).collect()
    }
}

const PLACEMENTS: [BufferPlacement; 2] = [BufferPlacement::InPlace, BufferPlacement::OutOfPlace];

#[test]
fn compiling_twice_gives_the_same_bytes() {
    for entry in CATALOGUE {
        let twice = [0, 1].map(|_| {
            let (sources, program) = of_library(entry).expect("the library resolves");
            let shape = shapes(&program)
                .into_iter()
                .rev()
                .find(|s| instance(&program, s, 0).is_ok_and(|i| i.is_some()));
            let shape = shape.expect("some shape is legal");
            PLACEMENTS.map(|placement| {
                let proved =
                    compile(&program, &sources, &shape, &CompileOptions::default(), placement);
                proved
                    .map(|p| p.plans().iter().map(|plan| plan.encode()).collect::<Vec<_>>())
                    .expect("the library is proved")
            })
        });
        assert!(twice[0] == twice[1], "{}", entry.path);
    }
}

#[test]
fn a_plan_made_alone_is_the_same() {
    let mut differences = Vec::new();
    for entry in CATALOGUE {
        let (sources, program) = of_library(entry).expect("the library resolves");
        for shape in shapes(&program) {
            for root in roots(&program, shape.ranks() as u32) {
                let Ok(Some(instance)) = instance(&program, &shape, root) else { continue };
                for placement in PLACEMENTS {
                    let options = CompileOptions { root, ..CompileOptions::default() };
                    let proved = compile(&program, &sources, &shape, &options, placement)
                        .expect("the library is proved");
                    for (rank, plan) in proved.plans().iter().enumerate() {
                        let at = format!(
                            "{} on {shape}, root {root}, rank {rank}, {placement:?}",
                            entry.path
                        );
                        match project(&instance, &sources, placement, rank as u32) {
                            Ok(alone) if alone == **plan => {}
                            Ok(alone) => {
                                differences.push(format!("{at}: {}", difference(&alone, plan)));
                            }
                            Err(faults) => {
                                differences.push(format!("{at}: {}", say(&sources, &faults)));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Returns the first line in which two plans differ.
fn difference(a: &UnprovedPlan, b: &UnprovedPlan) -> String {
    let (x, y) = (format!("{:#?}", a.header), format!("{:#?}", b.header));
    let lines = x
        .lines()
        .zip(y.lines())
        .find(|(x, y)| x != y)
        .map(|(x, y)| format!("{} / {}", x.trim(), y.trim()));
    let (x, y) = (a.to_string(), b.to_string());
    let parts = x
        .lines()
        .zip(y.lines())
        .find(|(x, y)| x != y)
        .map(|(x, y)| format!("{} / {}", x.trim(), y.trim()));
    lines.or(parts).unwrap_or("part".into())
}

/// Properties that only some ranks have show in the header of all.
#[test]
fn headers_do_not_depend_on_the_rank() {
    let texts = [
        "algorithm lossy implements all_reduce on n ranks { chunks 2
            each r where r > 0 { r -> 0 : reduce data as bf16 }
            each r where r > 0 { 0 -> r : copy data } }",
        "algorithm half implements broadcast on n ranks { chunks 6
            for k in 0..6 { each r where r != root { root -> r : copy data[k] } } }",
        "algorithm many implements broadcast on n ranks { chunks 6
            each r where r != root { for k in 0..6 { root -> r : copy data[k] } } }",
        "algorithm pair implements broadcast on n ranks {
            each r where r == (root + 1) % n && n > 1 { root -> r : copy data as bf16 }
            each r where r != root && r != (root + 1) % n { root -> r : copy data } }",
    ];
    let mut differences = Vec::new();
    for text in texts {
        let source = read("header.algo", text).unwrap_or_else(|(s, d)| panic!("{}", say(&s, &d)));
        let (program, sources) = (&source.programs[0], &source.sources);
        for n in 2..=4 {
            let shape = Shape::flat(n);
            let instance = instance(program, &shape, 0)
                .expect("the shape fits")
                .expect("the shape is allowed");
            for placement in PLACEMENTS {
                let proved =
                    compile(program, sources, &shape, &CompileOptions::default(), placement)
                        .unwrap_or_else(|d| panic!("{}", say(sources, &d)));
                for (rank, plan) in proved.plans().iter().enumerate() {
                    let alone =
                        project(&instance, sources, placement, rank as u32).expect("it is lowered");
                    if alone != **plan {
                        differences.push(format!(
                            "{} {n} rank {rank}: {}",
                            program.name,
                            difference(&alone, plan)
                        ));
                    }
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
