//! The resolved program: names are slots, types are checked, `each` bodies are flat lists of rules.
//!
//! Still symbolic: no rank count is known here. [`crate::walk`] executes it for one. What is serialised
//! is what decides the plans, wherever and however it was written: the identity of plans is a hash of it.

mod expression;
mod kind;
mod parameter;

use std::sync::Arc;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::{SourceId, Span};
use serde::Serialize;

use crate::plan::{BufferPlacement, CopyPolicy, WireType};
pub use expression::{
    BUILTINS, BuiltinFunction, ChunkIndex, ExprNode, RankAxes, RankExpr, RuleBinder, Slot, SlotExpr,
};
pub use kind::{COLLECTIVES, CollectiveKind, CustomCollective, EnsureClause};
pub use parameter::{ArgumentValue, ArgumentedName, ProgramParameter};

/// An algorithm, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Program {
    /// Its name, with the arguments that are not the default of their parameter: `k_nomial(k = 4)`.
    pub name: String,
    /// The collective that it claims to implement.
    pub kind: CollectiveKind,
    /// Its ranks.
    pub axes: RankAxes,
    /// Conditions on the shape, in order.
    #[serde(skip)]
    pub requires: Vec<SlotExpr>,
    /// True if it needs a commutative operator (`requires commutative(op)`).
    pub commutative: bool,
    /// Failed ranks that it goes on without, if it says so. It changes no plan: without a failure, plans are executed
    /// as those of any other algorithm.
    #[serde(skip)]
    pub tolerates: Option<SlotExpr>,
    /// Chunks of the whole vector.
    pub chunks: Option<SlotExpr>,
    /// Scratch buffers and their chunks.
    pub scratch: Vec<(String, SlotExpr)>,
    /// The buffers that it names: `data`, or `input` and `output`.
    pub style: BufferStyle,
    /// The statements.
    pub body: Vec<ProgramStmt>,
    /// The schedule by which it is run.
    pub schedule: ProgramSchedule,
    /// Names of the variables, by slot; empty for those that the user cannot see.
    #[serde(skip)]
    pub slots: Vec<String>,
    /// Slot of `root`.
    pub root: Slot,
    /// Slots of the coordinates of a group, one an axis (set where the program is used `over` an
    /// axis of this one).
    pub coordinates: Vec<Slot>,
    /// Its parameters, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ProgramParameter>,
    /// Span of the header.
    #[serde(skip)]
    pub header: Span,
    /// True if a `use` or a `split` occurs in it.
    pub composed: bool,
    /// The blocks around its deepest statement, in algorithms that it uses too: at most [`roundelay_dsl::MAX_DEPTH`].
    #[serde(skip)]
    pub height: usize,
    /// All texts that it depends on, ascending.
    #[serde(skip)]
    pub sources: Vec<SourceId>,
}

impl Program {
    /// Returns the name without arguments, as the text declares it.
    pub fn declared_name(&self) -> &str {
        self.name.split_once('(').map_or(&self.name, |(name, _)| name)
    }

    /// Returns the program with other values for some of its parameters; the others keep theirs.
    ///
    /// # Errors
    ///
    /// RL0215 for an argument that is no parameter or out of its bounds, RL0204 for one that is given twice, RL0206 for
    /// a number in place of a truth value or the other way round.
    pub fn with_arguments(
        self: &Arc<Self>,
        arguments: &[(String, ArgumentValue)],
    ) -> Result<Arc<Self>, Box<Diagnostic>> {
        if arguments.is_empty() {
            return Ok(self.clone());
        }
        let mut program = Program::clone(self);
        for (i, (name, value)) in arguments.iter().enumerate() {
            if arguments[..i].iter().any(|(before, _)| before == name) {
                let message = format!("argument `{name}` is given twice");
                let d = Diagnostic::error(codes::DUPLICATE_NAME, message);
                return Err(Box::new(d.help("give each parameter one value")));
            }
            match program.parameters.iter_mut().find(|p| p.name == *name) {
                None => return Err(Box::new(self.unknown_parameter(name))),
                Some(parameter) => match parameter.refusal(*value) {
                    Some(refusal) => return Err(Box::new(refusal)),
                    None => parameter.value = *value,
                },
            }
        }
        let others = program.parameters.iter().filter(|p| p.value != p.default);
        let arguments = others.map(|p| (p.name.clone(), p.value)).collect();
        let name = self.declared_name().into();
        program.name = ArgumentedName { name, arguments }.to_string();
        Ok(Arc::new(program))
    }

    /// Returns the fault of an argument for a parameter that there is not.
    pub fn unknown_parameter(&self, name: &str) -> Diagnostic {
        let (collective, own) = (self.kind.name(), self.declared_name());
        let d = Diagnostic::error(
            codes::ARGUMENT,
            format!("`{collective}.{own}` has no parameter `{name}`"),
        );
        let d = d.label(self.header, "declared here");
        let known: Vec<&str> = self.parameters.iter().map(|p| p.name.as_str()).collect();
        match similar(name, known.iter().copied()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None if known.is_empty() => d.help("it has no parameters: leave the argument out"),
            None => d.help(format!("its parameters are {}", known.join(", "))),
        }
    }

