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

. tests/torch_environment.sh
torch_environment "$environment" "$version"
if [ ! -f "$environment/ready" ]; then
    # Each alone: one that cannot be had leaves the others.
    "$environment/bin/pip" install -q parameterized expecttest pydot
    for package in accelerate transformers lightning torchft; do
        "$environment/bin/pip" install -q "$package" || echo "$package cannot be installed" >&2
    done
    # It looks for torch while it is built.
    if ! DS_BUILD_OPS=0 "$environment/bin/pip" install -q --no-build-isolation deepspeed; then
        echo "deepspeed cannot be installed" >&2
    fi
    touch "$environment/ready"
fi

package "$python" "$target"
# A folder of its own for what programs compile; one that was killed while it did leaves torch's lock, for which others
# would wait for ever.
export TORCH_EXTENSIONS_DIR=$target/torch-ecosystem/extensions-${version:-given}
mkdir -p "$TORCH_EXTENSIONS_DIR"
find "$TORCH_EXTENSIONS_DIR" -name lock -delete
PATH=$environment/bin:$PATH exec "$python" tests/torch_ecosystem/run.py "${arguments[@]}"
