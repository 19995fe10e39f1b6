#!/usr/bin/env bash
# The backend of torch.distributed on a machine with several GPUs and PyTorch, beside NCCL, with a wheel that was built
# elsewhere.
#
#   tests/torch_gpu.sh WHEELS FOLDER [OPTION ...]
#
# WHEELS is a folder with the wheel of roundelay, and that of ninja where the machine has none (the face in C++ is
# compiled at its first use); they are unpacked, and nothing is installed. Results go to FOLDER: table.txt, rows.json,
# log/. Options are those of python/tests/torch_gpu/main.py, such as `--ranks 4`, `--minutes 5`, `--parts right`, or
# `--device cpu`, which tries everything that needs no GPU beside Gloo. $PYTHON names the interpreter that has PyTorch.
# Multicast of NVLink stays off. Ends within eight minutes, and with 3 if a result differs, or a part failed or had no
# time left, which counts as neither.
set -euo pipefail
wheels=$(realpath "${1:?the folder of wheels}") folder=${2:?the folder for results}
shift 2
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
mkdir -p "$folder"
folder=$(realpath "$folder")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for wheel in "$wheels"/*.whl; do
    "$python" -m zipfile -e "$wheel" "$place"
done
# Unpacked, programs have lost the right to be run.
mkdir -p "$place/programs"
find "$place" \( -path '*.data/scripts/*' -o -path '*/bin/ninja' \) -type f -exec chmod +x {} + \
    -exec ln -sf -t "$place/programs" {} +
export PYTHONPATH=$place${PYTHONPATH:+:$PYTHONPATH} PATH=$PATH:$place/programs
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export TORCH_EXTENSIONS_DIR=${TORCH_EXTENSIONS_DIR:-$place/extensions}
nvidia-smi -L 2>/dev/null || echo "no GPU is seen"
"$python" python/tests/torch_gpu/main.py "$folder" "$@"
