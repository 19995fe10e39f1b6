//! Finds which algorithm is meant before a job, and proves it.

use roundelay::RedOp;
use roundelay::choose::DecidedBy;
use roundelay::choose::ProtocolChoice;
use roundelay_compiler::postcondition;
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::verify::ProofFacts;
use roundelay_compiler::{BufferPlacement, Plan, Program, ProvedPlans, Shape, UnprovedPlan};
use roundelay_dsl::diag::codes;

use super::{JobEntry, data};
use crate::args::{JobArgs, TargetArgs, argumented};
use crate::choice;
use crate::hints;
use crate::load::{collective, is_collective, is_file, load_one, placement, proved};
use crate::report::{VerbError, fault, refused};

/// An algorithm that was proved for a job.
pub(crate) struct JobProof {
    /// The entry of the job that the ranks receive.
    pub(crate) entry: JobEntry,
    /// Its name.
    pub(crate) algorithm: String,
    /// The collective.
    pub(crate) collective: String,
    /// The file that it comes from, if it does.
    pub(crate) file: Option<String>,
    /// True if it sums.
    pub(crate) reduces: bool,
    /// Blocks of the vector: a size of B bytes is `B / blocks / size` elements of the count.
    pub(crate) blocks: u32,
    /// The results of the proof, in words.
    pub(crate) words: String,
    /// The plans of the ranks, without names and source lines.
    pub(crate) plans: Vec<UnprovedPlan>,
}

/// The reason why an algorithm is run.
pub(crate) struct ChoiceReason {
    /// The source of the decision.
    pub(crate) source: DecidedBy,
    /// The grid of the ranks.
    pub(crate) shape: Shape,
    /// The protocol and the blocks with which GPUs are to run it, if they are known.
    pub(crate) how: Option<ProtocolChoice>,
}

/// Returns true if the target is a collective, for which an algorithm is to be chosen.
pub(crate) fn is_choice(target: &TargetArgs) -> bool {
    is_collective(&target.target) && target.algorithm.is_none()
}

/// Returns a target for each combination of values of parameters; a collective whose algorithm is to be chosen takes
/// none.
pub(crate) fn instances(target: &TargetArgs) -> Result<Vec<TargetArgs>, VerbError> {
    let name = argumented(&target.target).map_err(VerbError::Usage)?.name;
    let chosen = is_collective(&name) && target.algorithm.is_none();
    let instances = target.instances().map_err(VerbError::Usage)?;
    match instances.as_slice() {
        [first, ..] if chosen && first.target.contains('(') => Err(VerbError::Usage(format!(
            "the algorithm of {name} is chosen with its arguments: name the one that shall have others, as \
             in `{name}.NAME -p k=4`"
        ))),
        _ => Ok(instances),
    }
}

/// Returns the algorithm to be run for a target at a size: its own, or the one that is chosen.
pub(crate) fn resolve(
    target: &TargetArgs,
    shape: Option<&Shape>,
    bytes: u64,
    job_args: &JobArgs,
) -> Result<(TargetArgs, Option<ChoiceReason>), VerbError> {
    let mut chosen = None;
    let mut name = target.target.clone();
    if is_collective(&name) {
        let algorithm = match &target.algorithm {
            Some(algorithm) => algorithm.clone(),
            None => {
                let choice = choice::of_call(&name, target.root, shape, bytes, job_args)?;
                let (source, shape, how) = (choice.source, choice.shape, choice.how);
                chosen = Some(ChoiceReason { source, shape, how });
                choice.entry.name.into()
            }
        };
        name = format!("{name}.{algorithm}");
    }
    let algorithm = target.algorithm.clone();
    let paths = match target.paths {
        1 => hints::costs(&hints::merged(&hints::texts(job_args))?)?.len().clamp(1, 8) as u32,
        paths => paths,
    };
    Ok((TargetArgs { algorithm, paths, ..TargetArgs::of(name, None, target.root) }, chosen))
}

