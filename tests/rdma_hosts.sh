#!/usr/bin/env bash
# What two hosts of two ranks, joined by two devices, must do; runs in each of two machines of vm.sh that have three
# networks. Over the third goes what ranks say outside calls, so that it stays when devices are cut off.
#
#   tests/rdma_hosts.sh PROGRAM
set -u
program=$1
cards=($VM_CARDS)
export MASTER_ADDR=10.20.2.1 WORLD_SIZE=4
rdma link delete rxe2 2>/dev/null
port=29500
ranks=()

# start HINTS ARGUMENT ...: both ranks of this machine, as a launcher would start them.
start() {
    local hints=$1 own
    shift
    port=$((port + 1)) ranks=()
    for own in 0 1; do
        RANK=$((2 * VM + own)) LOCAL_RANK=$own MASTER_PORT=$port ROUNDELAY_HINTS=$hints \
            timeout 200 "$program" "$@" >"/run/said.$own" 2>&1 &
        ranks+=($!)
    done
}

# Waits for both; leaves their statuses in `status`.
ended() {
    local rank
    status=
    for rank in "${ranks[@]}"; do
        wait "$rank"
        status+="$? "
    done
}

# fail WORD ...: says why, and all that the ranks said.
fail() {
    echo "FAILED: $*"
    tail -n 25 /run/said.*
    exit 1
}

# Right rows that say that they went this way.
rows() { awk -v way="$1" '$(NF - 1) == way && $(NF - 2) == 0' /run/said.0 | wc -l; }

library=() grids=()
for file in algorithms/*/*.algo; do
    name=$(basename "$(dirname "$file")").$(basename "$file" .algo)
    case $name in
    sendrecv.*) ;; # Of two ranks.
    *) if grep -q 'on (node' "$file"; then grids+=("$name"); else library+=("$name"); fi ;;
    esac
done

for grid in no yes; do
    if [ $grid = yes ]; then
        start transport=shm,rdma bench "${grids[@]}" -n 2x2 --bytes 1001,100003 --iters 1 --warmup 0
    else
        start transport=shm,rdma bench "${library[@]}" --bytes 1001,100003 --iters 1 --warmup 0
    fi
    ended
    [ "$status" = "0 0 " ] || fail "the library (grid: $grid) ended with $status"
    [ "$VM" != 0 ] || [ "$(rows shm+rdma)" -ge 4 ] || fail "only $(rows shm+rdma) rows"
    echo "passed, after $SECONDS s: the library, shared memory inside, RDMA between (grid: $grid)"
done

# link CARD CARD: the first device on this card, the second on that.
link() {
    rdma link delete rxe0 && rdma link delete rxe1 &&
        rdma link add rxe0 type rxe netdev "$1" && rdma link add rxe1 type rxe netdev "$2" || fail "no devices"
}

# From now on the first device of one machine is of the network of the second device of the other.
[ "$VM" = 0 ] || link "${cards[1]}" "${cards[0]}"

# cut CARD ...: once the ranks are in the middle of calls, on one of the machines.
cut() {
    [ "$VM" = 0 ] || return 0
    until [ "$(rows shm+rdma)" -ge 2 ]; do
        kill -0 "${ranks[0]}" 2>/dev/null || fail "ended before a row came"
        sleep 0.1
    done
    local card
    for card in "$@"; do ip link set "$card" down; done
    kill -0 "${ranks[0]}" 2>/dev/null || fail "ended before anything was cut off"
}

start transport=shm,rdma run all_reduce.ring --bytes 1K,2K,64K,256K --iters 4 --warmup 0
cut "${cards[1]}"
ended
[ "$status" = "0 0 " ] || fail "with one device cut off the ranks ended with $status"
[ "$VM" != 0 ] || [ "$(rows shm+rdma)" = 4 ] || fail "not all rows"
echo "passed, after $SECONDS s: devices in another order; one is cut off, the other carries on"

[ "$VM" != 0 ] || ip link set "${cards[1]}" up

# Queue pairs of the device that is cut off which are connected, and packets that it has sent.
pairs() { rdma resource show qp link rxe1/1 | grep -c 'state RTS'; }
packets() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts; }

# wait_for WHAT TEST: while the ranks go on.
wait_for() {
    until eval "$2"; do
        kill -0 "${ranks[0]}" 2>/dev/null || fail "ended before $1"
        sleep 0.1
    done
}

start transport=shm,rdma run all_reduce.ring --bytes 16K --iters 1000000 --warmup 0
if [ "$VM" = 0 ]; then
    before=$(packets)
    wait_for "it carried" '[ "$(packets)" -gt $((before + 500)) ]'
    whole=$(pairs)
    ip link set "${cards[1]}" down
    wait_for "queue pairs failed" '[ "$(pairs)" -lt "$whole" ]'
    ip link set "${cards[1]}" up
    wait_for "they were made anew" '[ "$(pairs)" -ge "$whole" ]'
    before=$(packets)
    wait_for "it carried again" '[ "$(packets)" -gt $((before + 500)) ]'
    echo "passed, after $SECONDS s: a device was cut off and mended, and carries again"
    kill "${ranks[@]}"
    ended
else
    ended
    [ "$status" = "3 3 " ] || fail "whose peers were ended ended with $status"
fi

start transport=shm,rdma run all_reduce.ring --bytes 1K,2K,64K,256K --iters 4 --warmup 0 --timeout 60s
cut "${cards[0]}" "${cards[1]}"
ended
[ "$status" = "3 3 " ] || fail "with all devices cut off the ranks ended with $status"
grep -qE 'rank [0-3] is gone: all [34] queue pairs to it failed, the last one on device rxe[01]: ' /run/said.* ||
    fail "no rank names rank and device"
echo "passed, after $SECONDS s: all devices are cut off, and the ranks say so"

[ "$VM" = 0 ] || link "${cards[0]}" "${cards[1]}"
