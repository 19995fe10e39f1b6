#!/usr/bin/env bash
# torchcomms' own integration tests on CPU, with its Gloo backend and with ours by turns.
#
#   tests/torchcomms.sh CHECKOUT BUILD [--backends gloo,roundelay] [--python] [--ranks N] [--only TEXT ...] [--json FILE]
#   tests/torchcomms.sh CHECKOUT --own [--ranks N] [--only TEXT ...] [--json FILE]
#
# With --own they run on `roundelay.torchcomms` in the place of torchcomms, of which nothing has to be built.
# CHECKOUT is a checkout of meta-pytorch/torchcomms, BUILD the folder in which the package `torchcomms` of the same
# version lies that was built of it, with its Gloo backend and its entry points (what `pip install --target BUILD` makes),
# for the PyTorch of the environment which $ROUNDELAY_TEST_TORCHRUN names. The backend is compiled first; --python leaves
# that out, so that the one by torchcomms' interface for Python takes the calls. CXXFLAGS names headers of glog and fmt.
# The package is the tree's own where its native module lies in it, or the wheel that `tests/python.sh wheel` has built.
# Ends with 77 and the reason where what it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
checkout=${1:-} build=${2:-}
if [ ! -d "$checkout/comms/torchcomms/tests/integration/py" ]; then
    echo "no checkout of torchcomms at '$checkout': it must have comms/torchcomms/tests/integration/py" >&2
    exit 77
fi
if [ "$build" != --own ] && ! compgen -G "$build/torchcomms/_comms_gloo.*.so" >/dev/null; then
    echo "no build of torchcomms at '$build': it must have torchcomms/_comms_gloo.*.so" >&2
    exit 77
fi
checkout=$(realpath "$checkout")
shift 2
python_only= arguments=()
if [ "$build" = --own ]; then
    arguments+=(--own) python_only=1
else
    build=$(realpath "$build")
fi
while [ $# -gt 0 ]; do
    case $1 in
        --python) python_only=1; shift ;;
        --json) arguments+=(--json "$(realpath -m "$2")"); shift 2 ;;
        *) arguments+=("$1"); shift ;;
    esac
done

. tests/torch_environment.sh
environment=$target/torchcomms/env
python=$environment/bin/python
torch_environment "$environment"
if [ ! -f "$environment/ready" ]; then
    "$environment/bin/pip" install -q psutil parameterized expecttest pydot
    touch "$environment/ready"
fi
package "$python" "$target"
if [ "$build" != --own ]; then
    export PYTHONPATH=$build${PYTHONPATH:+:$PYTHONPATH}
fi
# A cache of its own: what a user has built stays what it is.
export XDG_CACHE_HOME=$target/torchcomms/cache
rm -rf "$XDG_CACHE_HOME/roundelay/torchcomms"
if [ -z "$python_only" ]; then
    TORCHCOMMS_INCLUDE=$checkout "$python" -m roundelay torchcomms build
fi
exec "$python" tests/torchcomms/run.py "$checkout" ${arguments[@]+"${arguments[@]}"}
