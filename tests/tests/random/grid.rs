//! Makes random programs on grids.

use roundelay_tests::SeededRandom;

/// Returns an algorithm called `main` on two axes.
pub(crate) fn program(dice: &mut SeededRandom) -> String {
    let mut one = |of: &[&'static str]| of[dice.below(of.len())];
    let scatter = one(&["ring", "direct", "circulant"]);
    let gather = one(&["ring", "bruck", "pat", "direct", "circulant"]);
    let reduce = one(&["ring", "circulant", "two_shot", "one_shot"]);
    let k = one(&["1", "2", "3"]);
    let body = match one(&["0", "1", "2", "3", "4", "5"]) {
        "0" => format!(
            "implements all_reduce on (a, b) ranks {{ chunks b.size * {k}
            use reduce_scatter.{scatter} over b
            use all_reduce.{reduce} over a on data[b * {k} ..+ {k}]
            use all_gather.{gather} over b"
        ),
        "1" => format!(
            "implements all_reduce on (a, b) ranks {{ chunks {k}
            use all_reduce.{reduce} over b
            use all_reduce.{reduce} over a"
        ),
        "2" => format!(
            "implements all_gather on (a, b) ranks {{
            use all_gather.{gather} over b on data[a * b.size ..+ b.size]
            each (i, j) {{ for m in 0..a.size where m != i {{
                (i, j) -> (m, j) : copy data[i * b.size ..+ b.size] }} }}"
        ),
        "3" => format!(
            "implements all_reduce on (a, b) ranks {{ chunks {k}
            each (i, j) where i > 0 {{ (i, j) -> (0, j) : reduce data }}
            each (i, j) where i == 0 && j > 0 {{ (i, j) -> 0 : reduce data }}
            use broadcast.{} over b root 0
            use broadcast.binomial over a root 0",
            one(&["chain", "binomial"])
        ),
        "4" => format!(
            "implements all_to_all on (a, b) ranks {{ chunks a.size * b.size * {k}
            let n = a.size * b.size
            each (i, j) {{ let r = i * b.size + j for p in 0..n {{
                r -> p : copy input[p * {k} ..+ {k}] -> output[r * {k} ..+ {k}] }} }}"
        ),
        _ => format!(
            "implements broadcast on (a, b) ranks {{ chunks {k}
            each (i, j) where i * b.size + j == root {{ (i, j) -> (i, (j + 1) % b.size) : copy data }}
            each (i, j) where i * b.size + j != root {{ root -> (i, j) : copy data }}"
        ),
    };
    let channels =
        one(&["", "", "schedule { channels 2 }", "schedule { slots 1 protocol direct }"]);
    format!("algorithm main {body}\n{channels} }}\n")
}
