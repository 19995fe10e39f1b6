//! Implements `roundelay show`: prints the stages of the compiler as text, or, with `--json`, as data
//! (`docs/json.md`).

mod ast;
mod program;
mod tree;

use std::path::Path;
use std::sync::Arc;

use roundelay_compiler::{Program, ProgramInstance, ProvedPlans, Shape, UnprovedPlan, project};
use roundelay_compiler::{device, graph};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_emit::cuda::{Element, KernelSpec, Operator, cuda};

use serde_json::{Value, json};

use crate::args::{CallArgs, CompilerStage, ShowArgs};
use crate::load::{LoadedInput, default_shape, load, load_one, placement, proved};
use crate::report::{VerbError, VerbReport, VerbResult, fault, print, refused, unwritten};
use crate::values::RankCounts;

/// Runs the verb.
pub(crate) fn show(args: &ShowArgs, report: VerbReport) -> VerbResult {
    if args.output.is_some() && args.stage != CompilerStage::Plan {
        let text = "-o writes a plan: leave --stage out, or redirect what is printed";
        return Err(VerbError::Usage(text.into()));
    }
    if args.stage == CompilerStage::Plan
        && let LoadedInput::Plan(plan) = load(&args.target)?
    {
        output(report, &plan.to_string(), || plan_data(&plan));
        return Ok(());
    }
    let (sources, program) = load_one(&args.target)?;
    match args.stage {
        CompilerStage::Ast => tree_of(&sources, &program, report),
        CompilerStage::Program => {
            output(report, &program::text(&program), || {
                let mut data = data("program", program.kind.name(), &program.name);
                data["variables"] = json!(program.slots);
                data["program"] = json!(program);
                data
            });
            Ok(())
        }
        CompilerStage::Graph
        | CompilerStage::Plan
        | CompilerStage::Device
        | CompilerStage::Cuda => {
            let wrapped = stage(args, report, &sources, &program);
            wrapped.map_err(|e| match e {
                StageError::Found(found) => VerbError::Input(Box::new(sources), found),
                StageError::Failure(failure) => failure,
            })
        }
    }
}

/// Returns the shape that was asked for, or the usual one.
pub(crate) fn one_shape(
    n: &Option<RankCounts>,
    program: &Arc<Program>,
) -> Result<Shape, VerbError> {
    match n.as_ref().map(|r| &r.shapes[..]) {
        None => Ok(default_shape(program)),
        Some([shape]) => Ok(shape.clone()),
        Some(_) => Err(VerbError::Usage("one rank count is wanted here, such as `-n 4`".into())),
    }
}

/// The reason why a stage cannot be shown.
enum StageError {
    Found(Diagnostics),
    Failure(VerbError),
}

impl From<Diagnostics> for StageError {
    fn from(found: Diagnostics) -> Self {
        StageError::Found(found)
    }
}

impl From<VerbError> for StageError {
    fn from(failure: VerbError) -> Self {
        StageError::Failure(failure)
    }
}

/// Says a stage: as text to people, as data to programs.
fn output(report: VerbReport, text: &str, data: impl FnOnce() -> Value) {
    match report.json {
        true => report.result(&data()),
        false => print(text),
    }
}

/// Returns the fields that all stages have.
fn data(stage: &str, collective: &str, algorithm: &str) -> Value {
    json!({ "stage": stage, "collective": collective, "algorithm": algorithm })
}

fn plan_data(plan: &UnprovedPlan) -> Value {
    let h = &plan.header;
    let mut data = data("plan", &h.collective, &h.algorithm);
    data["ranks"] = json!(h.ranks);
    data["rank"] = json!(plan.part.rank);
    data["hash"] = json!(h.hash.iter().map(|b| format!("{b:02x}")).collect::<String>());
    data["plan"] = json!(plan);
    data
}

fn tree_of(sources: &SourceMap, program: &Program, report: VerbReport) -> VerbResult {
    let tree = roundelay_dsl::parse(sources, program.header.source);
    let tree = tree.map_err(|found| VerbError::Input(Box::new(sources.clone()), found))?;
    output(report, &ast::text(&tree, sources), || {
        let mut data = data("ast", program.kind.name(), &program.name);
        data["file"] = json!(sources.get(program.header.source).name);
        data["tree"] = json!(tree);
        data
    });
    Ok(())
}

