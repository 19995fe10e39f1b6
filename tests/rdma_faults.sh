#!/usr/bin/env bash
# What ranks that RDMA joins must do under faults; runs in a machine of vm.sh that has two devices.
#
#   tests/rdma_faults.sh PROGRAM ELASTIC
#
# TESTS is the test program of the runtime, whose ranks are killed and replaced. Then jobs run under faults by
# `run --chaos`: over RDMA alone, over RDMA between ranks that share memory inside, and over two devices of which one
# comes and goes. The object of each is printed. TEST_FAULTS_FOR says for how long (15s by default, and for longer where
# too little happened), TEST_FAULTS_SEED from which seed on, TEST_FAULTS_ONLY=jobs leaves out what comes before them.
set -u
program=$1 tests=$2
times=${TEST_FAULTS_FOR:-15s 60s 240s} seed=${TEST_FAULTS_SEED:-1}
cards=($VM_CARDS)

fail() {
    echo "FAILED after $SECONDS s: $*"
    exit 1
}

passed() { echo "passed, after $SECONDS s: $*"; }

# number OBJECT FIELD
number() { sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" <<<"$1"; }

# holds OBJECT: nothing wrong, no wait without end, nothing left behind.
holds() {
    [ "$(number "$1" wrong)" = 0 ] && [ "$(number "$1" hangs)" = 0 ] &&
        grep -qF '"left":{"descriptors":0,"threads":0,"pinned_bytes":0}' <<<"$1"
}

# enough OBJECT: faults, and generations that went on after them.
enough() {
    [ $(($(number "$1" kill) + $(number "$1" stop))) -ge 2 ] && [ "$(number "$1" generations)" -ge 2 ] &&
        [ "$(number "$1" calls)" -gt 0 ]
}

# What devices hold for all processes.
held() { rdma resource show | sed 's/^[0-9]*: //'; }

# chaos ARGUMENT ...: a job under faults, which leaves its object in `object`.
chaos() {
    local before status time
    before=$(held)
    for time in $times; do
        status=0
        object=$("$program" run all_reduce.ring -n 4 --for "$time" --seed "$seed" --json --timeout 5s \
            --bytes 4,64K,1M --chaos "kill=0.25/s,stop=0.2/s,slow=0.1/s,late=0.1/s" "$@" 2>/run/chaos) || status=$?
        seed=$((seed + 1))
        echo "$* $object"
        [ $status = 0 ] || fail "$* ended with $status: $(tail -n 20 /run/chaos)"
        holds "$object" || fail "not as it must be: $object $(tail -n 20 /run/chaos)"
        [ "$(held)" = "$before" ] || fail "devices held $before, and then $(held)"
        ! enough "$object" || return 0
    done
    fail "too little happened: $object"
}

if [ "${TEST_FAULTS_ONLY:-}" != jobs ]; then
    TEST_WAY=rdma "$tests" elastic::kill:: --test-threads=1 || fail "ranks that are killed and replaced"
    passed "ranks that are killed and replaced, and what they hold"
fi

chaos --transport rdma
passed "faults over RDMA"
# What is not as it must be is seen.
for change in 's/"wrong":0/"wrong":1/' 's/"hangs":0/"hangs":1/' 's/"descriptors":0/"descriptors":1/' \
    's/"threads":0/"threads":2/' 's/"pinned_bytes":0/"pinned_bytes":4096/'; do
    ! holds "$(sed "$change" <<<"$object")" || fail "$change was not seen"
done
for change in 's/"kill":[0-9]*,"stop":[0-9]*/"kill":0,"stop":1/' 's/"generations":[0-9]*/"generations":1/'; do
    ! enough "$(sed "$change" <<<"$object")" || fail "$change was not seen"
done

chaos --hint transport=shm,rdma --hosts 2
passed "faults over RDMA and shared memory"

# One of the two devices comes and goes: the other carries on, and generations are made without it.
(
    RANDOM=$seed
    while true; do
        sleep "$((RANDOM % 8)).$((RANDOM % 10))"
        ip link set "${cards[1]}" down && echo down >>/run/cut
        sleep "$((RANDOM % 8)).$((RANDOM % 10))"
        ip link set "${cards[1]}" up
    done
) &
cutter=$!
chaos --transport rdma
kill "$cutter" && wait "$cutter" 2>/dev/null
ip link set "${cards[1]}" up
cuts=$(wc -l </run/cut)
[ "$cuts" -ge 1 ] || fail "the device was not cut off"
passed "faults over two devices, of which one was cut off $cuts times"

# Without any device nothing goes on, and that is seen too.
for card in "${cards[@]}"; do ip link set "$card" down; done
object=$("$program" run all_reduce.ring -n 3 --transport rdma --chaos stop=0.5/s --for 10s --timeout 3s --json \
    2>/run/chaos)
! enough "$object" || fail "a job went on without a device: $object"
for card in "${cards[@]}"; do ip link set "$card" up; done
passed "without any device nothing goes on"
