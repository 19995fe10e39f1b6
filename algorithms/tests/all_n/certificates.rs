//! Certificates of what is proved for every rank count: a checker that shares no code with the prover accepts them, and
//! refuses those of other programs and damaged ones.
//! `UPDATE_EXPECT=1 cargo test -p roundelay-algorithms --test all_n certificates_are_accepted` writes them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use roundelay_compiler::all_n::{ProofOptions, canonical_text, prove};
use roundelay_compiler::plan::{PlanBuffer, PlanRegion};
use roundelay_compiler::walk::walk;
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape};
use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::codes;

use super::{PROVED, mutants, refuted_at, resolve_text, text_of};

/// The folder of the checker and of the certificates.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proofs");

/// Algorithms that are proved in a way that the checker does not cover: failures and grids.
const WITHOUT: &[&str] = &[
    "all_reduce/han",
    "all_reduce/multipath_two_level",
    "all_reduce/tolerant",
    "all_reduce/two_level",
    "broadcast/han",
];

/// Returns the algorithms that have certificates.
fn certified() -> impl Iterator<Item = &'static str> {
    PROVED.iter().copied().filter(|name| !WITHOUT.contains(name))
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{}.cert", name.replace('/', ".")))
}

fn certificate_of(name: &str) -> String {
    std::fs::read_to_string(path_of(name)).expect("a certificate")
}

fn is_full() -> bool {
    std::env::var("ROUNDELAY_CI").is_ok_and(|ci| ci == "full")
}

/// Runs the checker on certificates; returns how many it accepts, and why it refuses the others, by name.
fn check(certificates: &[String]) -> (usize, BTreeMap<String, String>) {
    let mut command = Command::new("python3");
    command.arg(Path::new(FOLDER).join("check.py")).arg("/dev/stdin");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checker = command.spawn().expect("python3 runs");
    let mut input = checker.stdin.take().expect("its input");
    // The checker reads all before it writes.
    input.write_all(certificates.concat().as_bytes()).expect("it reads");
    drop(input);
    let output = checker.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<&str> = out.lines().collect();
    let last = lines.pop().unwrap_or_else(|| panic!("{errors}"));
    let refused: BTreeMap<String, String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("refused: algorithm ")?.split_once(": "))
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect();
    let accepted = last.strip_prefix("accepted ").and_then(|rest| rest.split_once(", refused "));
    let (accepted, count) = accepted.unwrap_or_else(|| panic!("{out}\n{errors}"));
    let (accepted, count): (usize, usize) =
        (accepted.parse().expect("a number"), count.parse().expect("a number"));
    assert_eq!((accepted + count, refused.len()), (certificates.len(), count), "{out}\n{errors}");
    assert_eq!(output.status.success(), count == 0 && accepted > 0, "{out}\n{errors}");
    (accepted, refused)
}

/// Runs a Python script on texts; returns the lines that it prints.
fn python(script: &str, texts: &[String]) -> Vec<String> {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script, FOLDER]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().expect("python3 runs");
    let mut input = python.stdin.take().expect("its input");
    let all: String = texts.iter().map(|text| format!("{text}\0")).collect();
    input.write_all(all.as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends").stdout;
    String::from_utf8(output).expect("text").lines().map(str::to_owned).collect()
}

/// Returns the SHA-256 of texts, by the tool of the system.
fn hashes(texts: &[String]) -> Vec<String> {
    let script = "import hashlib, sys
for text in sys.stdin.buffer.read().split(b'\\0')[:-1]: print(hashlib.sha256(text).hexdigest())";
    python(script, texts)
}

/// Returns certificates whose proof is that of another program: of each, a name, the program, and the proof.
fn forge(parts: &[(String, String, &str)]) -> Vec<String> {
    let programs: Vec<String> =
        parts.iter().map(|(name, program, _)| format!("algorithm {name}\n{program}")).collect();
    let hashes = hashes(&programs);
    let all = hashes.iter().zip(&programs).zip(parts);
    all.map(|((hash, program), (.., proof))| {
        format!("roundelay certificate 1\nhash {hash}\n{program}proof\n{proof}")
    })
    .collect()
}

