use expect_test::{Expect, expect};

use super::*;
use crate::ast::*;
use crate::diag::render;

/// The examples of the language, together in one file.
const EXAMPLES: &str = include_str!("examples.algo");

fn source(text: &str) -> (SourceMap, SourceId) {
    let mut sources = SourceMap::new();
    let id = sources.add("test.algo", text);
    (sources, id)
}

fn accepted(text: &str) -> SourceFile {
    let (sources, id) = source(text);
    match parse(&sources, id) {
        Ok(file) => file,
        Err(faults) => panic!("{}", render::human(&sources, &faults[0], false)),
    }
}

/// Returns the faults as `file:line:column: error[code]: message`, a line each.
fn faults(text: &str) -> String {
    let (sources, id) = source(text);
    let faults = parse(&sources, id).expect_err("the text is wrong");
    faults.iter().map(|f| render::short(&sources, f) + "\n").collect()
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&faults(text));
}

fn pictured(text: &str, expected: Expect) {
    let (sources, id) = source(text);
    let faults = parse(&sources, id).expect_err("the text is wrong");
    let pictures: Vec<_> = faults.iter().map(|f| render::human(&sources, f, false)).collect();
    expected.assert_eq(&(pictures.join("\n\n") + "\n"));
}

/// Returns the statements of an algorithm with this body.
fn body(text: &str) -> Vec<Stmt> {
    let text = format!("algorithm a implements b on n ranks {{ {text} }}");
    match accepted(&text).items.pop() {
        Some(FileDeclaration::Algorithm(a)) => a.body,
        other => panic!("{other:?}"),
    }
}

