//! Checks a plan before addresses are made of it, whatever its origin.

use roundelay_compiler::chunks::ChunkSet;
use roundelay_compiler::plan::{
    ChunkSizes, MessageDirection, OperationInput, Plan, PlanOperation, PlanRegion,
};

use super::shape::CallShape;
use roundelay_net::group::RankGroup;
use roundelay_net::transport::shm::RING;
use roundelay_support::error::Error;

/// Checks that a plan fits the job, and that its parts refer to each other.
pub(crate) fn references(plan: &Plan, group: &RankGroup) -> Result<(), Error> {
    let (header, part) = (&plan.header, &plan.part);
    let (rank, size, layout) = (group.rank(), group.size(), group.layout());
    if header.ranks != size || part.rank != rank {
        return Err(Error::Usage(format!(
            "the plan of {}.{} is rank {}'s of {}, and this is rank {rank} of {size}",
            header.collective, header.algorithm, part.rank, header.ranks
        )));
    }
    if header.slots == 0 || u64::from(header.slots) > RING {
        return Err(Error::Usage(format!(
            "{}.{} wants {} slots for a connection, and shared memory has {RING}: \
             schedule fewer `slots`",
            header.collective, header.algorithm, header.slots
        )));
    }
    for conn in &part.conns {
        if conn.peer >= header.ranks {
            return damaged(format!("it has a connection to rank {}", conn.peer));
        }
        let last = layout.batch_channel();
        if conn.channel >= last {
            return Err(Error::Usage(format!(
                "{}.{} uses channel {}, and plans may use those below {last}: schedule fewer \
                 `channels`",
                header.collective, header.algorithm, conn.channel
            )));
        }
    }
    let parts = header.split.as_ref().map_or(0, |split| split.parts);
    if part.lanes.iter().any(|lane| lane.part.is_some_and(|part| u32::from(part) >= parts)) {
        return damaged("a lane runs a part that does not exist".into());
    }
    let mut messages = vec![0u64; part.conns.len()];
    for op in part.lanes.iter().flat_map(|lane| &lane.ops) {
        operation(plan, op, &mut messages)?;
    }
    for (conn, messages) in part.conns.iter().zip(messages) {
        if messages != u64::from(conn.messages) {
            return damaged(format!(
                "{messages} operations use the connection to rank {} that announces {} messages",
                conn.peer, conn.messages
            ));
        }
    }
    Ok(())
}

fn operation(plan: &Plan, op: &PlanOperation, messages: &mut [u64]) -> Result<(), Error> {
    let (header, part) = (&plan.header, &plan.part);
    let mut end = |conn: u32, dir: MessageDirection| {
        match part.conns.get(conn as usize) {
            Some(c) if c.dir == dir => messages[conn as usize] += 1,
            _ => return damaged(format!("an operation uses connection {conn}, which it cannot")),
        }
        match op.sizes.chunks() <= header.message {
            true => Ok(()),
            false => damaged("a message has more chunks than the header allows".into()),
        }
    };
    if op.inputs.is_empty() {
        return damaged("an operation has no input".into());
    }
    for input in &op.inputs {
        if let OperationInput::Message { conn, .. } = input {
            end(*conn, MessageDirection::Recv)?;
        }
    }
    for (i, out) in op.outs.iter().enumerate() {
        end(out.conn, MessageDirection::Send)?;
        if op.outs[..i].iter().any(|o| o.conn == out.conn) {
            return damaged("an operation sends twice on one connection".into());
        }
        if let Some(region) = &out.pull {
            let first = region.pieces.first().map(|p| p.buf);
            if region.pieces.iter().any(|p| Some(p.buf) != first) {
                return damaged("memory offered for pulling lies in several buffers".into());
            }
        }
    }
    let lane = |r: &roundelay_compiler::plan::OpRef| part.lanes.get(usize::from(r.lane));
    if op.after.iter().any(|r| lane(r).is_none_or(|l| r.op as usize >= l.ops.len())) {
        return damaged("an operation waits for one that does not exist".into());
    }
    for message in &op.drained {
        match part.conns.get(message.conn as usize) {
            Some(c) if c.dir == MessageDirection::Send && message.message < c.messages => {}
            _ => return damaged("an operation waits for a message that is never sent".into()),
        }
    }
    Ok(())
}

