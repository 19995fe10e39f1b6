//! A device program as text.

use std::fmt::{Display, Formatter, Result};

use super::program::{
    DeviceEvent, DeviceMessage, DeviceProgram, DeviceTask, DeviceWait, TaskInput, TaskOutput,
};
use crate::num::index;
use crate::plan::{ChunkSizes, MessageDirection, WireType};

impl Display for DeviceProgram {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let h = &self.header;
        writeln!(
            f,
            "device program {}.{} rank {} of {}, {}",
            h.collective, h.algorithm, self.rank, h.ranks, self.protocol
        )?;
        writeln!(
            f,
            "  {:?}  chunks {}  staging {}{}{}",
            h.placement,
            h.chunks,
            self.staging,
            if self.far > 0 { format!("  far {}", self.far) } else { String::new() },
            if self.synchronizes { "  synchronizes" } else { "" }
        )?;
        for link in &self.links {
            let messages =
                format!("{} message{}", link.messages, if link.messages == 1 { "" } else { "s" });
            write!(f, "  link {}: {messages}", self.end(link.peer, link.channel, link.dir))?;
            if link.far {
                write!(f, ", far")?;
            }
            match link.slots {
                0 => writeln!(f)?,
                slots => writeln!(f, ", {slots} x {} chunks at {}", link.chunks, link.base)?,
            }
        }
        let peers: Vec<String> = self.greets.iter().map(|p| format!("r{p}")).collect();
        if !peers.is_empty() {
            writeln!(f, "  greets {}", peers.join(" "))?;
        }
        for (i, phase) in self.phases.iter().enumerate() {
            writeln!(f, "phase {i}")?;
            for task in &phase.tasks {
                self.task(f, task)?;
            }
            if phase.block_barrier {
                writeln!(f, "  block barrier")?;
            }
            for s in &phase.signals {
                let sent = self
                    .links
                    .get(index(s.message.link))
                    .is_some_and(|l| l.dir == MessageDirection::Send);
                let what = if sent { "sent" } else { "consumed" };
                writeln!(
                    f,
                    "  tell {what} {}{}",
                    self.message(s.message),
                    order(s.release, "release")
                )?;
            }
        }
        if !self.leave.is_empty() {
            writeln!(f, "leave\n  wait {}", self.waits(&self.leave))?;
        }
        Ok(())
    }
}

/// Returns the remark on a wait or signal that orders nothing.
fn order(ordered: bool, what: &str) -> String {
    if ordered { String::new() } else { format!(" (no {what})") }
}

impl DeviceProgram {
    fn end(&self, peer: u32, channel: u16, dir: MessageDirection) -> String {
        let way = if dir == MessageDirection::Send { "to" } else { "from" };
        let channel = if channel == 0 { String::new() } else { format!("/{channel}") };
        format!("{way} r{peer}{channel}")
    }

    fn message(&self, m: DeviceMessage) -> String {
        match self.links.get(index(m.link)) {
            Some(l) => format!("#{} {}", m.index, self.end(l.peer, l.channel, l.dir)),
            None => format!("#{} of no link", m.index),
        }
    }

    fn waits(&self, waits: &[DeviceWait]) -> String {
        let texts = waits.iter().map(|w| {
            let event = match w.event {
                DeviceEvent::Entered { peer } => format!("entered r{peer}"),
                DeviceEvent::Sent(m) => format!("sent {}", self.message(m)),
                DeviceEvent::Consumed(m) => format!("consumed {}", self.message(m)),
                DeviceEvent::Room(m) => format!("room {}", self.message(m)),
            };
            event + &order(w.acquire, "acquire")
        });
        texts.collect::<Vec<_>>().join(", ")
    }

    fn task(&self, f: &mut Formatter<'_>, task: &DeviceTask) -> Result {
        let wire = |w: &Option<WireType>| w.map_or(String::new(), |w| format!(" as {}", w.name()));
        let mut parts: Vec<String> = Vec::new();
        if !task.waits.is_empty() {
            parts.push(format!("wait {}:", self.waits(&task.waits)));
        }
        for (i, input) in task.inputs.iter().enumerate() {
            if i > 0 {
                parts.push("+".into());
            }
            parts.push(match input {
                TaskInput::Local(r) => r.to_string(),
                TaskInput::Packet(m, w) => format!("<packet {}{}>", self.message(*m), wire(w)),
                TaskInput::Staged(m, w) => format!("<staged {}{}>", self.message(*m), wire(w)),
                TaskInput::Pulled(m, r) => format!("<{r} of {}>", self.message(*m)),
            });
        }
        if let Some(region) = &task.store {
            parts.push(format!("=> {region}"));
        }
        for out in &task.outs {
            parts.push(match out {
                TaskOutput::Packet(m, w) => format!("=> <packet {}{}>", self.message(*m), wire(w)),
                TaskOutput::Staged(m, w) => format!("=> <staged {}{}>", self.message(*m), wire(w)),
                TaskOutput::Landed(m, r) => format!("=> <{r}, {}>", self.message(*m)),
            });
        }
        if let ChunkSizes::Full(n) = task.sizes {
            parts.push(format!(" [{n} full]"));
        }
        let line = self.sites.get(index(task.site)).map_or(0, |s| s.line);
        writeln!(f, "  {}  ; line {line}", parts.join(" "))
    }
}
