use std::sync::Arc;

use expect_test::expect;

use super::svg::svg;
use super::*;
use roundelay_compiler::{CompileOptions, NoLibrary, ProgramInstance, Shape, resolve};

const RING: &str = "// A </script> & \"quotes\"\n\
algorithm ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] as bf16 } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] as bf16 } }
}
";

fn graph(name: &str, text: &str, shape: &Shape) -> (StepGraph, SourceMap) {
    let mut sources = SourceMap::new();
    let id = sources.add(name, text);
    let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
    let instance = ProgramInstance::new(&programs[0], shape, &CompileOptions::default())
        .expect("the shape fits");
    (roundelay_compiler::graph::unroll(&Arc::new(instance)).expect("it unrolls"), sources)
}

fn ring(n: u32) -> (StepGraph, SourceMap) {
    graph("<ring>.algo", RING, &Shape::flat(n))
}

fn count(page: &str, what: &str) -> usize {
    page.matches(what).count()
}

/// Returns the faults of a drawing that hold whatever it looks like.
fn faults(page: &str, graph: &StepGraph) -> Vec<String> {
    let mut faults = Vec::new();
    let mut want = |what: String, times: usize| {
        let found = count(page, &what);
        if found != times {
            faults.push(format!("{found} times `{what}`, not {times}"));
        }
    };
    for id in graph.graph.node_indices() {
        let t = &graph.graph[id];
        want(format!("<g id=\"s{}\" class=\"t {}\"", id.index(), op(t.op)), 1);
        want(format!("round {}: r{} → r{}, {}", t.round, t.src, t.dst, op(t.op)), 1);
    }
    want("<g id=".into(), graph.graph.node_count());
    want("</g>".into(), graph.graph.node_count());
    want("</script>".into(), 1);
    want("</style>".into(), 1);
    want("://".into(), 0);
    faults
}

#[test]
fn ring_of_three_has_each_step_once() {
    let (g, sources) = ring(3);
    let page = html(&g, &sources);
    assert_eq!(faults(&page, &g), Vec::<String>::new());
    assert_eq!(g.graph.node_count(), 12);
    assert_eq!((count(&page, "class=\"t reduce\""), count(&page, "class=\"t copy\"")), (6, 6));
    assert_eq!(count(&page, "<button class=\"k"), 3);
    assert_eq!(count(&page, "class=\"line has\""), 2);
    assert_eq!(count(&page, ">6 steps<"), 2);
    let arrow = page.lines().find(|l| l.starts_with("<g id=\"s0\""));
    expect![[r#"
        <g id="s0" class="t reduce" tabindex="-1" role="img" aria-label="round 0: r0 → r1, reduce data[0] as bf16 (s0)" data-r="0" data-s="0" data-c="0" data-l="0:4">"#]]
    .assert_eq(arrow.expect("the first step"));
    let header: Vec<&str> = page.lines().filter(|l| l.contains("<dt>")).collect();
    expect![[r#"
        <div><dt>ranks</dt><dd>3</dd></div>
        <div><dt>chunks</dt><dd>3</dd></div>
        <div><dt>rounds</dt><dd>4</dd></div>
        <div><dt>messages</dt><dd>12</dd></div>
        <div><dt>local steps</dt><dd>0</dd></div>"#]]
    .assert_eq(&header.join("\n"));
    assert_eq!(page, html(&g, &sources));
}

#[test]
fn a_lost_arrow_a_wrong_target_and_an_unescaped_text_are_noticed() {
    let (g, sources) = ring(3);
    let page = html(&g, &sources);
    let lost: Vec<&str> = page.lines().filter(|l| !l.starts_with("<g id=\"s7\"")).collect();
    assert!(!faults(&lost.join("\n"), &g).is_empty());
    assert!(!faults(&page.replace("round 1: r2 → r0", "round 1: r2 → r1"), &g).is_empty());
    assert!(!faults(&page.replace("&lt;/script&gt;", "</script>"), &g).is_empty());
    let (other, _) = ring(4);
    assert!(!faults(&page, &other).is_empty());
}

#[test]
fn texts_are_escaped() {
    let (g, sources) = ring(2);
    let page = html(&g, &sources);
    assert!(page.contains("<i>// A &lt;/script&gt; &amp; &quot;quotes&quot;</i>"));
    assert!(page.contains("<h2>&lt;ring&gt;.algo</h2>"));
    assert!(page.contains("data-at=\"&lt;ring&gt;.algo:4\""));
    assert_eq!(escape("a'\u{0}\t\u{1b}"), "a&#39;\u{fffd}\t\u{fffd}");
}

#[test]
fn what_is_left_out_is_said() {
    let (g, sources) = ring(3);
    let page = draw(&g, &sources, &[], 5);
    assert_eq!(count(&page, "<g id="), 5);
    assert!(page.contains(
        "Only the first 5 steps are drawn, rounds 0 to 1 of 4: 7 more are left out, 1 of them in round 1."
    ));
    assert!(!html(&g, &sources).contains("class=\"note\""));
    let (alone, sources) = ring(1);
    assert!(html(&alone, &sources).contains("Nothing moves."));
}

#[test]
fn regions_loops_and_grids() {
    let text = "algorithm a implements all_gather on (x, y) ranks {
    each r { for j in 0..n { j -> r : copy input -> output[j] } }
}";
    let text = text.replace("n {", "x.size * y.size {");
    let (g, sources) = graph("a", &text, &Shape { axes: vec![2, 3] });
    let page = html(&g, &sources);
    assert_eq!(faults(&page, &g), Vec::<String>::new());
    assert!(page.contains("r2 → r2, copy input[0] → output[2]"));
    assert!(page.contains("r5<small>1,2</small>"));
    assert!(page.contains("<dd>2x3 = 6</dd>"));
    assert!(page.contains("<dt>local steps</dt><dd>6</dd>"));
}

#[test]
fn long_regions_have_four_strands_and_many_chunks_few_colours() {
    let text = "algorithm a implements broadcast on n ranks {
    chunks 600
    each r where r != root { root -> r : copy data[500 ..+ 200] }
}";
    let (g, sources) = graph("a", text, &Shape::flat(2));
    let page = html(&g, &sources);
    assert!(page.contains("data-c=\"0-99 500-599\""));
    let strands: Vec<&str> =
        page.split("class=\"s ").skip(1).map(|s| &s[..s.find('"').unwrap_or(0)]).collect();
    assert_eq!(strands, ["k53", "k58", "k0", "k5"]);
    assert!(page.contains(".k63 {") && !page.contains(".k64 {"));
    assert!(page.contains("<span>and 88 more</span>"));
}

#[test]
fn the_picture_alone_has_each_step_once_and_refers_to_nothing() {
    let (g, sources) = ring(3);
    let picture = svg(&g, &sources);
    let words = "xmlns=\"http://www.w3.org/2000/svg\"";
    assert_eq!(count(&picture, "class=\"t reduce\"") + count(&picture, "class=\"t copy\""), 12);
    assert_eq!(count(&picture.replace(words, ""), "://"), 0);
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(
        !picture.contains("<script")
            && !picture.contains("var(--")
            && !picture.contains("steps</text>")
    );
}