/// Returns an expression with all its parentheses.
fn shown(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Int(i) => i.to_string(),
        ExprKind::Name(n) => n.clone(),
        ExprKind::Field(a, b) => format!("{}.{}", a.text, b.text),
        ExprKind::Unary(UnOp::Neg, e) => format!("(-{})", shown(e)),
        ExprKind::Unary(UnOp::Not, e) => format!("(!{})", shown(e)),
        ExprKind::Binary(op, a, b) => format!("({} {} {})", shown(a), op.symbol(), shown(b)),
        ExprKind::Call(f, args) => {
            format!("{}({})", f.text, args.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        ExprKind::Truth(value) => value.to_string(),
        ExprKind::If(c, a, b) => format!("if {} {{{}}} else {{{}}}", shown(c), shown(a), shown(b)),
    }
}

fn value(text: &str) -> String {
    match body(&format!("let x = {text}")).as_slice() {
        [Stmt::Let(_, e)] => shown(e),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_examples_parse() {
    let file = accepted(EXAMPLES);
    assert_eq!(file.items.len(), 14);
    assert_eq!(file.docs, ["All forms of the language, once each."]);
}

#[test]
fn a_small_tree() {
    let file = accepted(
        "/// One chunk.\nalgorithm a implements b on n ranks { 0 -> n : copy data[1..2] }",
    );
    let Some(FileDeclaration::Algorithm(algorithm)) = file.items.first() else {
        panic!("an algorithm")
    };
    assert_eq!(algorithm.docs, ["One chunk."]);
    expect![[r#"
        [
            Transfer(
                TransferStmt {
                    src: One(
                        Expr {
                            kind: Int(
                                0,
                            ),
                            span: Span {
                                source: SourceId(
                                    0,
                                ),
                                start: 53,
                                end: 54,
                            },
                        },
                    ),
                    dst: One(
                        Expr {
                            kind: Name(
                                "n",
                            ),
                            span: Span {
                                source: SourceId(
                                    0,
                                ),
                                start: 58,
                                end: 59,
                            },
                        },
                    ),
                    op: Copy,
                    from: RegionRef {
                        buffer: SpannedName {
                            text: "data",
                            span: Span {
                                source: SourceId(
                                    0,
                                ),
                                start: 67,
                                end: 71,
                            },
                        },
                        index: Some(
                            Range {
                                from: Expr {
                                    kind: Int(
                                        1,
                                    ),
                                    span: Span {
                                        source: SourceId(
                                            0,
                                        ),
                                        start: 72,
                                        end: 73,
                                    },
                                },
                                to: Expr {
                                    kind: Int(
                                        2,
                                    ),
                                    span: Span {
                                        source: SourceId(
                                            0,
                                        ),
                                        start: 75,
                                        end: 76,
                                    },
                                },
                                by: None,
                                take: None,
                            },
                        ),
                        span: Span {
                            source: SourceId(
                                0,
                            ),
                            start: 67,
                            end: 77,
                        },
                    },
                    to: None,
                    wire: None,
                    span: Span {
                        source: SourceId(
                            0,
                        ),
                        start: 53,
                        end: 77,
                    },
                },
            ),
        ]
    "#]]
    .assert_debug_eq(&algorithm.body);
}

#[test]
fn operators_group_as_the_grammar_says() {
    assert_eq!(value("a || b && c == d"), "(a || (b && (c == d)))");
    assert_eq!(value("a | b ^ c & d << 1 + 2 * 3"), "(a | (b ^ (c & (d << (1 + (2 * 3))))))");
    assert_eq!(value("a - b - c % d / e"), "((a - b) - ((c % d) / e))");
    assert_eq!(value("-a * !b - -1"), "(((-a) * (!b)) - (-1))");
    assert_eq!(value("(a + b) * gpu.size < f(1, g())"), "(((a + b) * gpu.size) < f(1, g()))");
    assert_eq!(
        value("if a { 1 } else if b { 2 } else { 3 } + 1"),
        "(if a {1} else {if b {2} else {3}} + 1)"
    );
    assert_eq!(value("0xff + 0b1_01 + 1_000"), "((255 + 5) + 1000)");
    assert_eq!(value("a < (b < c)"), "(a < (b < c))");
}

#[test]
fn a_tuple_after_an_expression_begins_a_statement() {
    let body = body("let p = r ^ d\n(i, p) -> (i, r) : copy data let q = f(1)");
    assert!(
        matches!(body.as_slice(), [Stmt::Let(..), Stmt::Transfer(t), Stmt::Let(..)] if matches!(t.src, RankRef::Tuple(..))),
        "{body:?}"
    );
}

#[test]
fn words_with_a_meaning_in_one_place_are_names_elsewhere() {
    let body = body(
        "let root = 1 let paths = 2 let ranks = 3 let reduce = root + paths
         use reduce.binomial root root over_ -> 1 : copy input -> output
         split data over p in paths..4 { use ring via p }",
    );
    assert_eq!(body.len(), 7);
    assert!(matches!(&body[6], Stmt::Split(s) if s.range.is_some()));
}

#[test]
fn spans_are_tight() {
    let text = "algorithm a implements b on n ranks { each r where r > 0   // c\n{ r -> 0 : copy data[r] /* d */ as bf16 // e\n } } // f\n";
    let (sources, id) = source(text);
    let file = parse(&sources, id).expect("it parses");
    let Some(FileDeclaration::Algorithm(a)) = file.items.first() else { panic!("an algorithm") };
    assert_eq!(sources.snippet(a.header), "algorithm a implements b on n ranks");
    assert!(sources.snippet(a.span).ends_with("} }"));
    let [Stmt::Each(each)] = a.body.as_slice() else { panic!("an each") };
    assert_eq!(sources.snippet(each.span), "each r where r > 0");
    let [Stmt::Transfer(t)] = each.body.as_slice() else { panic!("a transfer") };
    assert_eq!(sources.snippet(t.span), "r -> 0 : copy data[r] /* d */ as bf16");
    assert_eq!(sources.snippet(t.src.span()), "r");
    assert_eq!(sources.snippet(t.from.span), "data[r]");
}

#[test]
fn what_was_expected_is_said_in_words() {
    let inside =
        |body: &str| faults(&format!("algorithm a implements b on n ranks {{\n{body}\n}}"));
    let slips = [
        "0 -> 1 : copy data;",
        "0 -> 1 copy data",
        "0 -> 1 : send data",
        "0 -> 1 : copy data(3)",
        "if n = 2 { }",
        "0 -> 1 : copy data\nchunks n",
        "each r { schedule { pipeline 8 } }",
        "schedule { pipeline 8 }\n0 -> 1 : copy data",
        "0 -> 1 : copy data\n)",
        "for s in 0 { }",
        "let at = 3",
        "r",
        "/// why\n0 -> 1 : copy data",
        "let x = a < b == c",
        "let x = 3x",
        "let x = (1 + ",
        "chunks 2 chunks 3",
        "output[0] = input[0] at 1",
        "use ring over 3",
        "let x = 99999999999999999999",
        "let x = 0x",
        "let x = é",
    ];
    let all: String = slips.iter().map(|s| format!("{s:?}\n    {}", inside(s))).collect();
    expect![[r#"
        "0 -> 1 : copy data;"
            test.algo:2:19: error[RL0101]: unexpected `;`
        "0 -> 1 copy data"
            test.algo:2:8: error[RL0101]: expected `:` before `copy`
        "0 -> 1 : send data"
            test.algo:2:10: error[RL0101]: unknown operation `send`
        "0 -> 1 : copy data(3)"
            test.algo:2:19: error[RL0101]: chunks are chosen with brackets
        "if n = 2 { }"
            test.algo:2:6: error[RL0101]: `=` does not compare
        "0 -> 1 : copy data\nchunks n"
            test.algo:3:1: error[RL0208]: `chunks` must stand before the first statement
        "each r { schedule { pipeline 8 } }"
            test.algo:2:10: error[RL0208]: `schedule` must be the last part of an algorithm
        "schedule { pipeline 8 }\n0 -> 1 : copy data"
            test.algo:3:1: error[RL0208]: nothing may follow the schedule
        "0 -> 1 : copy data\n)"
            test.algo:3:1: error[RL0101]: expected a statement or `}`, found `)`
        "for s in 0 { }"
            test.algo:2:12: error[RL0101]: expected `..`, found `{`
        "let at = 3"
            test.algo:2:5: error[RL0101]: expected a name, found `at`
        "r"
            test.algo:3:1: error[RL0101]: expected `->`, found `}`
        "/// why\n0 -> 1 : copy data"
            test.algo:2:1: error[RL0101]: a doc comment has nothing to describe here
        "let x = a < b == c"
            test.algo:2:15: error[RL0101]: comparisons do not chain
        "let x = 3x"
            test.algo:2:9: error[RL0101]: expected an expression, found `3x`
        "let x = (1 + "
            test.algo:3:1: error[RL0101]: expected an expression, found `}`
        "chunks 2 chunks 3"
            test.algo:2:10: error[RL0208]: `chunks` is given twice
        "output[0] = input[0] at 1"
            test.algo:2:1: error[RL0208]: an `output[…] = …` stands in an algorithm, but belongs in a collective
        "use ring over 3"
            test.algo:2:15: error[RL0101]: expected a name, found `3`
        "let x = 99999999999999999999"
            test.algo:2:9: error[RL0105]: the number is too large
        "let x = 0x"
            test.algo:2:9: error[RL0101]: expected an expression, found `0x`
        "let x = é"
            test.algo:2:9: error[RL0101]: expected an expression, found `é`
    "#]].assert_eq(&all);
}

#[test]
fn keywords_that_were_meant_are_proposed() {
    let inside = |text: &str| {
        let (sources, id) = source(&format!("algorithm a implements b on n ranks {{ {text} }}"));
        let faults = parse(&sources, id).expect_err("the text is wrong");
        format!("{}: {}\n", faults[0].message, faults[0].helps.join(", "))
    };
    let words = [
        "eech r { r -> 0 : copy data }",
        "each r wher r > 0 { r -> 0 : copy data }",
        "chunk n",
        "fro s in 0..n { }",
        "lett x = 3",
        "sched { slots 2 }",
        "each r { send root, data }",
        "each r { copy data from r to 0 }",
        "each r { r -> 0 : redcue data }",
        "each r { r -> 0 : send data }",
        "each r { left right : copy data }",
        "each r { let x = r + lett 1 }",
        "} algoritm b implements b on n ranks {",
    ];
    expect![[r#"
        no statement begins with `eech`: did you mean `each`?
        expected `where` or `{`, found `wher`: did you mean `where`?
        no statement begins with `chunk`: did you mean `chunks`?
        no statement begins with `fro`: did you mean `for`?
        no statement begins with `lett`: did you mean `let`?
        no statement begins with `sched`: did you mean `schedule`?
        a transfer begins with its ranks, not with `send`: write `from -> to : copy region`, as in `r -> (r + 1) % n : copy data`
        a transfer begins with its ranks, not with `copy`: write `from -> to : copy region`, as in `r -> (r + 1) % n : copy data`
        unknown operation `redcue`: did you mean `reduce`, which adds to what is there?
        unknown operation `send`: did you mean `copy`, which overwrites what is there?
        expected `->`, found `right`: 
        expected `->`, found `}`: 
        expected a declaration (`algorithm`, `collective`, `fn`, `let` or `import`), found `algoritm`: did you mean `algorithm`?
    "#]].assert_eq(&words.map(inside).concat());
    pictured(
        "algorithm a implement b on n rank { }",
        expect![[r#"
            error[RL0101]: expected `implements` or `(`, found `implement`
             --> test.algo:1:13
              |
            1 | algorithm a implement b on n rank { }
              |             ^^^^^^^^^ expected `implements` or `(`
              |
              = help: did you mean `implements`?
        "#]],
    );
}

#[test]
fn declarations_fail_one_by_one() {
    refused(
        "import 3\nalgorithm a implements b on n ranks { each r { }\n\nfn f(a) = a\n/// c\ncollective c on n { }\nfn g( = 1 fn h() = 2 }\nalgorithm x",
        expect![[r#"
            test.algo:1:8: error[RL0101]: expected a path in quotes, found `3`
            test.algo:2:49: error[RL0101]: expected a statement or `}`, found the next declaration
            test.algo:6:19: error[RL0101]: expected `ranks`, found `{`
            test.algo:7:7: error[RL0101]: expected a name or `)`, found `=`
            test.algo:7:22: error[RL0101]: unexpected `}`
            test.algo:8:12: error[RL0101]: expected `implements` or `(`, found the end of the file
        "#]],
    );
    refused(
        "// nothing\n",
        expect![[r#"
        test.algo:1:1: error[RL0104]: the file declares nothing
    "#]],
    );
    refused(
        "",
        expect![[r#"
        test.algo:1:1: error[RL0104]: the file declares nothing
    "#]],
    );
    refused(
        "hello",
        expect![[r#"
            test.algo:1:1: error[RL0101]: expected a declaration (`algorithm`, `collective`, `fn`, `let` or `import`), found `hello`
        "#]],
    );
    refused(
        "algorithm a implements b on n ranks { } }",
        expect![[r#"
        test.algo:1:41: error[RL0101]: unexpected `}`
    "#]],
    );
    refused(
        "fn f() = 1 /* and",
        expect![[r#"
        test.algo:1:12: error[RL0101]: the comment is never closed
    "#]],
    );
    refused(
        "collective c on n ranks { let x = 1 input n }",
        expect![[r#"
        test.algo:1:37: error[RL0208]: `input` must stand before the first statement
    "#]],
    );
    refused(
        "collective c on n ranks { 0 -> 1 : copy data }",
        expect![[r#"
        test.algo:1:27: error[RL0208]: a transfer stands in a collective, but belongs in an algorithm
    "#]],
    );
}

#[test]
fn characters_that_cannot_be_seen_are_named() {
    for (odd, name) in
        [("\u{a0}", "U+00A0"), ("\u{2028}", "U+2028"), ("\u{b}", "U+000B"), ("\u{200b}", "U+200B")]
    {
        let (sources, id) = source(&format!("algorithm a{odd}implements b on n ranks {{}}\n"));
        let faults = parse(&sources, id).expect_err("a fault");
        assert!(faults[0].message.ends_with(&format!("found the character {name}")), "{faults:?}");
        assert!(faults[0].helps.iter().any(|h| h.contains("remove the character")), "{faults:?}");
    }
}

#[test]
fn errors_as_pictures() {
    pictured(
        "algorithm a implements b on n ranks {\n    for s in 0..n { each r { r -> 0 copy data }\n}\n",
        expect![[r#"
            error[RL0101]: expected `:` before `copy`
             --> test.algo:2:37
              |
            2 |     for s in 0..n { each r { r -> 0 copy data }
              |                                     ^^^^ the `:` is missing
              |
              = help: write `from -> to : copy region`
        "#]],
    );
    pictured(
        "algorithm a implements b on n ranks {\n    0 -> 1 : copy data\n",
        expect![[r#"
        error[RL0101]: expected a statement or `}`, found the end of the file
         --> test.algo:2:23
          |
        1 | algorithm a implements b on n ranks {
          |                                     - opened here and never closed
        2 |     0 -> 1 : copy data
          |                       ^ expected a statement or `}`
    "#]],
    );
    pictured(
        "algorithm a implements b on n ranks {\n    let x = 0 < n\n        < 2\n    0 -> 1 : copy data;\n}",
        expect![[r#"
            error[RL0101]: unexpected `;`
             --> test.algo:4:23
              |
            4 |     0 -> 1 : copy data;
              |                       ^ not part of the language
              |
              = help: statements need no `;`: remove it
        "#]],
    );
}

#[test]
fn limits_hold_without_time_or_stack() {
    let first = |text: &str| {
        let (sources, id) = source(text);
        let faults = parse(&sources, id).expect_err("beyond a limit");
        let at = faults[0].span().map(|s| s.start).unwrap_or_default();
        (faults.len(), faults[0].code, at)
    };
    let value = |value: String| format!("fn f(a) = {value}");
    let nested =
        |open: &str, n: usize, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
    let long = codes::TOO_LARGE;
    assert_eq!(first(&"x".repeat(10 << 20)), (1, long, 0));
    assert_eq!(first(&value(nested("(", 10_000, ")"))), (1, long, 10 + 200));
    assert_eq!(first(&value("(".repeat(10_000))).1, long);
    assert_eq!(first(&value("1+".repeat(10_000) + "1")), (1, long, 10));
    assert_eq!(first(&value("-".repeat(10_000) + "1")).1, long);
    assert_eq!(first(&value("if a { 1 } else ".repeat(10_000) + "{ 1 }")).1, long);
    let chain = "if n { } else ".repeat(10_000) + "{ }";
    assert_eq!(first(&format!("algorithm a implements b on n ranks {{ {chain} }}")).1, long);
    assert_eq!(first("fn f() = \0"), (1, codes::NOT_TEXT, 9));
    assert_eq!(first("fn f() = 9223372036854775808"), (1, codes::NUMBER, 9));
    accepted(&value(nested("(", MAX_DEPTH, ")")));
    accepted(&value("1+".repeat(MAX_DEPTH) + "1"));
    let deep = nested("if n { ", MAX_DEPTH - 1, "}").replace('1', " ");
    accepted(&format!("algorithm a implements b on n ranks {{ {deep} }}"));
    accepted(&format!("fn f(a) = {}", "if a { f(".repeat(90) + "1" + &") } else { 1 }".repeat(90)));
}

#[test]
fn bytes_are_checked_before_they_are_text() {
    assert_eq!(check_text(b"fn").ok(), Some("fn"));
    assert_eq!(check_text(b"f\0").map_err(|d| d.code), Err(codes::NOT_TEXT));
    assert_eq!(check_text(b"\xff\xfe").map_err(|d| d.code), Err(codes::NOT_TEXT));
    assert_eq!(check_text(&vec![b' '; MAX_BYTES + 1]).map_err(|d| d.code), Err(codes::TOO_LARGE));
}

#[test]
fn large_texts_take_no_time_to_speak_of() {
    let fill = |open: &str, piece: &str| format!("{open}{}", piece.repeat(200_000 / piece.len()));
    let algorithm = "algorithm a implements b on n ranks {";
    let started = std::time::Instant::now();
    for (open, piece) in [
        ("", "fn f( = 1\n"),
        ("", "fn "),
        ("", "} "),
        (algorithm, "0 -> 1 : copy data "),
        (algorithm, "if n { } "),
        (algorithm, "// comment\n"),
        (algorithm, "let x = ((((1) "),
        ("fn f() = 1", " < 1"),
        ("fn f() = 1", " + 1"),
        ("fn f() = f(1", ", 1"),
        ("", "/* */ /// x\n"),
    ] {
        let (sources, id) = source(&fill(open, piece));
        let faults = parse(&sources, id).err().unwrap_or_default();
        assert!((1..=MAX_FAULTS).contains(&faults.len()), "{piece}");
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn constants_stand_outside_of_declarations() {
    let file = accepted("let a = 4 /// Half.\nlet b = a / 2 fn f(x) = x + a\nlet c = f(b)");
    let names = file.items.iter().map(|item| match item {
        FileDeclaration::Constant(c) => format!("{} = {}", c.name.text, shown(&c.value)),
        FileDeclaration::Fn(f) => format!("fn {}", f.name.text),
        other => panic!("{other:?}"),
    });
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["a = 4", "b = (a / 2)", "fn f", "c = f(b)"]);
}

#[test]
fn parameters_and_arguments() {
    let text = "algorithm a(k = r in 2..=2 * r, up = true) implements barrier on n ranks {
        let c = k
        scratch t[c]
        let d = k
        use x.b(k = 2 * k, up = false) over n
        use b
        (0) -> (1) : copy data
    }";
    let Some(FileDeclaration::Algorithm(a)) = accepted(text).items.pop() else { panic!("none") };
    let parameters = a.parameters.iter().map(|p| {
        let bounds = p.bounds.as_ref().map(|(a, b)| format!("{}..={}", shown(a), shown(b)));
        format!("{} = {} in {bounds:?}", p.name.text, shown(&p.default))
    });
    let parameters: Vec<String> = parameters.collect();
    assert_eq!(parameters, ["k = r in Some(\"2..=(2 * r)\")", "up = true in None"]);
    assert_eq!(a.lets.len(), 1, "the `let` behind the clauses is a statement");
    let [Stmt::Let(..), Stmt::Use(one), Stmt::Use(two), Stmt::Transfer(_)] = a.body.as_slice()
    else {
        panic!("{:?}", a.body)
    };
    let given: Vec<_> = one.arguments.iter().map(|(n, e)| (n.text.as_str(), shown(e))).collect();
    assert_eq!(given, [("k", "(2 * k)".to_owned()), ("up", "false".to_owned())]);
    assert!(two.arguments.is_empty());
}

#[test]
fn reserved_words_are_those_of_the_grammar() {
    let grammar = include_str!("../algo.pest");
    let (_, rule) = grammar.split_once("\nkeyword = @{").expect("the rule");
    let (rule, _) = rule.split_once("\n}").expect("its end");
    let words: Vec<&str> = rule.split('"').skip(1).step_by(2).collect();
    assert_eq!(words, crate::KEYWORDS);
}
