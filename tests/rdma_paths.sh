#!/usr/bin/env bash
# What two hosts of one rank must do whose paths are RDMA devices and TCP; runs in each of two machines of vm.sh that
# have three networks. Over the third goes what ranks say outside calls, and what the ends of devices say before they
# are connected.
#
#   tests/rdma_paths.sh PROGRAM RANK
#
# RANK is the test program of the runtime, whose `paths::rank_process` runs all_reduce.multipath, compares every result, and says how each call was
# divided (runtime/tests/paths/rank.rs).
set -u
program=$1 rank_program=$2
cards=($VM_CARDS)
export MASTER_ADDR=10.20.2.1 WORLD_SIZE=2 RANK=$VM LOCAL_RANK=0 ROUNDELAY_HOST=vm$VM
rdma link delete rxe2 2>/dev/null
port=29600

# As slow as emulated machines are: so calls are divided, and ranks agree before each how.
file=/run/topology.toml
{
    printf 'version = 1\n[classes.emulated]\nlatency_us = 100\ngbs = 0.004\n'
    way() {
        printf '[[paths]]\nname = "%s"\ntransport = "%s"\nclass = "emulated"\n' "$1" "$2"
        printf 'devices = { vm0 = "%s", vm1 = "%s" }\n' "$3" "$3"
    }
    way device rdma rxe0
    way other rdma rxe1
    way card tcp "${cards[1]}"
} >$file

# start HINTS COMMAND ...: this machine's rank, as a launcher would start it.
start() {
    port=$((port + 1))
    ROUNDELAY_HINTS=topology=$file,$1 MASTER_PORT=$port timeout 150 "${@:2}" >/run/said 2>&1 &
    own=$!
}

# run HINTS CALLS: a rank that makes CALLS calls of 128 KiB.
run() {
    export TEST_PATHS_ORDER="multipath 2 32768 $2"
    start "$1" "$rank_program" --exact paths::rank_process --nocapture --test-threads=1
}

# Waits for it; leaves its status in `status`.
ended() {
    status=0
    wait "$own" || status=$?
}

# fail WORD ...: says why, and what the rank said last.
fail() {
    echo "FAILED after $SECONDS s: $*"
    tail -n 30 /run/said
    exit 1
}

passed() { echo "passed, after $SECONDS s: $*"; }

# Waits until the rank says this of its latest call.
call() {
    until tail -n 1 /run/said | grep -qE "^call $1"; do
        kill -0 "$own" 2>/dev/null || fail "ended before it said: $1"
        sleep 0.05
    done
}

start paths=device+card "$program" bench all_reduce.multipath all_gather.multipath broadcast.multipath \
    all_to_all.multipath --bytes 100003 --iters 1 --warmup 0
ended
[ "$status" = 0 ] || fail "the algorithms that split ended with $status"
rows=$(awk '$(NF - 1) == "tcp+rdma" && $(NF - 2) == 0' /run/said | wc -l)
[ "$VM" != 0 ] || [ "$rows" = 4 ] || fail "$rows rows are right, and not 4"
passed "the algorithms that split, over a device and TCP"

# One machine cuts: the other must find out.
run paths=device+card,timeout=16s 100000
if [ "$VM" = 0 ]; then
    both='device [1-9].*, card [1-9]'
    call "[0-9]{1,}.* $both"
    ip link set "${cards[0]}" down
    call '.* device 0.0 % \(lost\), card 100.0'
    passed "the device was cut off in the middle of calls, which go on over TCP"
    ip link set "${cards[0]}" up
    call ".* $both"
    passed "it works again, and has a share again"
    ip link set "${cards[1]}" down
    call '.* device 100.0 .*, card 0.0 % \(lost\)'
    passed "TCP was cut off in the middle of calls, which go on over the device"
    ip link set "${cards[0]}" down
fi
ended
[ "$status" = 3 ] || fail "without any path the rank ended with $status"
cp /run/said "/run/job/paths.$VM"
until [ -s /run/job/paths.0 ] && [ -s /run/job/paths.1 ]; do sleep 0.1; done
grep -qhE 'no path to it is left \(device: .+; card: .+\)' /run/job/paths.? || fail "no rank names both paths"
passed "without any path the ranks say what was found on each"

[ "$VM" != 0 ] || { ip link set "${cards[0]}" up && ip link set "${cards[1]}" up; }
# However slow machines are: calls go on until it was seen, and then a rank is killed.
run paths=device+other,timeout=60s 100000
if [ "$VM" = 0 ]; then
    call '[0-9]{1,}.* device [1-9].*, other [1-9]'
    ip link set "${cards[1]}" down
    call '.* device 100.0 .*, other 0.0 % \(lost\)'
    passed "one of two devices was cut off in the middle of calls, which go on over the other"
    kill "$own"
    ended
else
    ended
    [ "$status" = 3 ] || fail "whose peer was killed ended with $status"
    grep -q 'other 0.0 % (lost)' /run/said && grep -q 'rank 0 is gone' /run/said || fail "it does not say what happened"
    passed "a peer was killed, and its rank is named"
fi
