#!/usr/bin/env bash
# Everything that is to be tried on a machine with several GPUs, by a program that was built elsewhere.
#
#   tests/gpu.sh PROGRAM FOLDER [PART ...]
#
# PROGRAM is `roundelay`; results go to FOLDER: summary.txt (a line a step), results.jsonl (all rows), log.txt (what
# was said on standard error), table.md, bench.svg. Parts: info smoke latency bandwidth sweep tune stress; without
# sweep and tune by default. A step that fails or takes too long is named, and the next one is run.
# RANKS (all GPUs) and MINUTES (9) may be set. Ends with 3 if a step failed.
set -u
program=$(realpath "${1:?the program}") folder=${2:?the folder}
shift 2
parts=${*:-info smoke latency bandwidth stress}
ranks=${RANKS:-$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)}
[ "${ranks:-0}" -gt 0 ] || ranks=4
end=$(($(date +%s) + ${MINUTES:-9} * 60))
mkdir -p "$folder"
cd "$folder" || exit 2
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export ROUNDELAY_TUNED=${ROUNDELAY_TUNED-}
failed=0
# A broadcast after an all_to_all: what NCCL makes of it is its own (docs/results/2026-11-23-h200x2), and must not end ours.
five=all_reduce,all_gather,reduce_scatter,all_to_all,broadcast

# step NAME SECONDS ARGUMENT...: one run of the program.
step() {
    local name=$1 limit=$2 began rc left
    shift 2
    began=$(date +%s) left=$((end - began))
    if [ "$left" -lt 10 ]; then
        printf '%-24s %5s s  no time left\n' "$name" - | tee -a summary.txt
        failed=1
        return
    fi
    [ "$limit" -le "$left" ] || limit=$left
    printf '{"step":"%s","date":"%s"}\n' "$name" "$(date -u +%FT%TZ)" >>results.jsonl
    printf '\n== %s: %s\n' "$name" "$*" >>log.txt
    timeout -k 5 "$limit" "$program" "$@" --json >>results.jsonl 2>>log.txt
    rc=$?
    case $rc in
    0) rc=passed ;;
    124 | 137) rc="ended after $limit s" failed=1 ;;
    *) rc="FAILED ($rc): $(grep -v '^ *$' log.txt | tail -1 | cut -c1-200)" failed=1 ;;
    esac
    printf '%-24s %5s s  %s\n' "$name" $(($(date +%s) - began)) "$rc" | tee -a summary.txt
}

wanted() { [[ " $parts " == *" $1 "* ]]; }

wanted info && step info 60 info
if wanted smoke; then
    for way in packet staged put get; do
        step "smoke $way" 60 run all_reduce.two_shot -n "$ranks" --device cuda --way $way \
            --bytes 1K,64K,1M --iters 20 --timeout 20s
    done
    step "smoke engine" 60 run all_gather.direct -n "$ranks" --device cuda --way engine --bytes 1K,64K,64M --iters 20 \
        --timeout 20s
    step "smoke alone" 60 run all_reduce.ring -n 1 --device cuda --bytes 64K --iters 20
    step "smoke graph" 60 run all_reduce.one_shot -n "$ranks" --device cuda --bytes 1K --graph 20
fi
if wanted latency; then
    step "latency, in graphs" 150 bench $five -n "$ranks" --device cuda --out-of-place --root 0 \
        --bytes 1K,8K,64K,512K --graph 20 --vs nccl --budget 60ms
fi
if wanted bandwidth; then
    step "bandwidth, eager" 240 bench $five -n "$ranks" --device cuda --out-of-place --root 0 \
        --bytes 4M,32M,256M,1G --vs nccl --budget 150ms
fi
if wanted sweep; then
    for collective in ${five//,/ }; do
        step "sweep $collective" 120 bench $collective -n "$ranks" --device cuda --out-of-place --root 0 \
            -b 1K -e 1G -f 2 --vs nccl --budget 60ms --turns 1
    done
fi
wanted tune && step tune 300 tune $([ -n "$ROUNDELAY_TUNED" ] || echo -o tuned.toml) --device cuda \
    -n "$ranks" --total 280s

if wanted stress; then
    step "stress library" 170 stress -n "$ranks" library --budget 120s
    for part in types graph bits killed absent first; do
        step "stress $part" 100 stress -n "$ranks" $part --budget 40s
    done
    # 10,000 calls: 34 s between two ranks, 120 between four, 320 between eight (those on two GPUs).
    step "stress random" 420 stress -n "$ranks" random --budget 400s
fi

"$program" bench --rows results.jsonl --markdown --plot bench.svg >table.md 2>>log.txt || rm -f table.md
[ ! -s table.md ] || tail -n 40 table.md
[ $failed = 0 ] || exit 3