/// Returns the program and the proof of a certificate.
fn split(certificate: &str) -> (&str, &str) {
    let (head, proof) = certificate.split_once("\nproof\n").expect("a proof");
    let at = head.find("\nprogram ").expect("a program") + 1;
    (&certificate[at..=head.len()], proof)
}

#[test]
fn certificates_are_accepted() {
    let mut without = Vec::new();
    for &name in PROVED {
        let (_, program) = resolve_text(text_of(name)).expect("the text resolves");
        let proof = prove(&program, ProofOptions::default()).expect("it is proved");
        let Some(certificate) = proof.certificate else {
            without.push(name);
            continue;
        };
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path_of(name), &certificate).expect("it can be written");
        }
        let written = certificate_of(name);
        assert!(written == certificate, "{name}: another certificate; set UPDATE_EXPECT=1");
        let text = canonical_text(&program).expect("it is proved");
        assert_eq!(split(&written).0, text, "{name}");
    }
    assert_eq!(without, WITHOUT);
    let all: Vec<String> = certified().map(certificate_of).collect();
    assert_eq!(check(&all), (certified().count(), BTreeMap::new()));
    let files = std::fs::read_dir(FOLDER).expect("the folder").flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|e| e == "cert"));
    assert_eq!(files.count(), certified().count(), "certificates of what is not proved");
}

/// Returns the transfers of a program at a rank count, a line a round that has some.
fn transfers(program: &Arc<Program>, ranks: u32, root: u32) -> Vec<String> {
    let options = CompileOptions { root, ..CompileOptions::default() };
    let instance = match ProgramInstance::new(program, &Shape::flat(ranks), &options) {
        Ok(instance) => instance,
        Err(found) => {
            assert!(found.iter().all(|d| d.code == codes::REQUIRES), "{found:?}");
            return Vec::new();
        }
    };
    let mut rounds = Vec::new();
    let region = |region: &PlanRegion| {
        let [piece] = region.pieces.as_slice() else { panic!("a region of several pieces") };
        let name = match piece.buf {
            PlanBuffer::Data => "data".into(),
            PlanBuffer::Input => "input".into(),
            PlanBuffer::Output => "output".into(),
            PlanBuffer::Scratch(at) => format!("scratch{at}"),
        };
        let chunks: Vec<String> = piece.set.iter().map(|chunk| chunk.to_string()).collect();
        format!("{name} {}", chunks.join(","))
    };
    walk(&instance, &mut |round| {
        let mut all = Vec::new();
        round.all(&mut all)?;
        let mut lines = Vec::new();
        for t in &all {
            let op = if t.op == TransferOp::Copy { "copy" } else { "reduce" };
            lines.push(format!("{} {} {op} {} {}", t.src, t.dst, region(&t.from), region(&t.to)));
        }
        lines.sort_unstable();
        if !lines.is_empty() {
            rounds.push(lines.join(";"));
        }
        Ok(ControlFlow::Continue(()))
    })
    .expect("the program runs");
    rounds
}

