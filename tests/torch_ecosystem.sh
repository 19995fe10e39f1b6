#!/usr/bin/env bash
# Programs of others, unchanged, beside Gloo and with roundelay in Gloo's place: Accelerate, transformers, Lightning,
# DeepSpeed, torchft, and PARAM and torch_ucc where their sources are.
#
#   tests/torch_ecosystem.sh [--torch VERSION] [--only TEXT ...] [--json FILE] [--list]
#
# The package is the wheel that `tests/python.sh wheel` has built, or the tree's own where its native module lies in it.
# PyTorch is that of the environment which $ROUNDELAY_TEST_TORCHRUN names, or the VERSION of the package index.
# $ROUNDELAY_ECOSYSTEM_SOURCES names a folder with checkouts: param_bench (facebookresearch/param), torch_ucc.
# $ROUNDELAY_TORCH_COMPILED=1 takes the face in C++. Ends with 77 and the reason where what it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version= arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --torch) version=$2; shift 2 ;;
        --json) arguments+=(--json "$(realpath -m "$2")"); shift 2 ;;
        *) arguments+=("$1"); shift ;;
    esac
done
environment=$target/torch-ecosystem/env-${version:-given}
python=$environment/bin/python
export PIP_NO_CACHE_DIR=1

if [ ! -f "$environment/ready" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ -z "$version" ]; then
        given=$(dirname "${ROUNDELAY_TEST_TORCHRUN:-/}")/python
        packages='from pathlib import Path; import torch; print(Path(torch.__file__).parents[1])'
        place=$("$given" -c "$packages" 2>/dev/null || true)
        if [ -z "$place" ]; then
            echo "no PyTorch: ROUNDELAY_TEST_TORCHRUN names no environment that has it; or give --torch VERSION" >&2
            exit 77
        fi
        echo "$place" >"$own/torch.pth"
    else
        if ! "$environment/bin/pip" install -q "torch==$version"; then
            echo "torch $version cannot be installed" >&2
            exit 77
        fi
    fi
    # Each alone: one that cannot be had leaves the others.
    "$environment/bin/pip" install -q setuptools wheel numpy ninja pytest pytest-timeout parameterized expecttest pydot
    for package in accelerate transformers lightning torchft; do
        "$environment/bin/pip" install -q "$package" || echo "$package cannot be installed" >&2
    done
    # It looks for torch while it is built.
    if ! DS_BUILD_OPS=0 "$environment/bin/pip" install -q --no-build-isolation deepspeed; then
        echo "deepspeed cannot be installed" >&2
    fi
    touch "$environment/ready"
fi

own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$own"/roundelay "$own"/roundelay.pth "$own"/roundelay-*.dist-info
if [ -f python/roundelay/_native.abi3.so ]; then
    echo "$root/python" >"$own/roundelay.pth"
    meta=$own/roundelay-0.dist-info
    mkdir "$meta"
    printf 'Metadata-Version: 2.1\nName: roundelay\nVersion: 0\n' >"$meta/METADATA"
    "$python" - python/pyproject.toml >"$meta/entry_points.txt" <<'PYTHON'
import re, sys
text = open(sys.argv[1]).read()
for group, lines in re.findall(r'\[project\.entry-points\."(.+?)"\]\n((?:\w+ = .*\n)+)', text):
    print(f"[{group}]\n" + lines.replace('"', ""))
PYTHON
elif compgen -G "$target/python/*.whl" >/dev/null; then
    "$environment/bin/pip" install -q --no-deps --no-index "$target"/python/*.whl
else
    echo "no package: run tests/python.sh wheel" >&2
    exit 77
fi
PATH=$environment/bin:$PATH exec "$python" tests/torch_ecosystem/run.py "${arguments[@]}"
