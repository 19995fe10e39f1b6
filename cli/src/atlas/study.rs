//! Gathers all that a page says of one algorithm.

use std::sync::Arc;

use roundelay::DType;
use roundelay::transport::SegmentLayout;
use roundelay_compiler::cost::{CostProfile, Topology};
use roundelay_compiler::program::ArgumentValue;
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape, compile, device};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_emit::cuda::{Element, KernelSpec, Operator, cuda};
use roundelay_emit::svg;

use super::formula::{FittedFormula, FormulaSample, fit};
use crate::load::placement;
use crate::proof::ShapeProof;

/// The size of the vector for which `check` gives a time.
const BYTES: u64 = 1 << 20;
/// Values of a radix beside its default.
const RADIXES: [u32; 3] = [2, 3, 4];
/// Sizes of the curves.
const SIZES: std::ops::RangeInclusive<u32> = 8..=26;

/// All that is known of one algorithm.
pub(crate) struct AlgorithmStudy {
    /// `collective.name`.
    pub(crate) title: String,
    pub(crate) collective: String,
    /// The name of its text, as messages have it.
    pub(crate) file: String,
    pub(crate) text: String,
    /// The comment above the text, a paragraph each.
    pub(crate) about: Vec<String>,
    pub(crate) axes: Vec<String>,
    /// Names of its parameters with default and bounds.
    pub(crate) parameters: Vec<String>,
    /// The rank counts at which it is proved, and the proofs.
    pub(crate) proofs: Vec<(Shape, ShapeProof)>,
    /// Those that it does not allow.
    pub(crate) not_allowed: Vec<Shape>,
    pub(crate) rounds: Option<FittedFormula>,
    pub(crate) sent: Option<FittedFormula>,
    /// The picture at a small number of ranks.
    pub(crate) drawing: Option<(Shape, String)>,
    /// Predicted times by size, for each topology that it allows.
    pub(crate) curves: Vec<CostCurve>,
    /// The program of each protocol of a GPU, at the ranks of the drawing.
    pub(crate) kernels: Vec<KernelFact>,
}

/// Predicted times of one algorithm on one topology.
pub(crate) struct CostCurve {
    /// The topology, in words.
    pub(crate) place: &'static str,
    pub(crate) ranks: u64,
    /// Bytes, and microseconds.
    pub(crate) points: Vec<(u64, f64)>,
}

/// The kernel of one protocol.
pub(crate) struct KernelFact {
    pub(crate) protocol: &'static str,
    /// Phases, tasks and connections of the busiest rank, and lines of CUDA; or why there is none.
    pub(crate) found: Result<[usize; 4], String>,
}

impl AlgorithmStudy {
    /// Proves an algorithm at small rank counts and measures what was proved; else says why it is wrong.
    pub(crate) fn new(
        program: &Arc<Program>,
        sources: &SourceMap,
        options: &CompileOptions,
    ) -> Result<Self, Diagnostics> {
        let source = sources.get(program.header.source);
        let axes = program.axes.names.clone();
        let (collective, name) = (program.kind.name(), program.name.as_str());
        let mut study = AlgorithmStudy {
            title: format!("{collective}.{name}"),
            collective: collective.into(),
            file: source.name.clone(),
            text: source.text.clone(),
            about: about(&source.text),
            parameters: program.parameters.iter().map(parameter).collect(),
            proofs: Vec::new(),
            not_allowed: Vec::new(),
            rounds: None,
            sent: None,
            drawing: None,
            curves: Vec::new(),
            kernels: Vec::new(),
            axes,
        };
        for shape in shapes(study.axes.len()) {
            match ShapeProof::new(program, sources, &shape, options, BYTES) {
                Ok(proof) => study.proofs.push((shape, proof)),
                Err(found) if is_not_allowed(&found) => study.not_allowed.push(shape),
                Err(found) => return Err(found),
            }
        }
        study.find_formulas(program, sources, options)?;
        study.draw(program, sources, options);
        study.curves = curves(program, options);
        Ok(study)
    }

    /// Returns the proof that stands for the others in a list: that at 16 ranks, or the last one.
    pub(crate) fn usual(&self) -> Option<&(Shape, ShapeProof)> {
        self.proofs.iter().find(|(shape, _)| shape.ranks() == 16).or(self.proofs.last())
    }

    /// Returns true if results are rounded to a narrower type on the way.
    pub(crate) fn is_lossy(&self) -> bool {
        self.proofs.iter().any(|(_, proof)| proof.checked.facts.lossy)
    }

    fn find_formulas(
        &mut self,
        program: &Arc<Program>,
        sources: &SourceMap,
        options: &CompileOptions,
    ) -> Result<(), Diagnostics> {
        let (mut rounds, mut sent) = (Vec::new(), Vec::new());
        let mut add = |shape: &Shape, radix: Option<u32>, proof: &ShapeProof| {
            let sample = |value| FormulaSample { axes: shape.axes.clone(), radix, value };
            rounds.extend(proof.rounds.map(|rounds| sample((rounds as u64, 1))));
            sent.extend(proof.sent_chunks().map(sample));
        };
        let radix = match &program.parameters[..] {
            [one] if matches!(one.default, ArgumentValue::Number(_)) => Some(one),
            _ => None,
        };
        match radix {
            None => self.proofs.iter().for_each(|(shape, proof)| add(shape, None, proof)),
            Some(radix) => {
                for value in RADIXES {
                    let value = ArgumentValue::Number(value.into());
                    if radix.refusal(value).is_some() {
                        continue;
                    }
                    let arguments = [(radix.name.clone(), value)];
                    let own = program.with_arguments(&arguments).map_err(|d| vec![*d])?;
                    for (shape, _) in self.proofs.iter().filter(|(s, _)| s.ranks() <= 33) {
                        let proof = ShapeProof::new(&own, sources, shape, options, BYTES)?;
                        add(shape, u32::try_from(value.number()).ok(), &proof);
                    }
                }
            }
        }
        let name = radix.map(|radix| radix.name.as_str());
        // What is irregular in the radix may be regular at its default.
        let found = |samples: &[FormulaSample]| {
            fit(&self.axes, name, samples).or_else(|| {
                let (default, name) = (u32::try_from(radix?.default.number()).ok()?, name?);
                let of_default = |s: &&FormulaSample| s.radix == Some(default);
                let own: Vec<FormulaSample> = samples.iter().filter(of_default).cloned().collect();
                Some(fit(&self.axes, None, &own)?.where_is(format!("{name} = {default}")))
            })
        };
        (self.rounds, self.sent) = (found(&rounds), found(&sent));
        Ok(())
    }

