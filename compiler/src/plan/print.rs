//! A plan as text.

use crate::num::index;
use std::fmt::{Display, Formatter, Result, Write};

use super::{
    ChunkSizes, MessageDirection, OperationInput, Plan, PlanBuffer, PlanOperation, PlanRegion,
    UnprovedPlan, WeightedSplit, WireType,
};

impl Display for PlanRegion {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, p) in self.pieces.iter().enumerate() {
            if i > 0 {
                f.write_str(" + ")?;
            }
            match p.buf {
                PlanBuffer::Data => f.write_str("data")?,
                PlanBuffer::Input => f.write_str("input")?,
                PlanBuffer::Output => f.write_str("output")?,
                PlanBuffer::Scratch(s) => write!(f, "scratch{s}")?,
            }
            write!(f, "[{}]", p.set)?;
        }
        Ok(())
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(&**self, f)
    }
}

impl Display for UnprovedPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (h, part) = (&self.header, &self.part);
        let hash: String = h.hash.iter().fold(String::new(), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        });
        writeln!(f, "plan {}.{} rank {} of {}", h.collective, h.algorithm, part.rank, h.ranks)?;
        writeln!(
            f,
            "  hash {hash}  {:?}  chunks {}  blocks {}  slots {}  pipeline {}  message {}",
            h.placement, h.chunks, h.blocks, h.slots, h.pipeline, h.message
        )?;
        if !h.scratch.is_empty() {
            writeln!(f, "  scratch {:?}", h.scratch)?;
        }
        if let Some(WeightedSplit { units, parts, .. }) = &h.split {
            writeln!(f, "  split {units} x {parts} by shares")?;
        }
        for (i, lane) in part.lanes.iter().enumerate().filter(|(_, l)| !l.ops.is_empty()) {
            let of = lane.part.map_or(String::new(), |p| format!(" part {p}"));
            writeln!(f, "lane {i}{of}")?;
            for (k, op) in lane.ops.iter().enumerate() {
                write!(f, "  {k:>3}: ")?;
                self.op_text(f, op)?;
            }
        }
        Ok(())
    }
}

impl UnprovedPlan {
    fn op_text(&self, f: &mut Formatter<'_>, op: &PlanOperation) -> Result {
        let wire = |w: Option<WireType>| w.map_or(String::new(), |w| format!(" as {}", w.name()));
        let end = |conn: u32| {
            let c = self.part.conns[index(conn)];
            let lane = if c.channel == 0 { String::new() } else { format!("/{}", c.channel) };
            let path = if c.path == 0 { String::new() } else { format!(" via {}", c.path) };
            match c.dir {
                MessageDirection::Send => format!("to r{}{lane}{path}", c.peer),
                MessageDirection::Recv => format!("from r{}{lane}{path}", c.peer),
            }
        };
        let mut parts = Vec::new();
        for input in &op.inputs {
            parts.push(match input {
                OperationInput::Local(r) => r.to_string(),
                OperationInput::Message { conn, wire: w, .. } => {
                    format!("<{}{}>", end(*conn), wire(*w))
                }
            });
        }
        write!(f, "{}", parts.join(" + "))?;
        if let Some(store) = &op.store {
            write!(f, " => {}{}", store.region, if store.dead { " (dead)" } else { "" })?;
        }
        for out in &op.outs {
            write!(
                f,
                " => <{}{}{}>",
                end(out.conn),
                wire(out.wire),
                if out.pull.is_some() { ", may be pulled" } else { "" }
            )?;
        }
        if let ChunkSizes::Full(n) = op.sizes {
            write!(f, "  [{n} full]")?;
        }
        for a in &op.after {
            write!(f, "  after {}:{}", a.lane, a.op)?;
        }
        for m in &op.drained {
            write!(f, "  drained #{} {}", m.message, end(m.conn))?;
        }
        let site = &self.part.sites[index(op.site)];
        writeln!(f, "  ; line {}", site.line)
    }
}
