//! Tests that bounds and inversions hold of every value.

use std::ops::ControlFlow;

use roundelay_dsl::span::SourceMap;

use super::SlotBounds;
use super::expressions::ExprGenerator;
use super::inverse::SEARCHED;
use crate::eval::eval;
use crate::num::index;
use crate::program::ProgramStmt;
use crate::{CompileOptions, NoLibrary, Program, ProgramInstance, Shape, resolve};

fn program(text: &str) -> std::sync::Arc<Program> {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    resolve(&mut sources, id, &NoLibrary).expect("the text resolves").remove(0)
}

/// Whatever is said of an expression on a range of ranks holds of all its values there.
#[test]
fn bounds_hold() {
    let mut exact = 0;
    for text in [
        "lowbit(v)",
        "lowbit(v + 5)",
        "(v - lowbit(v)) | (2 * lowbit(v))",
        "log2(v + 1) + ceil_log2(v + 3)",
        "if v < 9 { v } else { 40 - v }",
        "if lowbit(v) == 8 || !(v > 3) { 1 } else { v | 16 }",
        "if v >= 7 && v != 12 { 3 } else { pow(2, log2(9)) }",
        "if v == 6 { 1 } else { 0 }",
        "if v <= 20 && 30 > v { 1 } else { 0 }",
    ] {
        let text = format!(
            "algorithm a implements all_reduce on n ranks {{
                each v {{ let x = {text} x % n -> v : copy data }} }}"
        );
        let program = program(&text);
        let Some(ProgramStmt::Each(each)) = program.body.first() else { panic!("an `each`") };
        let e = &each.defs.first().expect("a definition").1;
        let mut env = vec![0; program.slots.len()];
        for (lo, hi) in (0..40).flat_map(|lo| (lo..40).map(move |hi| (lo, hi))) {
            let vary = [(each.var, (lo, hi))];
            let range = SlotBounds { env: &env, vary: &vary, defs: &[] }.range(e);
            for v in lo..=hi {
                env[index(each.var)] = v;
                let value = eval(e, &mut env).expect("it has a value");
                assert!(range.0 <= value && value <= range.1, "{value} in {range:?}: {text}");
            }
            exact += u32::from(range.0 == range.1);
        }
    }
    assert!(exact > 9 * 40, "{exact}");
}

/// The search for the ranks that send to a rank takes a small part of looking at all ranks, where no form
/// can be inverted.
#[test]
fn a_parent_finds_its_children() {
    let program = program(
        "fn parent(v, n) { let up = (v - lowbit(v)) | (2 * lowbit(v)) if up < n { up } else { v - lowbit(v) } }
        algorithm a implements reduce on n ranks {
            for k in 0..ceil_log2(n) { each v where lowbit(v) == 1 << k { v -> parent(v, n) : reduce data } }
        }",
    );
    for n in [1u32 << 10, 1 << 16] {
        let instance = ProgramInstance::new(&program, &Shape::flat(n), &CompileOptions::default());
        let (mut found, rank) = (Vec::new(), n / 2 + 8);
        SEARCHED.set(0);
        let done = crate::walk::walk(&instance.expect("an instance"), &mut |round| {
            round.of(rank, &mut found)?;
            Ok(ControlFlow::Continue(()))
        });
        assert!(done.is_ok());
        let senders: Vec<u32> = found.iter().map(|t| t.src).collect();
        assert_eq!(senders, [rank - 4, rank + 4, rank], "two children, and what it sends itself");
        let rounds = u64::from(n.ilog2());
        let looks = SEARCHED.get() / rounds;
        assert!(looks < 8 * rounds * rounds, "{looks} looks a round on {n} ranks");
    }
}

/// Bounds, inversions and searches hold of random expressions, of wide values too: no value of an expression lies
/// outside its range, and no rank for which it has a value is left out. `ROUNDS=20` tries twenty times as many.
#[test]
#[expect(clippy::disallowed_methods, reason = "the number of rounds is the tester's choice")]
fn bounds_hold_of_wide_values() {
    const RANKS: i64 = 24;
    let rounds = std::env::var("ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(1u64);
    let (mut wide, mut inverted) = (0, 0);
    for seed in 0..1500 * rounds {
        let mut make = ExprGenerator::new(seed, &["v", "n"]);
        let text = make.number(4);
        let whole = format!(
            "algorithm a implements all_reduce on n ranks {{
                each v {{ let x = {text} x % n -> v : copy data }} }}"
        );
        let program = program(&whole);
        let Some(ProgramStmt::Each(each)) = program.body.first() else { panic!("an `each`") };
        let Some((_, e)) = each.defs.first() else { continue };
        let mut env = vec![0; program.slots.len()];
        env[0] = RANKS;
        env[index(program.axes.sizes[0])] = RANKS;
        let mut value = |v: i64| {
            let mut env = env.clone();
            env[index(each.var)] = v;
            eval(e, &mut env).ok()
        };
        let values: Vec<Option<i64>> = (0..RANKS).map(&mut value).collect();
        for _ in 0..12 {
            let (a, b) = (make.below(24), make.below(24));
            let (lo, hi) = (a.min(b), a.max(b));
            let vary = [(each.var, (lo, hi))];
            let range = SlotBounds { env: &env, vary: &vary, defs: &[] }.range(e);
            for x in (lo..=hi).filter_map(|v| values[index(v)]) {
                assert!(range.0 <= x && x <= range.1, "{x} in {range:?} on {lo}..={hi}: {text}");
                wide += u32::from(x.unsigned_abs() > 1 << 60);
            }
        }
        let vary = [(each.var, (0, RANKS - 1))];
        let bounds = SlotBounds { env: &env, vary: &vary, defs: &[] };
        for target in values.iter().flatten().copied() {
            let ranks = |v: &i64| values[index(*v)] == Some(target);
            let mut found = Vec::new();
            bounds.search(e, each.var, target, std::iter::empty(), &mut found);
            let lost = (0..RANKS).filter(ranks).find(|v| !found.contains(v));
            assert_eq!(lost, None, "not found for {target}: {text}");
            let Some(ranges) = bounds.invert(e, each.var, &[(target, target)]) else { continue };
            let inside = |v: i64| ranges.iter().any(|r| r.0 <= v && v <= r.1);
            let lost = (0..RANKS).filter(ranks).find(|v| !inside(*v));
            assert_eq!(lost, None, "not inverted for {target}: {text}");
            inverted += 1;
        }
    }
    assert!(wide > 1000 && inverted > 1000, "{wide} wide values, {inverted} inversions");
}
