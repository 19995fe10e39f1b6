# shellcheck shell=bash
# Installs what was made into empty systems, which have no compiler, and does there what the README's first screen does.

part_installs() {
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null && unshare -m true 2>/dev/null || {
        fail "trying installations takes root, debootstrap and mount namespaces: leave the part \`installs\` out"
    }
    local arch suite
    # glibc 2.36 with Python 3.11; a newer one of each; an older glibc, whose Python is too old for the wheel.
    local suites=(bookworm trixie bullseye)
    for arch in "${targets[@]}"; do
        if [ "$arch" = "$(uname -m)" ]; then
            for suite in "${suites[@]}"; do try_installation "$suite" "$arch"; done
        elif has_emulator "$arch"; then
            emulating "$arch" try_installation "${suites[0]}" "$arch"
        else
            echo "$arch: there is no qemu-$arch-static, or no binfmt_misc: not tried"
        fi
    done
    [ -e "$work/tried" ] || fail "no system could be had to try an installation in"
}

# try_installation SUITE ARCH: leaves $work/tried where a system can be had.
try_installation() {
    system "$1" "$2" || {
        echo "$1 on $2: no system of it can be had here: not tried"
        return 0
    }
    install_in "$1" "$2"
    touch "$work/tried"
}

# system SUITE ARCH: an empty Debian with Python, kept for the next time.
system() {
    local at=$tools/systems/$1-$2 debian=amd64
    [ "$2" = x86_64 ] || debian=arm64
    [ -f "$at/complete" ] && return
    rm -rf "$at"
    mkdir -p "$at"
    {
        debootstrap --arch="$debian" --foreign --variant=minbase --include=python3-venv "$1" "$at/root" &&
            unshare -m bash -euc '
                mount -t proc proc "$0/proc"
                chroot "$0" /debootstrap/debootstrap --second-stage' "$at/root"
    } >"$at/log" 2>&1 || {
        tail -n 3 "$at/log"
        return 1
    }
    touch "$at/complete"
}

# Runs the steps in a copy of the system that only this process sees. An emulated processor gets 60 times as long.
install_in() {
    local suite=$1 arch=$2 copy=$work/system-$1-$2 patience=1
    [ "$arch" = "$(uname -m)" ] || patience=60
    cp -a "$tools/systems/$suite-$arch/root" "$copy"
    mkdir -p "$copy/dist"
    cp "$dist"/*.tar.gz "$dist"/*.whl "$dist"/*.deb "$copy/dist/"
    install -m 755 "$parts_of/in_system.bash" "$copy/in_system"
    unshare -m bash -euc '
        mount -t proc proc "$0/proc"
        mount -t tmpfs -o size=1g tmpfs "$0/dev/shm"
        chroot "$0" /in_system "$1" "$2" "$3" "$4"' "$copy" "$suite" "$version" "$arch" "$patience"
    rm -rf "$copy"
}
