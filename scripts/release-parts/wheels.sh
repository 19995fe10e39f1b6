# shellcheck shell=bash
# The wheels: one for all versions of Python from 3.10, for any Linux since glibc 2.28, with the program in it.

part_wheels() {
    local arch triple built scripts=python/roundelay.data/scripts
    mkdir -p "$scripts"
    for arch in "${targets[@]}"; do
        triple=$arch-unknown-linux-gnu built=$CARGO_TARGET_DIR/$arch-unknown-linux-gnu/release/roundelay
        [ -x "$built" ] || fail "no binaries of $arch: run the part \`binaries\` first"
        install -m 755 "$built" "$scripts/roundelay"
        (cd python && maturin build --release --locked --zig --target "$triple" --compatibility manylinux_2_28 \
            --out "$dist")
    done
    rm -f "$scripts/roundelay"
    local wheel
    python3 "$parts_of/bills.py" "$root" "$dist/roundelay-$version"-*.whl
    for wheel in "$dist/roundelay-$version"-*.whl; do
        auditwheel show "$wheel" 2>&1 | tee "$work/audit" | tail -n 4
        grep -q 'manylinux_2_\(17\|28\)_' "$work/audit" || fail "$wheel is not what its name says"
    done
    twine check --strict "$dist/roundelay-$version"-*.whl
}

# The source with all crates that it takes, from which `pip install` builds without a network.
part_source() {
    local name=roundelay-$version
    rm -rf "${work:?}/$name"
    mkdir -p "$work/$name"
    git archive HEAD | tar -C "$work/$name" -xf -
    (cd "$work/$name" && cargo vendor -q --locked --versioned-dirs vendor >"$work/vendor.toml")
    # Import libraries of other systems, which are most of the bytes.
    rm -rf "$work/$name"/vendor/windows*/lib "$work/$name"/vendor/winapi-*/lib
    python3 "$parts_of/vendored.py" "$work/$name/vendor"
    sed -i "s|directory = .*|directory = \"vendor\"|" "$work/vendor.toml"
    cat "$work/vendor.toml" >>"$work/$name/.cargo/config.toml"
    python3 "$parts_of/source_metadata.py" "$version" >"$work/$name/PKG-INFO"
    cp packaging/pyproject.source.toml "$work/$name/pyproject.toml"
    packed "$dist/$name.tar.gz" "$name"
    twine check --strict "$dist/$name.tar.gz"
}
