#!/usr/bin/env bash
# The Python package: builds the wheel, installs it into a fresh environment, and tests it there.
#
#   tests/python.sh [PART ...]
#
# Parts: wheel (built in cargo's profile $ROUNDELAY_WHEEL_PROFILE, `dev` by default); types (mypy); test (the package);
# torch (all that needs PyTorch: that of the environment which $ROUNDELAY_TEST_TORCHRUN names). All of them by default.
# Ends with 77 and the reason where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${ROUNDELAY_WHEEL_PROFILE:-dev}
folder=$target/python
parts=" ${*:-wheel types test torch} "
export CARGO_TARGET_DIR=$target

wanted() { [[ $parts == *" $1 "* ]]; }

# What builds and tests: kept for the next run on this machine.
tools=${XDG_CACHE_HOME:-$HOME/.cache}/roundelay-ci/python-2
if ! "$tools/bin/python" -c 'import maturin, mypy, ninja, numpy, pytest, pytest_timeout' >/dev/null 2>&1; then
    rm -rf "$tools"
    if ! { python3 -m venv "$tools" && "$tools/bin/pip" install -q 'maturin>=1.9,<2' mypy ninja numpy pytest pytest-timeout; } \
        >/dev/null 2>&1; then
        echo "the Python package cannot be tested: python3 with venv, or maturin, mypy, numpy and pytest, cannot be had" >&2
        exit 77
    fi
fi

if wanted wheel; then
    # The command line travels in the wheel.
    built=$target/$profile
    [ "$profile" != dev ] || built=$target/debug
    # The tests of the workspace have built it already where they ran before.
    [ -x "$built/roundelay" ] || cargo build --quiet --locked --workspace --profile "$profile"
    scripts=python/roundelay.data/scripts
    mkdir -p "$scripts"
    cp "$built/roundelay" "$scripts/roundelay"
    strip "$scripts/roundelay" 2>/dev/null || true
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd python && "$tools/bin/maturin" build --quiet --locked --profile "$profile" --out "$folder") || exit 1
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
check() { "$environment/bin/python" -m pytest -q -p no:cacheprovider --timeout 300 "$@"; }

if wanted types || wanted test || wanted torch; then
    fresh
fi
# Before torch is there: nothing of the package but its torch modules may need it.
if wanted test; then
    check "$tests" --ignore-glob "$tests/torch*"
fi
if [ -n "$place" ]; then
    echo "$place" >"$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
fi
if wanted types && [ -n "$place" ]; then
    "$tools/bin/python" -m mypy --strict --python-executable "$environment/bin/python" -p roundelay
fi
if wanted torch; then
    if [ -z "$place" ]; then
        echo "skipped: types, and all that needs PyTorch: ROUNDELAY_TEST_TORCHRUN names no environment that has it" >&2
        exit 77
    fi
    export PATH=$tools/bin:$PATH OMP_NUM_THREADS=1
    for suite in "$tests"/torch*/; do
        check "$suite"
    done
fi