    /// Returns the split by bandwidth that the program is, if it is one.
    pub fn weighted(&self) -> Option<&PartSplit> {
        self.body.iter().find_map(|s| match s {
            ProgramStmt::Split(split) if split.weighted => Some(&**split),
            _ => None,
        })
    }
}

/// The user buffers that a program names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum BufferStyle {
    /// `data`, in place.
    Data,
    /// `input` and `output`.
    InputOutput,
}

impl BufferStyle {
    /// Returns the placements that a program can be lowered to.
    pub fn placements(self) -> &'static [BufferPlacement] {
        match self {
            BufferStyle::Data => &[BufferPlacement::InPlace, BufferPlacement::OutOfPlace],
            BufferStyle::InputOutput => &[BufferPlacement::OutOfPlace],
        }
    }
}

/// The schedule block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramSchedule {
    /// Least number of passes.
    pub pipeline: Option<SlotExpr>,
    /// Parallel copies.
    pub channels: Option<SlotExpr>,
    /// Messages in flight a connection.
    pub slots: Option<SlotExpr>,
    /// The policy by which messages travel.
    pub protocol: CopyPolicy,
    /// Span of the block.
    #[serde(skip)]
    pub span: Option<Span>,
}

/// A statement outside of `each`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ProgramStmt {
    /// A variable.
    Let(Slot, SlotExpr),
    /// A loop.
    For {
        /// The loop variable.
        slot: Slot,
        /// First value.
        from: SlotExpr,
        /// One past the last value.
        to: SlotExpr,
        /// The body.
        body: Vec<ProgramStmt>,
    },
    /// A choice.
    If {
        /// The condition.
        cond: SlotExpr,
        /// The statements if it is true.
        then: Vec<ProgramStmt>,
        /// The statements if it is false.
        otherwise: Vec<ProgramStmt>,
    },
    /// A simultaneous round.
    Each(EachRules),
    /// A sub-algorithm.
    Use(Box<AlgorithmUse>),
    /// Independent parts.
    Split(Box<PartSplit>),
}

/// One `each`, as rules that every rank follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EachRules {
    /// The linear rank.
    pub var: Slot,
    /// The transfers.
    pub rules: Vec<TransferRule>,
    /// Slots whose values depend on the rank, with their definitions, for the solver.
    pub defs: Vec<(Slot, SlotExpr)>,
    /// A transfer outside `each`: it happens once, not once a rank.
    pub once: bool,
    /// Span of the header.
    #[serde(skip)]
    pub span: Span,
}

/// One transfer of an `each`, with what leads to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferRule {
    /// In order.
    pub binders: Vec<RuleBinder>,
    /// True if all loop bounds are the same for every rank.
    pub uniform: bool,
    /// Reads here.
    pub src: RankExpr,
    /// Writes there.
    pub dst: RankExpr,
    /// Copy or reduce.
    pub op: TransferOp,
    /// Read at `src`.
    pub from: RegionExpr,
    /// Written at `dst`.
    pub to: RegionExpr,
    /// Narrower type on the wire.
    pub wire: Option<WireType>,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}

/// A region of a buffer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegionExpr {
    /// The buffer.
    pub buf: ProgramBuffer,
    /// The chunks.
    pub index: ChunkIndex,
    /// Span of the region.
    #[serde(skip)]
    pub span: Span,
}

/// A buffer as the program names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ProgramBuffer {
    /// `data`
    Data,
    /// `input`
    Input,
    /// `output`
    Output,
    /// A scratch buffer of the program.
    Scratch(u16),
}

/// `use`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmUse {
    /// The sub-algorithm.
    pub program: Arc<Program>,
    /// Index of the axis along which groups are formed.
    pub over: Option<usize>,
    /// Its `data` or `input`.
    pub on: Option<RegionExpr>,
    /// Its `output`.
    pub to: Option<RegionExpr>,
    /// Its root.
    pub root: Option<SlotExpr>,
    /// The path between hosts that it rides; that of the statement around it, if absent.
    pub via: Option<SlotExpr>,
    /// Values for its parameters, by index; they depend on sizes and parameters of this program only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<(usize, SlotExpr)>,
    /// Number of the statement among those of the program that have parts.
    pub site: u32,
    /// Span of the statement.
    #[serde(skip)]
    pub span: Span,
}

/// `split`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartSplit {
    /// Number of the part.
    pub slot: Slot,
    /// Bounds; `None` is one part a path.
    pub range: Option<(SlotExpr, SlotExpr)>,
    /// True if shares cut it, `by bandwidth`, and not evenly. The parts are paths then, and the statement is
    /// the only one of its program that moves anything.
    pub weighted: bool,
    /// The body.
    pub body: Vec<ProgramStmt>,
    /// Number of the statement among those of the program that have parts.
    pub site: u32,
    /// Span of the header.
    #[serde(skip)]
    pub span: Span,
}