    /// Draws it, and tries its kernels, at the first of a few shapes that it allows.
    fn draw(&mut self, program: &Arc<Program>, sources: &SourceMap, options: &CompileOptions) {
        let small = |shape: &&Shape| matches!(shape.ranks(), 4 | 6 | 8);
        let mut known = self.proofs.iter().map(|(shape, _)| shape);
        let Some(shape) = known.clone().find(small).or(known.next()).cloned() else { return };
        let placement = placement(program.kind.name(), false, false);
        let Ok(proved) = compile(program, sources, &shape, options, placement) else { return };
        self.drawing = Some((shape, svg(proved.graph(), sources)));
        let spec = KernelSpec { element: Element::F32, operator: Operator::Sum, aligned: true };
        let fact = |protocol: &device::DeviceProtocol| {
            let found = device::prove(&proved, *protocol, &device::DeviceOptions::default());
            let found = found.map_err(|e| e.to_string()).and_then(|programs| {
                let mut most = [0; 4];
                for program in (0..).map_while(|rank| programs.of(rank)) {
                    let source = cuda(&program, &spec).map_err(|e| e.to_string())?;
                    let tasks = program.phases.iter().map(|phase| phase.tasks.len()).sum();
                    let lines = source.to_string().lines().count();
                    let own = [program.phases.len(), tasks, program.links.len(), lines];
                    most.iter_mut().zip(own).for_each(|(most, own)| *most = own.max(*most));
                }
                Ok(most)
            });
            KernelFact { protocol: protocol.name(), found }
        };
        self.kernels = device::DeviceProtocol::ALL.iter().map(fact).collect();
    }
}

/// Returns the shapes at which algorithms are proved.
fn shapes(axes: usize) -> Vec<Shape> {
    match axes {
        0 | 1 => (2..=20).chain([24, 27, 32, 33, 48, 64]).map(Shape::flat).collect(),
        2 => {
            let grid = (2..=5).flat_map(|a| (2..=5).map(move |b| vec![a, b]));
            grid.chain([vec![4, 8], vec![8, 4], vec![8, 8]]).map(|axes| Shape { axes }).collect()
        }
        more => {
            let longer = |all: Vec<Vec<u32>>, _| {
                let each = |axes: &Vec<u32>| [2, 3].map(|next| [&axes[..], &[next]].concat());
                all.iter().flat_map(each).collect()
            };
            let all = (0..more).fold(vec![Vec::new()], longer);
            all.into_iter().map(|axes| Shape { axes }).collect()
        }
    }
}

/// Returns the times by the cost model, on the topologies of the atlas.
fn curves(program: &Arc<Program>, options: &CompileOptions) -> Vec<CostCurve> {
    let places: [(&'static str, [u32; 2], Topology); 3] = [
        ("8 ranks of one host", [1, 8], Topology::one_host(8)),
        ("16 hosts of one rank", [16, 1], Topology::even(16, 1)),
        ("4 hosts of 8 ranks", [4, 8], Topology::even(4, 8)),
    ];
    let curve = |(place, [hosts, each], topology): (&'static str, [u32; 2], Topology)| {
        let shape = match program.axes.names.len() {
            0 | 1 => Shape::flat(hosts * each),
            2 if hosts > 1 && each > 1 => Shape { axes: vec![hosts, each] },
            _ => return None,
        };
        let instance = ProgramInstance::new(program, &shape, options).ok()?;
        let profile = CostProfile::new(&instance, &topology, DType::F32.size() as u32).ok()?;
        let point = |bytes| (bytes, profile.time_us(bytes, SegmentLayout::SLOT_BYTES));
        let points = SIZES.map(|power| point(1 << power)).collect();
        Some(CostCurve { place, ranks: shape.ranks(), points })
    };
    places.into_iter().filter_map(curve).collect()
}

/// Returns true if a program does not allow the ranks.
fn is_not_allowed(found: &Diagnostics) -> bool {
    !found.is_empty() && found.iter().all(|d| matches!(d.code, codes::REQUIRES | codes::SHAPE))
}

/// Returns a parameter as its declaration has it.
fn parameter(p: &roundelay_compiler::program::ProgramParameter) -> String {
    match p.bounds {
        Some((least, most)) => format!("{} = {} in {least}..={most}", p.name, p.default),
        None => format!("{} = {}", p.name, p.default),
    }
}

/// Returns the paragraphs of the comment at the head of a text.
fn about(text: &str) -> Vec<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let lines: Vec<&str> = lines.collect();
    lines.split(|line| line.is_empty()).filter(|p| !p.is_empty()).map(|p| p.join(" ")).collect()
}
