#!/bin/bash
# Runs inside an empty system: installs the archive, the wheel and the packages of /dist, and runs each.
set -euo pipefail
suite=$1 version=$2 arch=$3 patience=$4
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
cd /root
if command -v cc gcc clang rustc >/dev/null; then
    echo "$suite: there is a compiler: this tries nothing" >&2
    exit 1
fi

# timed LIMIT WHAT COMMAND …: runs it, prints the seconds, and fails beyond the limit.
timed() {
    local limit=$(($1 * patience)) what=$2 began now rc
    shift 2
    began=$(date +%s%N)
    # Not as a condition, in which a command that fails would end nothing.
    set +e
    (
        set -e
        "$@"
    ) >log 2>&1
    rc=$?
    set -e
    [ $rc = 0 ] || {
        cat log
        echo "$suite, $arch: failed: $what" >&2
        exit 1
    }
    now=$(date +%s%N)
    local ms=$(((now - began) / 1000000))
    printf '%-9s %-8s %-44s %3d.%03d s\n' "$suite" "$arch" "$what" $((ms / 1000)) $((ms % 1000))
    [ $ms -le $((limit * 1000)) ] || {
        echo "$suite, $arch: $what took more than $limit s" >&2
        exit 1
    }
}

from_archive() {
    tar -xzf "/dist/roundelay-$version-$arch-linux.tar.gz"
    "roundelay-$version-$arch-linux/bin/roundelay" run all_reduce -n 4
}
timed 5 "the archive, to a checked run of four ranks" from_archive

from_packages() {
    local debian=amd64
    [ "$arch" = x86_64 ] || debian=arm64
    dpkg -i /dist/roundelay_"${version}_$debian".deb /dist/libroundelay1_"${version}_$debian".deb \
        /dist/libroundelay-dev_"${version}_$debian".deb /dist/libroundelay-nccl_"${version}_$debian".deb
    /usr/bin/roundelay run all_reduce -n 4
    /usr/bin/roundelay check all_reduce.ring -n 4
    ldconfig -p | grep -q 'libroundelay.so.1'
    test -f "/usr/lib/$arch-linux-gnu/roundelay/libnccl.so.2" -a -f /usr/include/roundelay.h
    dpkg -r libroundelay-nccl libroundelay-dev libroundelay1 roundelay
    ! test -e /usr/bin/roundelay
}
timed 30 "Debian's packages, there and away" from_packages

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    printf '%-9s %-8s %-44s\n' "$suite" "$arch" "its Python is $(python3 -V 2>&1), and the wheel is for 3.10: not tried"
    exit 0
fi
python3 -m venv env
cat >sum.py <<'PY'
import array

import roundelay


def main(comm):
    data = array.array("f", [comm.rank] * 1000)
    comm.all_reduce(data)
    return data[0]


if __name__ == "__main__":
    found = roundelay.launch(main, 4)
    assert found == [6.0] * 4, found
PY
from_wheel() {
    env/bin/pip install --no-index --disable-pip-version-check /dist/roundelay-"$version"-*"$arch".whl
    env/bin/roundelay run all_reduce -n 4
}
timed 15 "the wheel, to a checked run of four ranks" from_wheel
timed 15 "four ranks from Python" env/bin/python sum.py
