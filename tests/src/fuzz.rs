//! Runs what fuzzers do with bytes and texts, as plain functions: for a seeded test and for `cargo fuzz`.

use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{
    ChunkSizes, MessageRef, OpRef, OperationInput, PathShares, PlanBuffer, PlanOperation,
    PlanRegion,
};
use roundelay_compiler::{Plan, UnprovedPlan};
use sha2::{Digest, Sha256};

use crate::SeededRandom;

/// Magic, version and digest stand before the body.
pub const HEAD: usize = 8 + 4 + 32;

/// Does everything that is done with a plan once it was decoded. Returns false if the bytes are no plan.
///
/// # Errors
/// A message, if what was decoded is encoded as another plan, or is inconsistent.
pub fn plan(bytes: &[u8]) -> Result<bool, String> {
    let Ok(plan) = Plan::decode(bytes) else { return Ok(false) };
    plan.clone().into_unproved().check().map_err(|e| e.to_string())?;
    if Plan::decode(&plan.encode()).as_ref() != Ok(&plan) {
        return Err("encoded as another plan".into());
    }
    let _ = plan.to_string();
    if let Some(split) = &plan.header.split {
        let _ = PathShares::even(split.parts).bounds();
    }
    for op in plan.part.lanes.iter().flat_map(|lane| &lane.ops) {
        let chunks = op.sizes.chunks();
        for (region, pulled) in regions(op) {
            if region.chunks() != chunks {
                return Err("a region of another length".into());
            }
            for piece in &region.pieces {
                let size = match piece.buf {
                    PlanBuffer::Data if pulled => Some(plan.header.chunks),
                    buf => plan.buffer_chunks(buf),
                };
                let inside = |(first, len): (u32, u32)| {
                    first.checked_add(len).is_some_and(|end| Some(end) <= size)
                };
                if !piece.set.runs().take(1 << 12).all(inside) {
                    return Err(format!("{region} lies outside of its buffer"));
                }
            }
        }
    }
    Ok(true)
}

/// Returns the regions of an operation, and whether they are the peer's.
fn regions(op: &PlanOperation) -> impl Iterator<Item = (&PlanRegion, bool)> {
    let inputs = op.inputs.iter().filter_map(|input| match input {
        OperationInput::Local(region) => Some((region, false)),
        OperationInput::Message { pull, .. } => pull.as_ref().map(|region| (region, true)),
    });
    let own = op.store.iter().map(|s| &s.region);
    let offers = op.outs.iter().filter_map(|out| out.pull.as_ref());
    inputs.chain(own.chain(offers).map(|region| (region, false)))
}

/// Does everything that is done with a text that may be an algorithm: parses, prints and resolves it.
pub fn text(text: &str) {
    let mut sources = roundelay_dsl::span::SourceMap::new();
    let id = sources.add("fuzz.algo", text);
    let _ = roundelay_dsl::format(&sources, id);
    let _ = crate::read("fuzz.algo", text);
}

/// Returns bytes with a few changed, left out or added: any of them, or numbers of 32 and 64 bits at their limits. A
/// third of them are as they were.
pub fn mutated(bytes: &[u8], dice: &mut SeededRandom) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if dice.below(3) == 0 {
        return bytes;
    }
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len());
        let left = &mut bytes[at..];
        match dice.below(8) {
            _ if left.is_empty() => bytes.push(0),
            0 => left[0] = u8::try_from(dice.below(256)).unwrap_or(0),
            1 => left[0] ^= 1 << dice.below(8),
            2 => bytes.insert(at, u8::try_from(dice.below(256)).unwrap_or(0)),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let more: Vec<u8> = bytes[at..].to_vec();
                bytes.extend(more);
            }
            n => {
                let width = if n == 6 { 4 } else { 8 };
                let value = number(0, dice);
                let word =
                    if value > 1 << 30 { u64::MAX - u64::from(!value) } else { value.into() };
                let width = width.min(left.len());
                left[..width].copy_from_slice(&word.to_le_bytes()[..width]);
            }
        }
    }
    bytes
}

/// Returns a body with the head that fits it, of a plan whose head is given.
pub fn sealed(plan: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = plan[..HEAD - 32].to_vec();
    bytes.extend(Sha256::digest(body));
    bytes.extend(body);
    bytes
}

