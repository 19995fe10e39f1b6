#!/usr/bin/env bash
# What is to be tried of GPUs on two hosts, on one machine with two GPUs or more, by a program that was built elsewhere:
# processes that believe to be on two hosts, with a GPU each, joined by TCP over loopback between the hosts and by what
# there is between the GPUs of one.
#
#   tests/gpu_hosts.sh PROGRAM FOLDER [PART ...]
#
# PROGRAM is `roundelay`; results go to FOLDER: summary.txt (a line a step), results.jsonl (all rows), log.txt, table.md.
# Parts: smoke (all five collectives, right or not), failure (a rank is killed in a call: the other names it), bench
# (times beside NCCL by turns, which believes in the two hosts alike), two_level (those that know of hosts, where these
# have several GPUs). GPUS_EACH (half of all) is the number of GPUs of a host; SECONDS_EACH (100) limits a step. Ends
# with 3 if a step failed.
set -u
program=$(realpath "${1:?the program}") folder=${2:?the folder}
shift 2
parts=${*:-smoke failure two_level bench}
mkdir -p "$folder"
cd "$folder" || exit 2
each=${GPUS_EACH:-$(($(nvidia-smi -L | wc -l) / 2))}
[ "$each" != 1 ] || export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export ROUNDELAY_TUNED=${ROUNDELAY_TUNED-} MASTER_ADDR=127.0.0.1 WORLD_SIZE=$((2 * each))
limit=${SECONDS_EACH:-100} failed=0 port=$((29600 + $$ % 1000))
five=all_reduce,all_gather,reduce_scatter,all_to_all,broadcast
ranks=() status=()

# start ARGUMENT ...: all ranks, as a launcher on each host would start them; what rank 0 says goes to rows.
start() {
    local rank host out
    port=$((port + 1)) ranks=()
    for ((rank = 0; rank < WORLD_SIZE; rank++)); do
        host=$((rank / each)) out=/dev/null
        [ $rank != 0 ] || out=rows
        RANK=$rank LOCAL_RANK=$((rank % each)) MASTER_PORT=$port ROUNDELAY_HOST="host $host" NCCL_HOSTID="host$host" \
            CUDA_VISIBLE_DEVICES=$(seq -s, $((host * each)) $((host * each + each - 1))) \
            timeout -k 5 "$limit" "$program" "$@" >$out 2>"said.$rank" &
        ranks+=($!)
    done
}

# Waits for all; leaves their statuses in `status`.
ended() {
    local rank
    status=()
    for rank in "${ranks[@]}"; do
        wait "$rank"
        status+=($?)
    done
}

# report NAME OUTCOME: a line of the summary, and the output.
report() {
    printf '%-28s %s\n' "$1" "$2" | tee -a summary.txt
    { echo "== $1: $2"; tail -n 40 said.*; } >>log.txt
    [[ $2 == passed* ]] || { failed=1; tail -n 6 said.*; }
}

# step NAME ARGUMENT ...: a run of the program that must end well on all ranks.
step() {
    local name=$1 began=$SECONDS
    shift
    start "$@" --json
    ended
    cat rows >>results.jsonl
    if [[ ${status[*]} != *[!0\ ]* ]]; then
        report "$name" "passed, $((SECONDS - began)) s, $(grep -c time_us rows) rows"
    else
        report "$name" "FAILED (${status[*]}), $((SECONDS - began)) s"
    fi
}

# A call without end; rank 1 is killed in it.
failure() {
    start run all_reduce.ring --device cuda --bytes 64M --iters 1000000 --timeout 20s
    sleep "${BEFORE_KILL:-10}"
    kill -KILL $(cat "/proc/${ranks[1]}/task/${ranks[1]}/children")
    ended
    if [ "${status[0]}" != 0 ] && [ "${status[0]}" -lt 124 ] && grep -q 'rank 1' said.0; then
        report "a rank is killed" "passed: $(grep -m1 'rank 1' said.0 | cut -c1-160)"
    else
        report "a rank is killed" "FAILED (${status[*]})"
    fi
}

wanted() { [[ " $parts " == *" $1 "* ]]; }

if wanted smoke; then
    for protocol in staged put get; do
        step "smoke, $protocol" run all_reduce.ring --device cuda --protocol $protocol --bytes 1K,1000K,33M --iters 5 \
            --timeout 20s
    done
    step "five collectives" bench $five --device cuda --out-of-place --bytes 1K,64K,1M,16M,256M --iters 3 --warmup 1 \
        --timeout 20s
    step "types and placements" bench all_reduce,reduce_scatter --device cuda --in-place --dtype bf16 --op avg \
        --bytes 1002,100002 --iters 2 --warmup 0 --timeout 20s
fi
wanted failure && failure
if wanted two_level && [ "$each" != 1 ]; then
    step "two_level" bench all_reduce.two_level,all_reduce.multipath_two_level,all_to_all.two_level -n 2x$each \
        --device cuda --out-of-place --bytes 64K,4M,256M --budget "${BUDGET:-60ms}" --timeout 20s
fi
if wanted bench; then
    step "beside NCCL" bench $five --device cuda --out-of-place --root 0 --bytes 1K,16K,256K,4M,32M,256M --vs nccl \
        --budget "${BUDGET:-60ms}" --timeout 20s
    "$program" bench --rows results.jsonl --markdown >table.md 2>>log.txt || rm -f table.md
    [ ! -s table.md ] || cat table.md
fi
[ $failed = 0 ] || exit 3
