# shellcheck shell=bash
# The program and the libraries, for any Linux since glibc 2.17 (2012), by zig's linker and its list of old symbols.

part_binaries() {
    local arch triple
    for arch in "${targets[@]}"; do
        triple=$arch-unknown-linux-gnu
        cargo zigbuild --release --locked --target "$triple.2.17" \
            -p roundelay-cli -p roundelay-ffi -p roundelay-nccl
        check_symbols "$CARGO_TARGET_DIR/$triple/release/"{roundelay,libroundelay_ffi.so,libroundelay_nccl.so}
    done
}

# Fails if a file asks for a newer glibc than was promised, or for a library beside it.
check_symbols() {
    local file newest
    for file in "$@"; do
        newest=$(readelf -V --wide "$file" | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1)
        [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.17 ] ||
            fail "$file needs $newest"
        if readelf -d "$file" | grep NEEDED | grep -vE 'lib(c|m|dl|rt|pthread|gcc_s|util)\.so|ld-linux'; then
            fail "$file needs a library that a system may lack"
        fi
    done
}

# stage ARCH: what a user gets of an architecture, as folders of a prefix, in $work/prefix-ARCH.
stage() {
    local arch=$1 built prefix
    built=$CARGO_TARGET_DIR/$1-unknown-linux-gnu/release prefix=$work/prefix-$1
    [ -d "$prefix" ] && return
    [ -x "$built/roundelay" ] || fail "no binaries of $arch: run the part \`binaries\` first"
    mkdir -p "$prefix"/{bin,lib/roundelay,include,share/man/man1,share/doc/roundelay} \
        "$prefix"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    install -m 755 "$built/roundelay" "$prefix/bin/"
    install -m 644 "$built/libroundelay_ffi.so" "$prefix/lib/libroundelay.so.$version"
    # The name by which programs that were linked ask for it.
    patchelf --set-soname libroundelay.so.1 "$prefix/lib/libroundelay.so.$version"
    ln -s "libroundelay.so.$version" "$prefix/lib/libroundelay.so.1"
    ln -s libroundelay.so.1 "$prefix/lib/libroundelay.so"
    # In a folder of its own, so that no program finds it in place of NCCL by accident.
    install -m 644 "$built/libroundelay_nccl.so" "$prefix/lib/roundelay/"
    ln -s libroundelay_nccl.so "$prefix/lib/roundelay/libnccl.so.2"
    install -m 644 ffi/include/roundelay.h "$prefix/include/"
    mkdir -p "$prefix/lib/pkgconfig"
    sed "s/@VERSION@/$version/" packaging/roundelay.pc.in >"$prefix/lib/pkgconfig/roundelay.pc"
    local here
    here=$(host_program)
    "$here" man "$prefix/share/man/man1" >/dev/null
    "$here" completions bash >"$prefix/share/bash-completion/completions/roundelay"
    "$here" completions zsh >"$prefix/share/zsh/site-functions/_roundelay"
    "$here" completions fish >"$prefix/share/fish/vendor_completions.d/roundelay.fish"
    cp README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$prefix/share/doc/roundelay/"
    python3 "$parts_of/licences.py" "$arch-unknown-linux-gnu" >"$prefix/share/doc/roundelay/THIRD-PARTY"
    sbom "$arch" "$prefix/share/doc/roundelay/sbom.cdx.json"
}

# The program as this machine runs it.
host_program() {
    local path
    path=$CARGO_TARGET_DIR/$(uname -m)-unknown-linux-gnu/release/roundelay
    [ -x "$path" ] || fail "completions and manual pages are made by the program of this machine: add its --targets"
    echo "$path"
}

# The bill of materials in CycloneDX, of one architecture; without what differs between builds.
sbom() {
    cargo cyclonedx -q --format json --spec-version 1.5 --target "$1-unknown-linux-gnu" --manifest-path cli/Cargo.toml \
        --override-filename roundelay-sbom 2>/dev/null
    cp cli/roundelay-sbom.json "$2"
    python3 "$parts_of/bills.py" "$root" "$2"
    find . -name roundelay-sbom.json -not -path './target/*' -delete
}

part_archives() {
    local arch name
    for arch in "${targets[@]}"; do
        stage "$arch"
        name=roundelay-$version-$arch-linux
        rm -rf "${work:?}/$name"
        cp -a "$work/prefix-$arch" "$work/$name"
        packed "$dist/$name.tar.gz" "$name"
        cp "$work/prefix-$arch/share/doc/roundelay/sbom.cdx.json" "$dist/$name.cdx.json"
    done
}
