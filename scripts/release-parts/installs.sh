# shellcheck shell=bash
# Installs what was made into empty systems, which have no compiler, and does there what the README's first screen does.

part_installs() {
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null && unshare -m true 2>/dev/null || {
        fail "trying installations takes root, debootstrap and mount namespaces: leave the part \`installs\` out"
    }
    local suite tried=0
    # glibc 2.36 with Python 3.11; a newer one of each; an older glibc, whose Python is too old for the wheel.
    for suite in bookworm trixie bullseye; do
        system "$suite" || {
            echo "$suite: no system of it can be had here: not tried"
            continue
        }
        tried=$((tried + 1))
        install_in "$suite"
    done
    [ "$tried" -gt 0 ] || fail "no system could be had to try an installation in"
}

# system SUITE: an empty Debian with Python, kept for the next time.
system() {
    local at=$tools/systems/$1
    [ -f "$at/complete" ] && return
    rm -rf "$at"
    mkdir -p "$at"
    debootstrap --variant=minbase --include=python3-venv "$1" "$at/root" >"$at/log" 2>&1 || {
        tail -n 3 "$at/log"
        return 1
    }
    touch "$at/complete"
}

# Runs the steps in a copy of the system that only this process sees.
install_in() {
    local suite=$1 copy=$work/system-$1
    cp -a "$tools/systems/$suite/root" "$copy"
    mkdir -p "$copy/dist"
    cp "$dist"/*.tar.gz "$dist"/*.whl "$dist"/*.deb "$copy/dist/"
    install -m 755 "$parts_of/in_system.bash" "$copy/in_system"
    unshare -m bash -euc '
        mount -t proc proc "$0/proc"
        mount -t tmpfs -o size=1g tmpfs "$0/dev/shm"
        chroot "$0" /in_system "$1" "$2"' "$copy" "$suite" "$version"
    rm -rf "$copy"
}
