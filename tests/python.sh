#!/usr/bin/env bash
# The Python package: builds the wheel, installs it into a fresh environment, and tests it there.
#
#   tests/python.sh [PART ...]
#
# Parts: packages (what builds and tests, nothing else); wheel (built in cargo's profile $ROUNDELAY_WHEEL_PROFILE, `dev`
# by default, with $ROUNDELAY_WHEEL_FEATURES); types (mypy); test (the package); torch (what needs PyTorch, that of the
# environment which $ROUNDELAY_TEST_TORCHRUN names); benches (its bench, and the script for GPUs where there are none);
# faults (training under faults, at random). All of them by default, but faults.
# Wheels of a release are made by scripts/release.
# Ends with 77 and the reason where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${ROUNDELAY_WHEEL_PROFILE:-dev}
folder=$target/python
parts=" ${*:-wheel types test torch benches} "
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

if wanted wheel; then
    # The command line travels in the wheel.
    rm -rf "$folder"
    mkdir -p "$folder"
    # As `pip install ./python` does it.
    rm -rf python/roundelay.data
    ROUNDELAY_WHEEL_PROFILE=$profile PATH=$tools/bin:$PATH \
        "$tools/bin/pip" wheel -q --no-deps --no-build-isolation --wheel-dir "$folder" ./python
    ls -sh "$folder"/*.whl
fi

# A fresh environment with the wheel, and what the tests need from elsewhere: PyTorch too, where there is one.
environment=$folder/env
torch=$(dirname "${ROUNDELAY_TEST_TORCHRUN:-/}")/python
find_torch='import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'
place=$("$torch" -c "$find_torch" 2>/dev/null || true)
fresh() {
    rm -rf "$environment"
    python3 -m venv --without-pip "$environment"
    local own
    own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$tools/bin/pip" --python "$environment/bin/python" install -q --no-deps --no-index "$folder"/*.whl
    "$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$own/tools.pth"
}

tests=python/tests
check() { "$environment/bin/python" -m pytest -q -p no:cacheprovider --timeout 300 --durations 10 "$@"; }

if wanted types || wanted test || wanted torch || wanted benches || wanted faults; then
    fresh
fi
# Before torch is there: nothing of the package but its torch modules may need it.
if wanted test; then
    check "$tests" --ignore-glob "$tests/torch*"
fi
if [ -n "$place" ] && [ -d "$environment" ]; then
    echo "$place" >"$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
fi
if wanted types && [ -n "$place" ]; then
    "$tools/bin/python" -m mypy --strict --python-executable "$environment/bin/python" -p roundelay
fi
if wanted torch || wanted benches || wanted faults; then
    if [ -z "$place" ]; then
        echo "skipped: types, and all that needs PyTorch: ROUNDELAY_TEST_TORCHRUN names no environment that has it" >&2
        exit 77
    fi
    export PATH=$tools/bin:$PATH OMP_NUM_THREADS=1
fi
if wanted torch; then
    # Ranks wait for each other most of the time: two lanes of suites, of which the second is shown when it has ended.
    second() {
        local suite
        for suite in torch_comms torch_compiled torch_programs torch_safety; do
            check "$tests/$suite" || return
        done
    }
    second >"$folder/second.log" 2>&1 &
    lane=$!
    trap 'kill "$lane" 2>/dev/null || true' EXIT
    for suite in "$tests"/torch*/; do
        case $suite in
        */torch_comms/ | */torch_compiled/ | */torch_programs/ | */torch_safety/) ;;
        */torch_bench/ | */torch_gpu/ | */torch_faults/) ;;
        *) check "$suite" ;;
        esac
    done
    rc=0
    wait "$lane" || rc=$?
    trap - EXIT
    cat "$folder/second.log"
    [ "$rc" = 0 ] || exit "$rc"
fi
if wanted benches; then
    check "$tests/torch_bench"
    check "$tests/torch_gpu"
fi
if wanted faults; then
    check "$tests/torch_faults"
fi