fn stage(
    args: &ShowArgs,
    report: VerbReport,
    sources: &SourceMap,
    program: &Arc<Program>,
) -> Result<(), StageError> {
    let shape = one_shape(&args.n, program)?;
    let options = args.target.options();
    let placement = placement(program.kind.name(), args.call.in_place, args.call.out_of_place);
    if args.stage == CompilerStage::Graph {
        let instance = Arc::new(ProgramInstance::new(program, &shape, &options)?);
        let graph = graph::unroll(&instance)?;
        let text = if args.dot { graph::dot(&graph) } else { graph::text(&graph, sources) };
        output(report, &text, || {
            let mut data = data("graph", program.kind.name(), &program.name);
            data["ranks"] = json!(shape.ranks());
            data["shape"] = json!(shape.to_string());
            data["chunks"] = json!(graph.instance.spec.chunks);
            data["rounds"] = json!(graph.rounds);
            data["steps"] = json!(graph::steps(&graph, sources));
            data
        });
        return Ok(());
    }
    let n = shape.ranks();
    rank_of(args.rank, n)?;
    if matches!(args.stage, CompilerStage::Device | CompilerStage::Cuda) {
        let proved = proved(program, sources, &shape, &options, placement)?;
        for p in lowered(&proved, args.call.protocol, args.rank)? {
            let stage = if args.stage == CompilerStage::Cuda { "cuda" } else { "device" };
            let mut data = data(stage, program.kind.name(), &program.name);
            (data["ranks"], data["rank"]) = (json!(n), json!(p.rank));
            data["way"] = json!(args.call.protocol.name());
            if args.stage == CompilerStage::Cuda {
                let kernel = kernel(args, &p)?;
                output(report, &kernel, || {
                    data["kernel"] = json!(kernel);
                    data
                });
            } else {
                output(report, &p.to_string(), || {
                    data["program"] = json!(*p);
                    data
                });
            }
        }
        return Ok(());
    }
    let Some(rank) = args.rank else {
        for plan in proved(program, sources, &shape, &options, placement)?.plans() {
            output(report, &plan.to_string(), || plan_data(plan));
        }
        return Ok(());
    };
    let instance = Arc::new(ProgramInstance::new(program, &shape, &options)?);
    let plan = project(&instance, sources, placement, rank)?;
    match &args.output {
        None => output(report, &plan.to_string(), || plan_data(&plan)),
        Some(path) => write_plan(report, &plan, path)?,
    }
    Ok(())
}

/// Fails if the rank that was asked for is not below the number of ranks.
pub(crate) fn rank_of(rank: Option<u32>, ranks: u64) -> VerbResult {
    match rank.filter(|&rank| u64::from(rank) >= ranks) {
        Some(rank) => Err(VerbError::Usage(format!("rank {rank} is not one of {ranks} ranks"))),
        None => Ok(()),
    }
}

/// Returns the device programs of all ranks, or of one.
pub(crate) fn lowered(
    proved: &ProvedPlans,
    protocol: device::DeviceProtocol,
    rank: Option<u32>,
) -> Result<Vec<device::ProvedProgram>, VerbError> {
    let programs = device::prove(proved, protocol, &device::DeviceOptions::default());
    let programs = programs.map_err(|e| unsupported(&e))?;
    let all = (0..).map_while(|rank| programs.of(rank));
    Ok(all.filter(|program| rank.is_none_or(|rank| rank == program.rank)).collect())
}

/// Returns the failure for what no device can run.
pub(crate) fn unsupported(why: &impl ToString) -> VerbError {
    refused(fault(codes::UNSUPPORTED, why.to_string()))
}

/// Returns the facts that a kernel depends on beside its program.
pub(crate) fn spec(call: &CallArgs) -> Result<KernelSpec, VerbError> {
    let unknown = |name: &str| VerbError::Usage(format!("kernels do not know {name}"));
    let (dtype, op) = (call.dtype.name(), call.op.name());
    Ok(KernelSpec {
        element: Element::named(dtype).ok_or_else(|| unknown(dtype))?,
        operator: Operator::named(op).ok_or_else(|| unknown(op))?,
        aligned: !call.unaligned,
    })
}

/// Returns the text of a rank's kernel.
fn kernel(args: &ShowArgs, program: &device::ProvedProgram) -> Result<String, VerbError> {
    let source = cuda(program, &spec(&args.call)?).map_err(|e| unsupported(&e))?;
    Ok(if args.whole { source.text() } else { source.to_string() })
}

fn write_plan(report: VerbReport, plan: &UnprovedPlan, path: &Path) -> VerbResult {
    let file = path.display().to_string();
    std::fs::write(path, plan.encode()).map_err(|e| unwritten("plan", path, &e))?;
    report.line(format!("rank {} of {}: {file}", plan.part.rank, plan.header.ranks));
    report.result(&json!({
        "stage": "plan", "collective": plan.header.collective, "algorithm": plan.header.algorithm,
        "ranks": plan.header.ranks, "rank": plan.part.rank, "file": file,
    }));
    Ok(())
}