/// Fails unless the postconditions of a declared collective, by which results are judged, can be evaluated
/// for every rank.
fn answers(program: &Program, shape: &Shape) -> Result<(), VerbError> {
    let CollectiveKind::Custom(custom) = &program.kind else { return Ok(()) };
    for rank in 0..u32::try_from(shape.ranks()).unwrap_or(u32::MAX) {
        postcondition::asked(custom, &shape.axes, rank).map_err(|why| {
            let text =
                format!("what {} asks of rank {rank} cannot be evaluated: {why}", custom.name);
            VerbError::Usage(text)
        })?;
    }
    Ok(())
}

/// Proves an algorithm for a job.
pub(crate) fn prove(
    target: &TargetArgs,
    shape: &Shape,
    job_args: &JobArgs,
) -> Result<JobProof, VerbError> {
    let (sources, program) = load_one(target)?;
    let placement = placement(program.kind.name(), job_args.in_place, job_args.out_of_place);
    let proved = match proved(&program, &sources, shape, &target.options(), placement) {
        Ok(proved) => proved,
        Err(found) => return Err(VerbError::Input(Box::new(sources), found)),
    };
    answers(&program, shape)?;
    let header = proved.plans().first().map(|p| p.header.clone());
    let Some(header) = header else { return Err(VerbError::Usage("no ranks".into())) };
    let wire = wire(&proved);
    let name = format!("{}.{}", header.collective, header.algorithm);
    if wire > 0.0 && !lossy_allowed(job_args) {
        return Err(refused(fault(
            codes::UNSUPPORTED,
            format!(
                "{name} rounds on the wire, which is for sums of floats; this is {} of {}",
                job_args.op, job_args.dtype
            ),
        )));
    }
    let facts = proved.facts();
    let words = words(&name, shape, facts, header.chunks);
    let entry = JobEntry {
        target: target.target.clone(),
        algorithm: target.algorithm.clone(),
        paths: target.paths,
        shape: shape.to_string(),
        in_place: header.placement == BufferPlacement::InPlace,
        bitwise: facts.bitwise == Some(true) && header.collective == "all_reduce",
        wire,
    };
    let plans = proved.into_plans().into_iter().map(bare).collect();
    let (algorithm, collective) = (header.algorithm, header.collective);
    let (reduces, blocks) = (header.reduces, header.blocks);
    let name = argumented(&target.target).map_err(VerbError::Usage)?.name;
    let file = is_file(&name).then_some(name);
    Ok(JobProof { entry, algorithm, collective, file, reduces, blocks, words, plans })
}

/// Returns a plan without what says where it came from: equal for algorithms that do the same.
fn bare(plan: Plan) -> UnprovedPlan {
    let mut plan = plan.into_unproved();
    (plan.header.hash, plan.header.algorithm) = Default::default();
    plan.part.sites.clear();
    for op in plan.part.lanes.iter_mut().flat_map(|lane| &mut lane.ops) {
        (op.site, op.round) = (0, 0);
    }
    plan
}

/// Summarizes the proof in a line.
fn words(name: &str, shape: &Shape, facts: &ProofFacts, chunks: u32) -> String {
    let several = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (rounds, messages) =
        (several(facts.depth.into(), "round"), several(facts.messages, "message"));
    let ranks = if shape.ranks() == 1 { "rank" } else { "ranks" };
    let mut words = format!("{name} on {shape} {ranks}: proved, {rounds}, {messages}");
    if !name.starts_with("barrier.") {
        let sent = facts.sent as f64 / f64::from(chunks.max(1));
        words += &format!(", a rank sends at most {sent:.3} vectors");
    }
    let kind = name.split_once('.').and_then(|(name, _)| collective(name));
    match kind {
        Some(kind) if kind.is_ordered() => words += ", in the order of ranks",
        Some(_) if facts.bitwise == Some(true) => words += ", bitwise equal on all ranks",
        _ => {}
    }
    words
}

fn lossy_allowed(job_args: &JobArgs) -> bool {
    job_args.dtype.is_float() && matches!(job_args.op, RedOp::Sum | RedOp::Avg | RedOp::PremulSum)
}

/// Returns the coarsest rounding of a message.
fn wire(proved: &ProvedPlans) -> f64 {
    let wires = proved.graph().graph.node_weights().filter_map(|t| t.wire);
    wires.map(data::wire_epsilon).fold(0.0, f64::max)
}
