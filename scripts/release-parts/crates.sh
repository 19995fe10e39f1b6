# shellcheck shell=bash
# Every crate as a registry would take it, built from what is packed, in order; and what it breaks of the last release.

part_crates() {
    local last ignored=() name
    for name in roundelay-python roundelay-nccl roundelay-tests roundelay-examples roundelay-prototypes; do
        ignored+=(--exclude "$name")
    done
    local changed=()
    [ -z "$(git status --porcelain)" ] || changed=(--allow-dirty)
    cargo publish --workspace --dry-run --locked "${ignored[@]}" ${changed[@]+"${changed[@]}"}
    last=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
    if [ -z "$last" ]; then
        echo "no earlier release: there is nothing to be compatible with"
    else
        [ -x "$tools/bin/cargo-semver-checks" ] ||
            CARGO_TARGET_DIR=$tools/build RUSTFLAGS='' cargo install -q --locked --root "$tools" cargo-semver-checks
        cargo semver-checks --baseline-rev "$last" -p roundelay -p roundelay-cli
    fi
}
