//! The canonical text of a program: what a certificate says of it, and is hashed.
//!
//! The text has the resolved program with the programs that it uses in place, one statement a line. Every operation has
//! parentheses, and every variable a letter for its kind and a number, so that neither layout nor names of the source
//! matter.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp;

use crate::all_n::fragment::flatten::{FlatProgram, FlatStatement};
use crate::program::{
    BufferStyle, ChunkIndex, CollectiveKind, EachRules, ExprNode, ProgramBuffer, RegionExpr,
    RuleBinder, Slot, SlotExpr, TransferRule,
};

use super::plain::PlainProgram;
use super::words::{parts, show};

/// The names that texts give to variables.
#[derive(Debug, Clone, Default)]
pub(super) struct CanonicalNames {
    names: BTreeMap<Slot, String>,
    counts: BTreeMap<char, usize>,
}

impl CanonicalNames {
    /// Returns the name of a variable, which gets one if it has none.
    fn name(&mut self, slot: Slot, letter: char) -> String {
        let count = self.counts.entry(letter).or_default();
        let name = self.names.entry(slot).or_insert_with(|| {
            *count += 1;
            format!("{letter}{count}")
        });
        name.clone()
    }

    /// Writes an expression.
    pub(super) fn write(&mut self, e: &SlotExpr) -> String {
        self.name_inner(e);
        show(e, &|slot| self.names.get(&slot).map_or_else(|| format!("x{slot}"), Clone::clone))
    }

    fn name_inner(&mut self, e: &SlotExpr) {
        if let ExprNode::Let(slot, ..) = e.node {
            self.name(slot, 'v');
        }
        parts(e).into_iter().for_each(|part| self.name_inner(part));
    }
}

/// The text of a program.
#[derive(Debug, Clone)]
pub(super) struct ProgramText {
    pub(super) text: String,
    pub(super) names: CanonicalNames,
}

/// Writes a program.
pub(super) fn write_program(flat: &FlatProgram, plain: &PlainProgram) -> ProgramText {
    let mut names = CanonicalNames::default();
    let place = plain.place;
    let fixed = [
        (0, "n"),
        (plain.root, "root"),
        (place.rank, "q"),
        (place.chunk, "c"),
        (place.of, "j"),
        (place.began, "e"),
        (place.token, "t"),
    ];
    names.names.extend(fixed.map(|(slot, name)| (slot, name.to_owned())));
    let mut writer = CanonicalWriter(ProgramText { text: String::new(), names });
    writer.header(plain);
    writer.statements(&flat.statements);
    writer.0
}

/// Returns the name of a buffer.
pub(super) fn buffer_name(buffer: ProgramBuffer) -> String {
    match buffer {
        ProgramBuffer::Data => "data".into(),
        ProgramBuffer::Input => "input".into(),
        ProgramBuffer::Output => "output".into(),
        ProgramBuffer::Scratch(at) => format!("scratch{at}"),
    }
}

struct CanonicalWriter(ProgramText);

impl CanonicalWriter {
    fn line(&mut self, line: &str) {
        self.0.text.push_str(line);
        self.0.text.push('\n');
    }

    fn header(&mut self, plain: &PlainProgram) {
        let is_data = plain.buffers[0].name == ProgramBuffer::Data;
        let style = if is_data { BufferStyle::Data } else { BufferStyle::InputOutput };
        let buffers = match style {
            BufferStyle::Data => "data",
            BufferStyle::InputOutput => "input and output",
        };
        self.line(&format!("program {} of {buffers}", plain.kind.name()));
        for (slot, value) in &plain.constants {
            let name = self.0.names.name(*slot, 'k');
            self.line(&format!("parameter {name} = {value}"));
        }
        for condition in &plain.requires {
            let condition = self.0.names.write(condition);
            self.line(&format!("requires {condition}"));
        }
        // Where the first buffer has one block, the second has all chunks.
        let is_block = matches!(plain.kind, CollectiveKind::AllGather | CollectiveKind::Gather);
        let whole = &plain.buffers[usize::from(is_block && style == BufferStyle::InputOutput)];
        let chunks = self.0.names.write(&whole.size);
        self.line(&format!("chunks {chunks}"));
        for buffer in &plain.buffers {
            if let ProgramBuffer::Scratch(_) = buffer.name {
                let size = self.0.names.write(&buffer.size);
                self.line(&format!("scratch {size}"));
            }
        }
        for (number, most) in &plain.schedule {
            let number = self.0.names.write(number);
            self.line(&format!("schedule {number} {most}"));
        }
    }