/// Returns a plan with a few of its bytes or fields changed, and a digest that fits.
pub fn altered(bytes: &[u8], dice: &mut SeededRandom) -> Vec<u8> {
    if dice.below(3) == 0 {
        let mut body = bytes[HEAD..].to_vec();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(body.len());
            match dice.below(4) {
                0 => body[at] = u8::try_from(dice.below(256)).unwrap_or(0),
                1 => body[at] ^= 1 << dice.below(8),
                2 => body.insert(at, u8::try_from(dice.below(256)).unwrap_or(0)),
                _ => drop(body.remove(at)),
            }
        }
        return sealed(bytes, &body);
    }
    let Ok(plan) = Plan::decode(bytes) else { return bytes.to_vec() };
    let mut plan = plan.into_unproved();
    for _ in 0..1 + dice.below(3) {
        alter(&mut plan, dice);
    }
    plan.encode()
}

/// Returns a number that is near to `was` or to the limits, or a small one.
fn number(was: u32, dice: &mut SeededRandom) -> u32 {
    match dice.below(9) {
        0 => 0,
        1 => 1,
        2 => u32::MAX,
        3 => 1 << dice.below(32),
        4 => was.wrapping_add(1),
        5 => was.wrapping_sub(1),
        6 => was.wrapping_mul(2),
        7 => u32::MAX - was,
        _ => u32::try_from(dice.below(20)).unwrap_or(0),
    }
}

fn small(was: u16, dice: &mut SeededRandom) -> u16 {
    u16::try_from(number(was.into(), dice) % (1 << 16)).unwrap_or(0)
}

fn alter(plan: &mut UnprovedPlan, dice: &mut SeededRandom) {
    let (h, part) = (&mut plan.header, &mut plan.part);
    if dice.below(3) == 0 {
        let mut fields = vec![
            &mut h.ranks,
            &mut h.root,
            &mut h.chunks,
            &mut h.blocks,
            &mut h.input_chunks,
            &mut h.output_chunks,
            &mut h.slots,
            &mut h.pipeline,
            &mut h.message,
            &mut part.rank,
        ];
        fields.extend(&mut h.scratch);
        fields.extend(part.conns.iter_mut().flat_map(|c| [&mut c.peer, &mut c.messages]));
        fields.extend(h.split.iter_mut().flat_map(|s| [&mut s.units, &mut s.parts]));
        let at = dice.below(fields.len());
        *fields[at] = number(*fields[at], dice);
        return;
    }
    if part.lanes.is_empty() {
        return;
    }
    let lane = dice.below(part.lanes.len());
    let lane = &mut part.lanes[lane];
    if dice.below(12) == 0 {
        lane.part = lane.part.is_none().then_some(small(0, dice));
    }
    if lane.ops.is_empty() {
        return;
    }
    let op = dice.below(lane.ops.len());
    alter_op(&mut lane.ops[op], dice);
}

fn alter_op(op: &mut PlanOperation, dice: &mut SeededRandom) {
    match dice.below(10) {
        0 => op.site = number(op.site, dice),
        1 => op.after.push(OpRef { lane: small(0, dice), op: number(0, dice) }),
        2 => op.drained.push(MessageRef { conn: number(0, dice), message: number(0, dice) }),
        3 => op.sizes = ChunkSizes::Full(number(1, dice)),
        4 => drop(op.inputs.pop()),
        5 => {
            for out in &mut op.outs {
                out.origin = number(out.origin, dice);
            }
        }
        _ => {
            let mut sets: Vec<&mut ChunkSet> = Vec::new();
            if let ChunkSizes::Of(of) = &mut op.sizes {
                sets.extend(of);
            }
            let inputs = op.inputs.iter_mut().filter_map(|input| match input {
                OperationInput::Local(region) => Some(region),
                OperationInput::Message { pull, .. } => pull.as_mut(),
            });
            let stores = op.store.iter_mut().map(|s| &mut s.region);
            let offers = op.outs.iter_mut().filter_map(|out| out.pull.as_mut());
            for piece in inputs.chain(stores).chain(offers).flat_map(|r| &mut r.pieces) {
                if dice.below(16) == 0 {
                    piece.buf = [
                        PlanBuffer::Data,
                        PlanBuffer::Input,
                        PlanBuffer::Output,
                        PlanBuffer::Scratch(0),
                    ][dice.below(4)];
                }
                sets.push(&mut piece.set);
            }
            if sets.is_empty() {
                return;
            }
            // One set, or the same change in all.
            let (at, all) = (dice.below(sets.len()), dice.below(3) == 0);
            let (field, seed) = (dice.below(5), dice.0);
            for (i, set) in sets.into_iter().enumerate() {
                if all || i == at {
                    let fields = [
                        &mut set.start,
                        &mut set.block,
                        &mut set.stride,
                        &mut set.total,
                        &mut set.modulus,
                    ];
                    for (j, value) in fields.into_iter().enumerate() {
                        if j == field {
                            *value = number(*value, &mut SeededRandom(seed));
                        }
                    }
                }
            }
        }
    }
}