/// The text in a certificate, as the checker reads it, has the transfers that the compiler makes of the source. Chunks
/// of a part of a `split` have other numbers.
#[test]
fn texts_have_the_transfers_of_the_source() {
    let names: Vec<&str> =
        certified().filter(|name| !split(&certificate_of(name)).0.contains("\npart ")).collect();
    assert!(names.len() + 6 >= certified().count());
    for ranks in 1..=9 {
        for root in [0, ranks - 1] {
            let mut command = Command::new("python3");
            command.arg(Path::new(FOLDER).join("transfers.py"));
            command.args([ranks.to_string(), root.to_string()]);
            let output = command.args(names.iter().map(|name| path_of(name))).output();
            let output = output.expect("python3 runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            let printed = String::from_utf8(output.stdout).expect("text");
            let mut programs = printed.split("program ").skip(1);
            for name in &names {
                let (_, lines) =
                    programs.next().expect("a program").split_once('\n').expect("lines");
                let (_, program) = resolve_text(text_of(name)).expect("the text resolves");
                let root = if program.kind.rooted() { root } else { 0 };
                let expected = transfers(&program, ranks, root);
                assert_eq!(lines.lines().collect::<Vec<_>>(), expected, "{name}, {ranks} ranks");
            }
        }
    }
}

/// One operator, number or variable of the program is another, and the hash fits: a proof that is accepted all the same
/// is of a program that unrolling does not refute.
#[test]
fn proofs_of_mutants_are_refused() {
    let share = if is_full() { 1 } else { 16 };
    let certificates: Vec<String> = certified().map(certificate_of).collect();
    let (mut parts, mut texts) = (Vec::new(), Vec::new());
    for (at, name) in certified().enumerate() {
        let (own, proof) = split(&certificates[at]);
        for (number, mutant) in mutants(text_of(name)).into_iter().enumerate() {
            if (number + at) % share != 0 {
                continue;
            }
            let Some((_, program)) = resolve_text(&mutant) else { continue };
            let Ok(text) = canonical_text(&program) else { continue };
            if text != own {
                parts.push((format!("{}#{}", name.replace('/', "."), parts.len()), text, proof));
                texts.push(mutant);
            }
        }
    }
    let (accepted, refused) = check(&forge(&parts));
    assert!(refused.len() > 100, "{} refused, {accepted} accepted", refused.len());
    for ((name, ..), mutant) in parts.iter().zip(&texts) {
        if !refused.contains_key(name) {
            let (sources, program) = resolve_text(mutant).expect("the text resolves");
            assert_eq!(refuted_at(&sources, &program, 12), None, "accepted:\n{mutant}");
        }
    }
}

/// Rank counts that the checker tries one by one: it accepts what unrolling accepts of the library, and nothing of the
/// mutants that unrolling refutes.
#[test]
fn few_ranks_are_tried() {
    let script = "import sys
sys.path.insert(0, sys.argv[1])
from few_ranks import check_count
from programs import parse_program
from refutations import Refused
def accepts(program, ranks):
    try:
        check_count(program, ranks)
    except Refused:
        return False
    return True
for text in sys.stdin.read().split('\\0')[:-1]:
    program = parse_program(text)
    print(*[ranks for ranks in range(1, 7) if accepts(program, ranks)])";
    let share = if is_full() { 1 } else { 16 };
    let (mut texts, mut sources) = (Vec::new(), Vec::new());
    for (at, name) in certified().enumerate() {
        let kept = |number: &usize| (number + at).is_multiple_of(share);
        let mutants = mutants(text_of(name)).into_iter().enumerate();
        let mutants = mutants.filter(|(number, _)| kept(number)).map(|(_, text)| text);
        for text in [text_of(name).to_owned()].into_iter().chain(mutants) {
            let Some((_, program)) = resolve_text(&text) else { continue };
            let Ok(canonical) = canonical_text(&program) else { continue };
            texts.push(canonical);
            sources.push(text);
        }
    }
    let accepted = python(script, &texts);
    assert_eq!(accepted.len(), texts.len());
    let (mut whole, mut refuted) = (0, 0);
    for (source, counts) in sources.iter().zip(&accepted) {
        let (map, program) = resolve_text(source).expect("the text resolves");
        let is_own = certified().any(|name| text_of(name) == source);
        whole += usize::from(is_own && counts == "1 2 3 4 5 6");
        // The first count at which it is wrong, with the root in the middle or at an end.
        let Some(wrong) = refuted_at(&map, &program, 6) else { continue };
        refuted += 1;
        assert!(!counts.split(' ').any(|count| count == wrong), "accepted at {wrong}:\n{source}");
    }
    // Sums of several ranks in one place, regions with `by`, and paths are not tried.
    assert!(whole > 35 && refuted > 100, "{whole} right, {refuted} wrong");
}

/// One transfer is left out at one rank count, which no small one shows. It is 512 or 777: where a transfer happens at
/// neither, nothing is left out.
#[test]
fn proofs_of_programs_that_are_wrong_once_are_refused() {
    let certificates: Vec<String> = certified().map(certificate_of).collect();
    let mut parts = Vec::new();
    for (name, certificate) in certified().zip(&certificates) {
        let (program, proof) = split(certificate);
        let transfers = |line: &str| line.contains(" : copy ") || line.contains(" : reduce ");
        for (at, line) in program.lines().enumerate().filter(|(_, line)| transfers(line)) {
            for ranks in [2, 512, 777] {
                let lines: Vec<String> = program
                    .lines()
                    .enumerate()
                    .map(|(own, text)| match own == at {
                        true => format!("where (n != {ranks}) {line}\n"),
                        false => format!("{text}\n"),
                    })
                    .collect();
                let name = format!("{}#{at}#{ranks}", name.replace('/', "."));
                parts.push((name, lines.concat(), proof));
            }
        }
    }
    let (accepted, refused) = check(&forge(&parts));
    let sites: BTreeSet<&str> =
        parts.iter().filter_map(|(name, ..)| Some(name.rsplit_once('#')?.0)).collect();
    for site in &sites {
        let is_refused = |ranks: u32| refused.contains_key(&format!("{site}#{ranks}"));
        assert!([2, 512, 777].into_iter().any(is_refused), "{site}");
    }
    assert!(accepted * 10 < refused.len(), "{accepted} accepted, {} refused", refused.len());
}

/// Certificates that would prove anything if the checker took them at their word.
#[test]
fn tricks_are_refused() {
    let ring = certificate_of("all_reduce/ring");
    let gather = certificate_of("all_gather/ring");
    let trees = certificate_of("broadcast/double_binary_tree");
    let exscan = certificate_of("exscan/binomial");
    let writer = "writer of place : ((q - (0 + 1)) % n)";
    let tricks = [
        // A transfer's own variable is no expression of the place.
        (&ring, writer, "writer of place : r1", "`r1` is not known of a place"),
        // Many ranks cannot copy to one place.
        (&gather, "writer of place", "writer of contribution", "no writer: contribution"),
        // Nothing is known without an invariant, and a wrong one is not kept.
        (
            &ring,
            "invariant data : (0 == 0)",
            "invariant data : (0 == 1)",
            "the first turn of a loop",
        ),
        (
            &ring,
            "invariant data : (0 == 0)",
            "invariant data : (t == 0)",
            "`t` is not known of a place",
        ),
        (&ring, "(j == q)", "(t == q)", "another content with tokens"),
        (&ring, "invariant data", "invariant input", "`invariant data :` expected"),
        // A fact needs a refutation.
        (&ring, "fact F3,5", "fact F3", "no contradiction"),
        // The program: names that the checker uses, blocks of several chunks, transfers into the input.
        (&ring, "for s1 in", "for n in", "no new name: n"),
        (&ring, "for s2 in", "for s1 in", "no new name: s1"),
        (&ring, "each r1", "each q", "no new name: q"),
        (&gather, "chunks n", "chunks (2 * n)", "blocks of several chunks"),
        (&gather, "-> data[", "-> input[", "a transfer into the input"),
        // Few ranks: no more of them are tried than two, and each is looked at.
        (&trees, "ranks from 2\n", "", "not shown that there are parts"),
        (&trees, "ranks from 2", "ranks from 1", "rank counts that are not tried"),
        (&exscan, "ranks from 3", "ranks from 4", "rank counts that are not tried"),
        (&exscan, "where ((r1", "where (n != 2) where ((r1", "with 2 ranks, another result"),
        (
            &exscan,
            "-> (r1 + 1)",
            "-> (if (n == 2) { 2 } else { 1 } + r1)",
            "ranks are not in range",
        ),
        // Lines that are missing, or too many.
        (&ring, "end\n", "fact open\nend\n", "lines after the proof"),
        (&ring, "end\n", "", "no end of the proof"),
    ];
    let forged: Vec<(String, String, String)> = tricks
        .iter()
        .enumerate()
        .map(|(at, (certificate, from, to, _))| {
            assert!(certificate.contains(from), "{from}");
            let text = certificate.replacen(from, to, 1);
            let (program, proof) = split(&text);
            let kind = program.split(' ').nth(1).expect("a collective");
            (format!("{kind}.a#{at}"), program.to_owned(), proof.to_owned())
        })
        .collect();
    let borrowed: Vec<_> = forged.iter().map(|(n, p, d)| (n.clone(), p.clone(), &**d)).collect();
    let (accepted, refused) = check(&forge(&borrowed));
    for ((name, ..), (_, from, to, expected)) in forged.iter().zip(&tricks) {
        let why = refused.get(name).unwrap_or_else(|| panic!("accepted: {from} is {to}"));
        assert!(why.contains(expected), "{from} is {to}: {why}");
    }
    assert_eq!(accepted, 0);
}

/// A sequence of numbers that is the same in every run (SplitMix64).
struct FixedNumbers(u64);

impl FixedNumbers {
    /// Returns a number below a limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).expect("it is below")
    }
}

