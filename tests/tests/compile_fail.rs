//! What the macros say of mistakes: each error at the right tokens, and what to do.
//!
//! `TRYBUILD=overwrite cargo test -p roundelay-tests --test compile_fail` writes the expectations anew.

#[test]
fn mistakes_are_errors_at_their_tokens() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
