#!/usr/bin/env bash
# RDMA where there is no RDMA hardware: builds the feature `rdma`, and tries it in virtual machines (vm.sh).
#
#   tests/rdma.sh [PART ...]
#
# Parts: packages (needed to build); build; short (what the gate runs: the rest of this list in part); stream (the stream's own tests, and proxy threads between GPUs, with threads as kernels);
# endpoints (without a communicator); conformance (RDMA alone, RDMA between ranks that share memory inside, and two
# paths: a device and TCP, two devices); hosts (two machines of two ranks and two devices: the library; a device is cut
# off, and mended; all devices are); paths (two machines of one rank, over a device and TCP, and over two devices: what
# splits; one is cut off, mended, both are cut off); gigabyte (as much between two ranks, which takes a minute and a
# half); faults (ranks that are killed, stopped and replaced, a device that comes and goes, which takes some minutes).
# All but the first and the last by default. Ends with 77 and the reason where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
programs=$target/rdma-tests
parts=" ${*:-build stream endpoints conformance hosts paths gigabyte} "

wanted() { [[ $parts == *" $1 "* ]]; }

packages() {
    local package missing=()
    for package in libibverbs-dev libclang-dev cmake pkg-config; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
        echo "RDMA cannot be built: missing are ${missing[*]}" >&2
        exit 77
    fi
}

# With all packages at once features are those of the tests without RDMA, and little is built anew. The program comes
# with the tests of the command line.
build() {
    local said
    said=$(cargo test --workspace --locked --features "${ROUNDELAY_FEATURES:-roundelay-cli/rdma}" --no-run --color never 2>&1) ||
        { echo "$said" >&2 && exit 1; }
    mkdir -p "$programs"
    cp "$(sed -n 's|.*Executable unittests src/lib.rs (\(.*/roundelay_net-[0-9a-f]*\))|\1|p' <<<"$said")" "$programs/stream"
    cp "$(sed -n 's|.*Executable unittests src/lib.rs (\(.*/roundelay_cuda-[0-9a-f]*\))|\1|p' <<<"$said")" "$programs/lanes"
    cp "$(sed -n 's|.*Executable tests/main.rs (\(.*/runtime_tests-[0-9a-f]*\))|\1|p' <<<"$said")" "$programs/tests"
    cp "$target/debug/roundelay" "$programs/roundelay"
}

if wanted packages || wanted build; then
    packages
fi
if wanted build; then
    build
fi
# together OPTIONS ... -- JOB ...: jobs one after the other in the same machines, whose networks are whole before each.
# Machines begin a job together: one may have taken a minute longer for the last, and ranks wait only so long for ranks.
together() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    [ $# -gt 0 ] || return 0
    # shellcheck disable=SC2016
    tests/vm.sh "${options[@]}" bash -c '
        for job in "$@"; do
            for card in $VM_CARDS; do ip link set "$card" up; done
            bash -c "$job" || exit
            number=$((${number:-0} + 1))
            touch "/run/job/job.$number.$VM"
            until [ "$(ls /run/job/job.$number.* | wc -l)" = "$VMS" ]; do
                ! grep -qsv "^0$" /run/job/ended.* || exit 1
                sleep 0.1
            done
        done' together "$@"
}

one=() two=() faults=()
if wanted short; then
    one+=("$programs/stream transport::rdma tests::mixed --test-threads=1")
    one+=("$programs/tests conformance::rdma:: --test-threads=1 --skip a_gigabyte --skip the_whole_library")
fi
if wanted stream; then
    one+=("$programs/stream transport::rdma tests::mixed --test-threads=1")
    # Proxy threads between GPUs, with threads as kernels.
    far=proxy::direct_slots_tests
    one+=("$programs/lanes $far::slots $far::contents proxy::tests::captured --test-threads=1")
fi
if wanted endpoints; then
    one+=("TEST_WAY=rdma $programs/tests transport:: transport_words:: --test-threads=1")
fi
if wanted conformance; then
    # What takes longest, once: the library over both links is for the two machines.
    over_devices="conformance::rdma:: conformance::rdma_and_tcp:: conformance::two_devices::"
    skip="--skip a_gigabyte"
    for over in mixed_rdma rdma_and_tcp two_devices; do
        skip+=" --skip $over::the_whole_library"
    done
    one+=("$programs/tests $over_devices --test-threads=1 $skip")
fi
if wanted gigabyte; then
    one+=("$programs/tests conformance::rdma::a_gigabyte --test-threads=1")
fi
if wanted faults; then
    faults+=("tests/rdma_faults.sh $programs/roundelay $programs/tests")
fi
if wanted hosts; then
    two+=("tests/rdma_hosts.sh $programs/roundelay")
fi
if wanted paths; then
    two+=("tests/rdma_paths.sh $programs/roundelay $programs/tests")
fi
# More processors would only take time from each other.
together -d 2 -p 4 -m 3072 -t 900 -- "${one[@]}"
together -n 2 -d 3 -p 6 -m 1024 -t 560 -- "${two[@]}"
# Four ranks poll there, and come anew.
together -d 2 -p 6 -m 3072 -t 1800 -- "${faults[@]}"
