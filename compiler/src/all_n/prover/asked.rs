//! The contents of the buffers before a program, and what is asked for at its end, of a generic place.

use roundelay_dsl::ast::BinOp;

use crate::all_n::fragment::refusal::{FragmentRefusal, FragmentResult};
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer, SlotExpr};

use super::plain::PlainProgram;

/// The knowledge of the places of one buffer, over the variables of a generic place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KnownPlaces {
    /// The places of which something is known: they hold a value.
    pub(super) stored: SlotExpr,
    /// The contributions in such a place.
    pub(super) content: SlotExpr,
    /// The number of the guess, where each contribution is said to be in one known place, and so has a token: the rank
    /// of that place, a variable of the contents.
    pub(super) token: Option<u32>,
}

/// Returns what the buffers hold before the program.
pub(super) fn initial_views(program: &PlainProgram) -> FragmentResult<Vec<KnownPlaces>> {
    let (w, place) = (program.writer, program.place);
    let (rank, chunk) = (w.var(place.rank), w.var(place.chunk));
    let own = w.and(&w.eq(&w.var(place.of), &rank), &w.eq(&w.var(place.began), &chunk));
    let is_data = style(program) == BufferStyle::Data;
    let stored = match program.kind {
        CollectiveKind::AllGather | CollectiveKind::Gather if is_data => w.eq(&chunk, &rank),
        CollectiveKind::Broadcast | CollectiveKind::Scatter => w.eq(&rank, &w.var(program.root)),
        CollectiveKind::SendRecv => w.eq(&rank, &w.int(0)),
        CollectiveKind::AllReduce
        | CollectiveKind::ReduceScatter
        | CollectiveKind::Reduce
        | CollectiveKind::AllToAll
        | CollectiveKind::AllGather
        | CollectiveKind::Gather
        | CollectiveKind::Scan
        | CollectiveKind::ExScan
        | CollectiveKind::Barrier => w.truth(true),
        CollectiveKind::Custom(_) => return Err(refused(program)),
    };
    let mut views = vec![KnownPlaces { stored, content: own.clone(), token: None }];
    let nothing = KnownPlaces { stored: w.truth(false), content: own, token: None };
    views.resize(program.buffers.len(), nothing);
    Ok(views)
}

/// Returns what the result's buffer must hold at the end: `stored` are the places that are asked for.
pub(super) fn asked_view(program: &PlainProgram) -> FragmentResult<KnownPlaces> {
    let (w, place) = (program.writer, program.place);
    let (rank, chunk, of) = (w.var(place.rank), w.var(place.chunk), w.var(place.of));
    let (began, root) = (w.var(place.began), w.var(program.root));
    let is_data = style(program) == BufferStyle::Data;
    let every = w.truth(true);
    let same = w.eq(&began, &chunk);
    // In a buffer of one block, block r of the vector is chunk 0.
    let own_block = if is_data { w.eq(&chunk, &rank) } else { every.clone() };
    let its_block = if is_data { same.clone() } else { w.eq(&began, &rank) };
    let gathered = match is_data {
        true => w.and(&w.eq(&of, &chunk), &same),
        false => w.and(&w.eq(&of, &chunk), &w.eq(&began, &w.int(0))),
    };
    let (stored, content) = match program.kind {
        CollectiveKind::AllReduce => (every, same),
        CollectiveKind::Reduce => (w.eq(&rank, &root), same),
        CollectiveKind::ReduceScatter => (own_block, its_block),
        CollectiveKind::Broadcast => (every, w.and(&w.eq(&of, &root), &same)),
        CollectiveKind::Scatter => (own_block, w.and(&w.eq(&of, &root), &its_block)),
        CollectiveKind::AllGather => (every, gathered),
        CollectiveKind::Gather => (w.eq(&rank, &root), gathered),
        CollectiveKind::AllToAll => (every, w.and(&w.eq(&of, &chunk), &w.eq(&began, &rank))),
        CollectiveKind::SendRecv => (w.eq(&rank, &w.int(1)), w.and(&w.eq(&of, &w.int(0)), &same)),
        CollectiveKind::Barrier => (every, same),
        CollectiveKind::Scan => (every, w.and(&w.op(BinOp::Le, &of, &rank), &same)),
        CollectiveKind::ExScan => (w.lt(&w.int(0), &rank), w.and(&w.lt(&of, &rank), &same)),
        CollectiveKind::Custom(_) => return Err(refused(program)),
    };
    Ok(KnownPlaces { stored, content, token: None })
}

fn style(program: &PlainProgram) -> BufferStyle {
    match program.buffers[0].name {
        ProgramBuffer::Data => BufferStyle::Data,
        _ => BufferStyle::InputOutput,
    }
}

fn refused(program: &PlainProgram) -> FragmentRefusal {
    FragmentRefusal::at(program.header, format!("a program for `{}`", program.kind.name()))
}