/// Checks that a connection end is one lane's, as it must be in several passes: only within a lane is it
/// certain in which order the messages of different passes come.
pub(crate) fn lanes_apart(plan: &Plan) -> Result<(), Error> {
    let mut owners = vec![None; plan.part.conns.len()];
    for (lane, ops) in plan.part.lanes.iter().enumerate() {
        for op in &ops.ops {
            let received = op.inputs.iter().filter_map(|input| match input {
                OperationInput::Message { conn, .. } => Some(*conn),
                OperationInput::Local(_) => None,
            });
            for conn in received.chain(op.outs.iter().map(|out| out.conn)) {
                if *owners[conn as usize].get_or_insert(lane) != lane {
                    return damaged("two lanes share a connection in a plan of many passes".into());
                }
            }
        }
    }
    Ok(())
}

/// Checks that every chunk keeps to its own places, as it must with blocks of unequal length: what an
/// operation touches with the size of a chunk is that chunk, in every buffer. Plans of programs that only
/// speak of `data` are so; the proof of others holds only as long as chunks of different blocks are alike.
pub(crate) fn chunk_by_chunk(plan: &Plan, shape: &CallShape) -> Result<(), Error> {
    let sound = |set: &ChunkSet| set.modulus > 0 && (set.block > 0 || set.total == 0);
    let same = |region: &PlanRegion, chunks: &[u64]| {
        if !region.pieces.iter().all(|piece| sound(&piece.set)) {
            return false;
        }
        let at = region.iter().map(|(buf, c)| {
            let index = shape.index(buf)?;
            let whole = index < 3 || shape.buffers[index] == shape.chunks;
            whole.then(|| shape.vector_chunk(index, c.into()))
        });
        at.eq(chunks.iter().map(|&c| Some(c)))
    };
    let keeps = |op: &PlanOperation| {
        let ChunkSizes::Of(sets) = &op.sizes else { return false };
        if !sets.iter().all(|set| sound(set) && u64::from(set.modulus) == shape.chunks) {
            return false;
        }
        let chunks: Vec<u64> = sets.iter().flat_map(|s| s.iter()).map(u64::from).collect();
        let inputs = op.inputs.iter().all(|input| match input {
            OperationInput::Local(region) | OperationInput::Message { pull: Some(region), .. } => {
                same(region, &chunks)
            }
            OperationInput::Message { pull: None, .. } => true,
        });
        inputs
            && op.store.iter().all(|s| same(&s.region, &chunks))
            && op.outs.iter().filter_map(|o| o.pull.as_ref()).all(|r| same(r, &chunks))
    };
    match plan.part.lanes.iter().flat_map(|lane| &lane.ops).all(keeps) {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "{}.{} keeps chunks of one block in places of another, or in scratch of its own, and so \
             cannot be executed with blocks of unequal length: choose an algorithm that only moves \
             `data`",
            plan.header.collective, plan.header.algorithm
        ))),
    }
}

/// Returns the chunks of a region, as buffer and first element, each with room for its elements.
pub(super) fn places(
    shape: &CallShape,
    region: &PlanRegion,
    lens: &[u64],
) -> Result<Vec<(usize, u64)>, Error> {
    let mut places = Vec::with_capacity(lens.len());
    for piece in &region.pieces {
        let Some(index) = shape.index(piece.buf) else {
            return damaged(format!("it has no buffer {:?}", piece.buf));
        };
        if piece.set.modulus == 0 || (piece.set.block == 0 && piece.set.total > 0) {
            return damaged("it has a chunk set without chunks".into());
        }
        let (chunks, room) = (shape.buffers[index], shape.lens[index]);
        for chunk in piece.set.iter().map(u64::from) {
            let Some(&len) = lens.get(places.len()) else {
                return damaged("a region has more chunks than its operation".into());
            };
            let first = shape.offset(index, chunk.min(chunks));
            if chunk >= chunks || first + len > room {
                return damaged(format!("chunk {chunk} is not in {:?}", piece.buf));
            }
            places.push((index, first));
        }
    }
    match places.len() == lens.len() {
        true => Ok(places),
        false => damaged("a region has fewer chunks than its operation".into()),
    }
}

pub(super) fn damaged<T>(text: String) -> Result<T, Error> {
    Err(Error::Plan(text))
}
