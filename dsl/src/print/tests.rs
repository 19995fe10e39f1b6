use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::diag::render;

fn formatted(text: &str) -> String {
    let mut sources = SourceMap::new();
    let id = sources.add("test.algo", text);
    match format(&sources, id) {
        Ok(text) => text,
        Err(faults) => panic!("{}", render::human(&sources, &faults[0], false)),
    }
}

/// Returns the tree of a text as words, without its spans.
fn tree(text: &str) -> String {
    let mut sources = SourceMap::new();
    let id = sources.add("test.algo", text);
    let shown = format!("{:?}", parse(&sources, id));
    let mut pieces = shown.split("Span {");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.split_once('}').map_or("", |(_, rest)| rest))
}

/// Comments in order, without the blanks at their ends.
fn comments(text: &str) -> Vec<&str> {
    crate::lex::lex(text).iter().filter(|t| is_remark(t)).map(|t| t.text(text)).collect()
}

fn golden(text: &str, expected: Expect) {
    let once = formatted(text);
    expected.assert_eq(&once);
    assert_eq!(formatted(&once), once, "formatting twice");
}

#[test]
fn the_examples() {
    let text = include_str!("../parse/examples.algo");
    golden(
        text,
        expect![[r#"
            //! All forms of the language, once each.

            import "tools.algo"

            fn half(a) = a / 2

            /// The lowest bit cleared.
            fn parent(r) {
                let low = r & -r
                r - low
            }

            /// Rank r gets what the opposite rank has.
            collective opposite on n ranks {
                input 1
                output 1
                each r { output[0] = input[0] at n - 1 - r }
            }

            collective sums on (node, gpu) ranks {
                input n
                output n
                for c in 0..n where c != 3 { output[c] = reduce p in 0..n where p % 2 == c % 2 : input[c] at p }
            }

            // Each chunk goes round once to be summed and once to be shared.
            algorithm ring implements all_reduce on n ranks {
                chunks n

                for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
                for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
            }

            algorithm halving_doubling implements all_reduce on n ranks {
                requires pow2(n)
                chunks n
                for k in 0..log2(n) { // halve: keep the half that holds your own chunk
                    let d = n >> (k + 1)
                    each r {
                        let p = r ^ d
                        r -> p : reduce data[(p / d) * d .. (p / d + 1) * d]
                    }
                }
                for k in 0..log2(n) { // double
                    let d = 1 << k
                    each r { r -> r ^ d : copy data[(r / d) * d .. (r / d + 1) * d] }
                }
            }

            algorithm two_level implements all_reduce on (node, gpu) ranks {
                chunks gpu.size
                use reduce_scatter.ring over gpu // composition: a sub-algorithm on every group along an axis
                use all_reduce.halving_doubling over node on data[gpu]
                use all_gather.ring over gpu
            }

            algorithm multipath implements all_reduce on n ranks {
                split data over p in paths by bandwidth(p) { use ring via p } // load-balanced over every path the topology has
                schedule { pipeline 8 }
            }

            algorithm compressed implements all_reduce on n ranks { // bf16 on the wire, f32 in the sum: declared lossy, checked as such
                chunks n
                for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] as bf16 } }
                for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] as bf16 } }
            }

            algorithm regions implements all_to_all on (node, gpu) ranks {
                scratch tmp[2 * n]
                requires n > 1 && !(n == 3)
                chunks n
                each (i, g) where i != 0 || g == 1 {
                    (i, g) -> (0, g) : copy input[0..n by 4 take 2] -> tmp[n ..+ n by 2]
                    (i, g) -> (i, g) : copy tmp[0 ..+ n] -> output
                }
                if n == 2 {
                    0 -> 1 : copy data[0]
                } else if n == 4 {} else {
                    split data over p in 0..2 {
                        use broadcast.chain on data -> tmp root if n > 2 { 1 } else { 0 }
                    }
                }
                schedule { pipeline 8, channels 2 protocol direct }
            }

            algorithm nothing implements barrier on n ranks {}

            /// Peers of a rank.
            let radix = 4

            algorithm tree(k = radix in 2..=2*radix, mirrored = false) implements broadcast on n ranks {
                let side = if mirrored { -1 } else { 1 }
                chunks k * side * side
                let d = 1
                each r { r -> r + d : copy data }
                use broadcast.other(k = 2 * k, mirrored = true) on data[0]
                use chain
                (0) -> (1) : copy data
            }
        "#]],
    );
    assert_eq!(tree(text), tree(&formatted(text)));
}

