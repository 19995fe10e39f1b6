#!/usr/bin/env bash
# Sourced by the scripts that run programs of others on PyTorch: environments with it, and the package in them.

# torch_environment FOLDER [VERSION]: makes an environment once, with what tests need and PyTorch: that of
# $ROUNDELAY_TEST_TORCHRUN, or the VERSION of the package index. Says why it cannot, and ends with 77.
torch_environment() {
    local environment=$1 version=${2:-} own given packages place
    [ ! -f "$environment/torch" ] || return 0
    rm -rf "$environment"
    python3 -m venv "$environment"
    own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ -z "$version" ]; then
        given=$(dirname "${ROUNDELAY_TEST_TORCHRUN:-/}")/python
        packages='from pathlib import Path; import torch; print(Path(torch.__file__).parents[1])'
        place=$("$given" -c "$packages" 2>/dev/null || true)
        if [ -z "$place" ]; then
            echo "no PyTorch: ROUNDELAY_TEST_TORCHRUN names no environment that has it; or give --torch VERSION" >&2
            exit 77
        fi
        echo "$place" >"$own/torch.pth"
    elif ! "$environment/bin/pip" install -q "torch==$version"; then
        echo "torch $version cannot be installed" >&2
        exit 77
    fi
    "$environment/bin/pip" install -q setuptools wheel ninja numpy pytest pytest-timeout
    touch "$environment/torch"
}

# package PYTHON TARGET: puts the package into the environment of PYTHON: the tree's own where its native module lies in
# it, else the wheel that `tests/python.sh wheel` has built under TARGET.
package() {
    local python=$1 target=$2 own meta
    own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -rf "$own"/roundelay "$own"/roundelay.pth "$own"/roundelay-*.dist-info
    if [ -f python/roundelay/_native.abi3.so ]; then
        echo "$PWD/python" >"$own/roundelay.pth"
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
        "$python" -m pip install -q --no-deps --no-index "$target"/python/*.whl
    else
        echo "no package: run tests/python.sh wheel" >&2
        exit 77
    fi
}