    fn statements(&mut self, statements: &[FlatStatement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &FlatStatement) {
        let names = &mut self.0.names;
        match statement {
            FlatStatement::Let(slot, e) => {
                let value = names.write(e);
                let name = names.name(*slot, 'v');
                self.line(&format!("let {name} = {value}"));
            }
            FlatStatement::Part(slot, range, _) => {
                let range = match range {
                    Some((from, to)) => format!("{}..{}", names.write(from), names.write(to)),
                    None => "paths".into(),
                };
                let name = names.name(*slot, 'k');
                self.line(&format!("part {name} in {range}"));
            }
            FlatStatement::Require(e) => {
                let condition = names.write(e);
                self.line(&format!("assert {condition}"));
            }
            FlatStatement::For { slot, from, to, body } => {
                let (from, to) = (names.write(from), names.write(to));
                let name = names.name(*slot, 's');
                self.line(&format!("for {name} in {from}..{to} {{"));
                self.statements(body);
                self.line("}");
            }
            FlatStatement::If { cond, then, otherwise } => {
                let condition = names.write(cond);
                self.line(&format!("if {condition} {{"));
                self.statements(then);
                self.line("} else {");
                self.statements(otherwise);
                self.line("}");
            }
            FlatStatement::Each(each) => self.round(each),
        }
    }

    fn round(&mut self, each: &EachRules) {
        let head = match each.once {
            true => "once {".into(),
            false => format!("each {} {{", self.0.names.name(each.var, 'r')),
        };
        self.line(&head);
        for rule in &each.rules {
            let rule = self.rule(rule);
            self.line(&rule);
        }
        self.line("}");
    }

    fn rule(&mut self, rule: &TransferRule) -> String {
        let names = &mut self.0.names;
        let mut text = String::new();
        for binder in &rule.binders {
            let binder = match binder {
                RuleBinder::Let(slot, e) => {
                    let value = names.write(e);
                    format!("let {} = {value}", names.name(*slot, 'v'))
                }
                RuleBinder::Where(e) => format!("where {}", names.write(e)),
                RuleBinder::For(slot, from, to) => {
                    let (from, to) = (names.write(from), names.write(to));
                    format!("for {} in {from}..{to}", names.name(*slot, 'p'))
                }
            };
            text.push_str(&binder);
            text.push(' ');
        }
        let (src, dst) = (names.write(&rule.src.linear), names.write(&rule.dst.linear));
        let (from, to) = (self.region(&rule.from), self.region(&rule.to));
        let wire = rule.wire.map_or(String::new(), |wire| format!(" as {}", wire.name()));
        let op = match rule.op {
            TransferOp::Copy => "copy",
            TransferOp::Reduce => "reduce",
        };
        format!("{text}{src} -> {dst} : {op} {from} -> {to}{wire}")
    }

    fn region(&mut self, region: &RegionExpr) -> String {
        let names = &mut self.0.names;
        let name = buffer_name(region.buf);
        let mut stride = |by: &Option<SlotExpr>, take: &Option<SlotExpr>| {
            let by = by.as_ref().map(|e| format!(" by {}", names.write(e)));
            let take = take.as_ref().map(|e| format!(" take {}", names.write(e)));
            by.unwrap_or_default() + &take.unwrap_or_default()
        };
        match &region.index {
            ChunkIndex::All => name,
            ChunkIndex::At(e) => format!("{name}[{}]", names.write(e)),
            ChunkIndex::Range { from, to, by, take } => {
                let stride = stride(by, take);
                format!("{name}[{}..{}{stride}]", names.write(from), names.write(to))
            }
            ChunkIndex::Cyclic { from, count, by, take } => {
                let stride = stride(by, take);
                format!("{name}[{} ..+ {}{stride}]", names.write(from), names.write(count))
            }
        }
    }
}