#[test]
fn comments_stay_where_they_were_said() {
    golden(
        "  //! About.  \n\n\n// first\nfn f(a)=a//trailing\n\n\n\n// second\n\n/// Doc.\nalgorithm a implements b\n on n ranks{// open\n\n  // own\n chunks /* why */ n /* so */ /* long */\n0->1:copy // half\n data\n\n\n // last\n} // end\n// eof",
        expect![[r#"
            //! About.

            // first
            fn f(a) = a //trailing

            // second

            /// Doc.
            algorithm a implements b on n ranks { // open
                // own
                chunks /* why */ n /* so */ /* long */
                0 -> 1 : copy // half
                    data

                // last
            } // end
            // eof
        "#]],
    );
    golden(
        "fn f() = 1 /* a\n   b */ /* c */ fn g() = 2",
        expect![[r#"
        fn f() = 1 /* a
           b */ /* c */
        fn g() = 2
    "#]],
    );
    golden(
        "algorithm a implements b on n ranks { if n /* c */ { } // d\n else { 0 -> 1 : copy data } }",
        expect![[r#"
            algorithm a implements b on n ranks {
                if n /* c */ {} // d
                else {
                    0 -> 1 : copy data
                }
            }
        "#]],
    );
}

/// Characters that end a line or are white space elsewhere are text of a comment, wherever it stands.
#[test]
fn comments_end_with_what_they_end_with() {
    for odd in [
        "\u{b}",
        "\u{c}",
        "\u{85}",
        "\u{2028}",
        "\u{2029}",
        "\u{a0}",
        "\u{feff}",
        "\ra",
        "a\u{b} \u{85}",
    ] {
        let text = format!(
            "//! {odd}\n\n// {odd}\nalgorithm a implements b on n ranks {{\n    chunks n // {odd}\n    /* {odd} */\n}}\n// {odd}\n"
        );
        assert_eq!(formatted(&text), text);
        let blank = text.replace('\n', " \t\r\n");
        assert_eq!(formatted(&blank), text);
    }
}

#[test]
fn blocks_of_one_statement_stay_on_their_line() {
    golden(
        "algorithm a implements b on n ranks {
         each r { r -> r : copy data  r -> r : copy data }
         each r {
             r -> r : copy data }
         if n == 1 {} else if n == 2 { each r { r -> r : copy data } } else { }
         for s in 0..n where s != some_rather_long_name + another_rather_long_name { each r { r -> r : copy data } }
         }",
        expect![[r#"
            algorithm a implements b on n ranks {
                each r {
                    r -> r : copy data
                    r -> r : copy data
                }
                each r {
                    r -> r : copy data
                }
                if n == 1 {} else if n == 2 { each r { r -> r : copy data } } else {}
                for s in 0..n where s != some_rather_long_name + another_rather_long_name {
                    each r { r -> r : copy data }
                }
            }
        "#]],
    );
}

#[test]
fn long_lines_go_on_one_level_further_in() {
    golden(
        "fn f(first_parameter, second_parameter) = if first_parameter > second_parameter { first_parameter * (first_parameter - second_parameter) } else { g(first_parameter, second_parameter) }",
        expect![[r#"
            fn f(first_parameter, second_parameter) = if first_parameter > second_parameter { first_parameter
                * (first_parameter - second_parameter) } else { g(first_parameter, second_parameter) }
        "#]],
    );
}

#[test]
fn signs_have_their_blanks() {
    golden(
        "fn f (a,b){let x=-a+ - -b*!c  if x<b{f(a ,b)}else{n.size}}",
        expect![[r#"
            fn f(a, b) {
                let x = -a + --b * !c
                if x < b { f(a, b) } else { n.size }
            }
        "#]],
    );
    golden(
        "collective c on(i,g) ranks{input n-1 for x in f(n)+1..(n+1)*2{output [0..n-1]=input[a+b*c..d ]at(i,g)}}",
        expect![[r#"
            collective c on (i, g) ranks {
                input n - 1
                for x in f(n) + 1 .. (n + 1) * 2 { output[0..n-1] = input[a + b * c .. d] at (i, g) }
            }
        "#]],
    );
}

/// Generates words of an expression; a call and its parenthesis, and a field, are one word.
fn expression() -> BoxedStrategy<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
    let leaf = prop_oneof![
        Just(words(&["n"])),
        Just(words(&["root"])),
        Just(words(&["gpu.size"])),
        Just(words(&["0x1f"])),
        (0..1000_i64).prop_map(|i| vec![i.to_string()]),
    ];
    let sign = prop::sample::select(vec!["+", "-", "*", "/", "%", "<<", "&", "|", "^", "&&", "||"]);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            (inner.clone(), sign.clone(), inner.clone()).prop_map(|(a, op, b)| [
                a,
                vec![op.to_owned()],
                b
            ]
            .concat()),
            (prop::sample::select(vec!["-", "!"]), inner.clone()).prop_map(|(op, e)| [
                vec![op.to_owned(), "(".into()],
                e,
                vec![")".into()]
            ]
            .concat()),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| {
                [vec!["max(".into()], a, vec![",".into()], b, vec![")".into()]].concat()
            }),
            (inner.clone(), inner.clone(), inner).prop_map(|(c, a, b)| {
                let s = |s: &str| vec![s.to_owned()];
                [s("if"), c, s("{"), a, s("}"), s("else"), s("{"), b, s("}")].concat()
            }),
        ]
    })
    .boxed()
}

/// Returns a pattern in which each `E` is replaced by an expression and each `B` by a body.
fn fill(pattern: &str, mut exprs: Vec<Vec<String>>, mut bodies: Vec<Vec<String>>) -> Vec<String> {
    let mut out = Vec::new();
    for word in pattern.split(' ') {
        match word {
            "E" => out.extend(exprs.pop().unwrap_or_else(|| vec!["n".into()])),
            "B" => out.extend(bodies.pop().unwrap_or_default()),
            word => out.push(word.to_owned()),
        }
    }
    out
}

fn statement() -> BoxedStrategy<Vec<String>> {
    let simple = vec![
        "let x = E",
        "use ring",
        "use all_reduce.ring over gpu on data [ E ] -> tmp root E via E",
        "( E , E ) -> ( E , E ) : copy data [ E .. E by E take E ] -> tmp [ E ..+ E ] as bf16",
        "r -> p : reduce data",
        "r -> p : copy data [ E .. E ]",
    ];
    let nested = vec![
        "for s in E .. E { B }",
        "for s in E .. E where E { B B }",
        "if E { B } else if E { } else { B B }",
        "if E { B }",
        "each r { B }",
        "each ( i , g ) where E { B }",
        "split data over p in paths by E { B }",
        "split data over p in E .. E { B }",
    ];
    let exprs = || prop::collection::vec(expression(), 4);
    let leaf = (prop::sample::select(simple), exprs()).prop_map(|(p, e)| fill(p, e, Vec::new()));
    leaf.prop_recursive(3, 8, 3, move |inner| {
        let bodies = prop::collection::vec(inner, 3);
        (prop::sample::select(nested.clone()), exprs(), bodies).prop_map(|(p, e, b)| fill(p, e, b))
    })
    .boxed()
}

/// Returns a program, its words apart by blanks, lines and comments as they come.
fn program() -> impl Strategy<Value = String> {
    let gaps = vec![
        " ",
        " ",
        " ",
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\n\n\n",
        " // c\n",
        "\n// d  \n",
        " /* e */ ",
        "\n\t/* f\n g */\r\n",
    ];
    let gaps = gaps.into_iter().map(str::to_owned).collect::<Vec<_>>();
    program_with(prop::sample::select(gaps), Just("top".to_owned()))
}

/// Returns a program with such gaps between its words, and such texts in its documentation.
fn program_with(
    gap: impl Strategy<Value = String>,
    docs: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    let statements = prop::collection::vec(statement(), 0..4);
    let exprs = prop::collection::vec(expression(), 6);
    let gaps = prop::collection::vec(gap, 64);
    (statements, exprs, gaps, docs).prop_map(|(statements, exprs, gaps, docs)| {
        let head = "//!\u{1}\n fn f ( a , b ) = E fn g ( a ) { let x = E ( E ) } ///\u{1}\n \
                    algorithm a implements reduce on ( node , gpu ) ranks { chunks E tolerates E requires E";
        let mut words = fill(head, exprs, Vec::new());
        words.extend(statements.concat());
        words.extend(fill("schedule { pipeline E slots 2 , }", Vec::new(), Vec::new()));
        words.push("}".into());
        let gap = |i: usize| gaps[(i * 7 + i / 64) % gaps.len()].as_str();
        let docs = format!(" {docs}");
        words.iter().enumerate().map(|(i, w)| w.replace('\u{1}', &docs) + gap(i)).collect()
    })
}

/// Returns the text of a line of a comment: any characters, many of those that some notion of white space or of lines
/// has and the grammar has not.
fn remark() -> impl Strategy<Value = String> {
    let odd = "\u{b}\u{c}\r\t \u{85}\u{a0}\u{1680}\u{2003}\u{2028}\u{2029}\u{202f}\u{3000}\u{feff}\u{200b}\u{200e}\
               \u{1b}\u{1c}\u{1f}\u{7f}/*!\"{}a\u{e9}\u{1f4a9}";
    let odd = prop::sample::select(odd.chars().collect::<Vec<_>>());
    let character = prop_oneof![3 => odd, 1 => any::<char>()];
    let text = prop::collection::vec(character, 0..7).prop_map(String::from_iter);
    text.prop_map(|text| text.replace(['\0', '\n'], "\u{2028}"))
}

/// Returns a gap between words, most of them with a comment.
fn odd_gap() -> impl Strategy<Value = String> {
    let line = |text: String| match text.strip_prefix(['/', '!']) {
        Some(rest) => format!(" //// {rest}\n"),
        None => format!("\n//{text}\n"),
    };
    let block = |(a, b): (String, String)| {
        let inside = format!("{a}\n{b}").replace("*/", "* /");
        format!(" /*{inside} */ ")
    };
    prop_oneof![
        4 => Just(" ".to_owned()),
        1 => Just("\r\n".to_owned()),
        2 => remark().prop_map(line),
        1 => (remark(), remark()).prop_map(block),
    ]
}

/// Returns all comments and documentation of a text as `algo.pest` has them, without the blanks at line ends. It
/// shares nothing with the lexer.
fn remarks(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(c) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            let line = rest.split('\n').next().unwrap_or(rest);
            found.push(line.trim_end_matches([' ', '\t', '\r']).to_owned());
            line.len()
        } else if let Some(inside) = rest.strip_prefix("/*") {
            let len = inside.find("*/").map_or(rest.len(), |at| at + 4);
            found.push(rest[..len].to_owned());
            len
        } else {
            c.len_utf8()
        };
        rest = &rest[len..];
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn formatting_keeps_the_tree_and_the_comments_and_is_stable(text in program()) {
        let once = formatted(&text);
        prop_assert_eq!(tree(&text), tree(&once));
        prop_assert_eq!(comments(&text), comments(&once));
        prop_assert_eq!(formatted(&once), once);
    }

    #[test]
    fn comments_of_any_characters_keep_their_text(text in program_with(odd_gap(), remark())) {
        let once = formatted(&text);
        prop_assert_eq!(tree(&text), tree(&once));
        prop_assert_eq!(remarks(&text), remarks(&once));
        prop_assert_eq!(formatted(&once), once);
    }

    #[test]
    fn no_text_upsets_the_parser(text in "[a-z0-9(){}\\[\\].,:;=<>!/*\"& \n-]{0,80}", cut in 0_usize..400) {
        let mut sources = SourceMap::new();
        let example = include_str!("../parse/examples.algo");
        let id = sources.add("random", text.as_str());
        let broken = sources.add("broken", format!("{}{text}{}", &example[..cut], &example[cut..]));
        for id in [id, broken] {
            for fault in parse(&sources, id).err().unwrap_or_default() {
                prop_assert!(fault.span().is_some_and(|s| s.end as usize <= sources.get(id).text.len()));
                prop_assert!(!render::human(&sources, &fault, true).is_empty());
            }
        }
    }
}