/// Changes a word or a line of a text.
fn damage(text: &str, numbers: &mut FixedNumbers) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (at, other) = (numbers.below(lines.len()), numbers.below(lines.len()));
    let kind = numbers.below(10);
    match kind {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        _ => {
            let mut words: Vec<String> = lines[at].split(' ').map(str::to_owned).collect();
            let (word, next) = (numbers.below(words.len()), numbers.below(words.len()));
            let digits: Vec<usize> =
                words[word].match_indices(|c: char| c.is_ascii_digit()).map(|(i, _)| i).collect();
            match kind {
                3 => drop(words.remove(word)),
                4 => words.insert(next, words[word].clone()),
                5 => words.swap(word, next),
                _ if digits.is_empty() => words[word].push('1'),
                _ => {
                    let place = digits[numbers.below(digits.len())];
                    let digit = numbers.below(10).to_string();
                    words[word].replace_range(place..=place, &digit);
                }
            }
            lines[at] = words.join(" ");
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A certificate with a damaged proof is refused, or proves the same statements of the same program all the same. One
/// whose program is damaged has another hash.
#[test]
fn damaged_certificates_are_refused() {
    let tried = if is_full() { 2_000 } else { 300 };
    let certificates: Vec<String> = certified().map(certificate_of).collect();
    let mut numbers = FixedNumbers(3);
    let mut parts = Vec::new();
    for at in 0..tried {
        let (program, proof) = split(&certificates[numbers.below(certificates.len())]);
        let kind = program.split(' ').nth(1).unwrap_or_default();
        let name = format!("{kind}.a#{at}");
        let damaged = damage(proof, &mut numbers);
        if damaged != proof {
            parts.push((name, program.to_owned(), damaged));
        }
    }
    let borrowed: Vec<_> = parts.iter().map(|(n, p, d)| (n.clone(), p.clone(), &**d)).collect();
    let (accepted, refused) = check(&forge(&borrowed));
    assert!(accepted * 50 <= tried, "{accepted} accepted, {} refused", refused.len());

    let mut wrong = Vec::new();
    for certificate in &certificates {
        let (program, _) = split(certificate);
        let damaged = damage(program, &mut numbers);
        if damaged != program {
            wrong.push(certificate.replace(program, &damaged));
        }
    }
    let (accepted, refused) = check(&wrong);
    assert_eq!(accepted, 0);
    assert!(refused.values().all(|why| why.contains("another hash")), "{refused:?}");
}
