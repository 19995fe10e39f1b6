#!/usr/bin/env bash
# libroundelay_nccl.so under programs that were written against NCCL, on a machine with two GPUs or more.
#
#   tests/nccl.sh LIBRARY TESTS FOLDER [PART ...]
#
# LIBRARY is libroundelay_nccl.so; TESTS the folder with nccl-tests' programs (all_reduce_perf and so on), which were
# linked against libnccl.so.2; results go to FOLDER: summary.txt (a line a step), log.txt, times.txt (a line a size,
# medians of both libraries by turns), turns.txt (each time), rows.txt (all that nccl-tests printed), empty.txt, losses.jsonl.
#
# Parts: ranks empty messages check options torch killed times graphs types processes hosts; all by default but messages,
# which times sends and receives beside NCCL (messages.txt), types, which checks every type and operator, and two that need
# `mpirun` and TESTS built with MPI=1: processes, a GPU each, and hosts, these on two hosts by label, joined by TCP over
# loopback. Nothing is built but a small program in C. NCCL is that of
# PyTorch's wheel, or NCCL_LIB. These may be set: RANKS (all GPUs), MINUTES (9), MOST (1G, the most bytes that are
# checked), MODELS (of the part torch: all), TURNS (3, of times), SWEEPS (least and most bytes and calls of times),
# NAMES (functions of times), WAYS (of times: threads, processes, one thread for all, hosts), FACTOR (8, from size to
# size). Ends with 3 if a step failed.
set -u
library=$(realpath "${1:?the library}") tests=$(realpath "${2:?the folder of nccl-tests}") folder=${3:?the folder}
shift 3
parts=${*:-ranks empty check options torch killed times graphs}
here=$(dirname "$(realpath "$0")")
ranks=${RANKS:-$(nvidia-smi -L | wc -l)}
end=$(($(date +%s) + ${MINUTES:-9} * 60))
mkdir -p "$folder"
folder=$(realpath "$folder")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
log=$folder/log.txt rows=$folder/rows.txt
# Multicast stays off, for both libraries.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_DEBUG=${NCCL_DEBUG:-WARN} PYTHONUNBUFFERED=1
own=$work/own
mkdir -p "$own"
ln -sf "$library" "$own/libnccl.so.2"
wheel='import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib"))'
theirs=${NCCL_LIB:-$(python3 -c "$wheel" 2>>"$log")}
failed=0

# step NAME SECONDS OUTPUT COMMAND...: what the command prints is added to OUTPUT, and stands in $said.
step() {
    local name=$1 limit=$2 output=$3 began left rc
    shift 3
    began=$(date +%s) left=$((end - began))
    if [ "$left" -lt 8 ]; then
        printf '%-44s %4s s  no time left\n' "$name" - | tee -a "$folder/summary.txt"
        failed=1
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    timeout -k 5 "$limit" "$@" >said.txt 2>>"$log"
    rc=$?
    { printf '== %s\n' "$name" && cat said.txt; } >>"$output"
    local note
    note=$(sed -n -e 's/^# Out of bounds values *: */wrong: /p' -e 's/^# Avg bus bandwidth *: */busbw /p' \
        -e 's/^NOTE //p' said.txt | tr '\n' ' ')
    local why
    why=$(tail -n 200 "$log" | cat - said.txt | grep -iE 'WARN|error|failure|wrong' | tail -1 | cut -c1-220)
    case $rc in
    0) note="passed  $note" ;;
    124 | 137) note="ended after $limit s  $note" failed=1 ;;
    *) note="FAILED ($rc)  $note$why" failed=1 ;;
    esac
    printf '%-44s %4s s  %s\n' "$name" $(($(date +%s) - began)) "$note" | tee -a "$folder/summary.txt"
    return $rc
}

wanted() { [[ " $parts " == *" $1 "* ]]; }
with() { # with LIBRARY-FOLDER COMMAND...
    local path=$1
    shift
    # The CUDA runtime may lie beside the programs.
    env LD_LIBRARY_PATH="$path:$tests${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}
# perf LIBRARY-FOLDER PROGRAM WAY ARGUMENT...: a program of nccl-tests; its ranks are those that WAY says, such as
# `-t 2 -g 1`, or `processes`.
perf() {
    local path=$1 program=$tests/$2_perf way=$3
    shift 3
    if [ "$way" = processes ]; then
        with "$path" mpirun --allow-run-as-root --bind-to none -n "$ranks" "$program" -t 1 -g 1 "$@"
    elif [ "$way" = hosts ]; then
        local host on=() half=$((ranks / 2))
        for host in 0 1; do
            on+=(-n "$half" -x "ROUNDELAY_HOST=host $host" -x "NCCL_HOSTID=host$host" "$program" -t 1 -g 1 "$@" :)
        done
        NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo \
            with "$path" mpirun --allow-run-as-root --bind-to none "${on[@]:0:${#on[@]}-1}"
    else
        # shellcheck disable=SC2086
        with "$path" "$program" $way "$@"
    fi
}
export -f with perf
export tests ranks

names=${NAMES:-all_reduce all_gather reduce_scatter alltoall broadcast sendrecv}
reducing="all_reduce reduce reduce_scatter"
copying="all_gather alltoall broadcast sendrecv gather scatter hypercube"

if wanted ranks; then
    cc -std=gnu11 -O1 -pthread -o ranks "$here/../nccl/tests/c/ranks.c" "$library" 2>>"$log"
    for way in threads group processes; do
        # On memory of the host: whether the library works here at all.
        step "interface on hosts, $way" 60 "$log" env ROUNDELAY_NCCL_HOST=1 \
            LD_LIBRARY_PATH="$(dirname "$library")" ./ranks $way 2
    done
fi
if wanted empty; then
    step "calls without elements, in groups" 120 "$rows" python3 "$here/nccl/empty.py" "$library" "$ranks"
    cat said.txt >>"$folder/empty.txt"
fi
if wanted messages; then
    step "messages beside NCCL" 400 "$folder/messages.txt" python3 "$here/nccl/messages.py" "$library" \
        "$theirs/libnccl.so.2" --ranks "$ranks" --turns "${TURNS:-3}"
fi
# check WAY...: all programs with ranks of these kinds.
check() {
    local name what way
    for name in $reducing $copying; do
        what="-d float -o sum"
        [[ " $copying " == *" $name "* ]] && what="-d float"
        for way; do
            step "$name $way $what" 60 "$rows" bash -c "perf $own $name '$way' $what -b 8 -e ${MOST:-1G} -f 4 -n 2 -w 1 -c 1"
        done
    done
}
if wanted check; then
    check "-t $ranks -g 1" "-t 1 -g $ranks"
fi
if wanted processes; then
    check processes
fi
if wanted hosts; then
    check hosts
    for name in $reducing $copying; do
        step "$name hosts, captured" 40 "$rows" bash -c \
            "perf $own $name hosts -d float -b 8 -e 16M -f 8 -n 4 -w 1 -c 1 -G 3"
    done
fi
if wanted options; then
    # One rank; joining from each thread; the null stream; groups of four calls; waits after each; registered memory,
    # also as windows; odd addresses; captured calls, checked; messages whose rank has several of them.
    for what in "-t 1 -g 1" "-t $ranks -g 1 -p 1" "-t $ranks -g 1 -y 1" "-t $ranks -g 1 -m 4" "-t 1 -g $ranks -m 4" \
        "-t $ranks -g 1 -z 1" "-t $ranks -g 1 -R 1" "-t 1 -g $ranks -R 2" "-t $ranks -g 1 -u 4" \
        "-t $ranks -g 1 -G 3" "-t 1 -g $ranks -G 3"; do
        step "all_reduce $what" 40 "$rows" bash -c \
            "perf $own all_reduce '$what' -b 8 -e 64M -f 8 -n 5 -w 1 -c 1"
    done
    for what in "-t $ranks -g 1 -m 100" "-t 1 -g $ranks -G 3" "-t $ranks -g 1 -z 1"; do
        step "sendrecv $what" 40 "$rows" bash -c \
            "perf $own sendrecv '$what' -b 8 -e 16M -f 8 -n 3 -w 1 -c 1"
    done
fi
if wanted types; then
    for name in $reducing; do
        for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16; do
            step "$name $type, all operators" 60 "$rows" bash -c \
                "perf $own ${name} '-t $ranks -g 1' -d $type -o all -b 8 -e 64M -f 8 -n 1 -w 0 -c 1"
        done
    done
    for name in $copying; do
        step "$name, all types" 60 "$rows" bash -c \
            "perf $own ${name} '-t $ranks -g 1' -d all -b 8 -e 64M -f 8 -n 1 -w 0 -c 1"
    done
fi

# times NAME WAY GRAPHS: both libraries by turns; the median of each counts. Short calls are made more often, since one
# that the system delays would decide.
times() {
    local name=$1 way=$2 graphs=$3 turn lib sizes
    for ((turn = 1; turn <= ${TURNS:-3}; ++turn)); do
        for lib in own theirs; do
            for sizes in ${SWEEPS:-1K-64K-200 512K-256M-20}; do
                local from to calls
                IFS=- read -r from to calls <<<"$sizes"
                step "time of $name $way, $from to $to, graphs $graphs, $lib, turn $turn" 40 "$rows" bash -c \
                    "perf ${!lib} $name '$way' -d float -o sum -b $from -e $to -f ${FACTOR:-8} -n $calls -w 5 -c 0 -G $graphs" ||
                    continue
                awk -v key="$name $way graphs=$graphs" -v lib="$lib" \
                    '/^ +[0-9]+ +[0-9]+ / { print key, lib, $1, $6, $10 }' said.txt >>raw_times.txt
            done
        done
    done
}
if wanted times; then
    ways=${WAYS:-threads one$(for way in processes hosts; do ! wanted $way || echo " $way"; done)}
    for way in $ways; do
        for name in $names; do
            case $way in
            threads) times $name "-t $ranks -g 1" 0 ;;
            one) [ $name != all_reduce ] || times $name "-t 1 -g $ranks" 0 ;;
            *) times $name $way 0 ;;
            esac
        done
    done
fi
if wanted graphs; then
    for name in $names; do
        times $name "-t $ranks -g 1" 20
        ! wanted hosts || times $name hosts 20
    done
fi
if [ -s raw_times.txt ]; then
    cp raw_times.txt "$folder/turns.txt"
    python3 - >"$folder/times.txt" <<'PY'
import collections, statistics
turns = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open("raw_times.txt"):
    *key, lib, size, out, inside = line.split()
    for place, time in (("out", out), ("in", inside)):
        try:
            turns[" ".join(key), int(size), place][lib].append(float(time))
        except ValueError:
            continue
print(f"{'what':42} {'bytes':>11} {'place':>5} {'NCCL us':>9} {'ours us':>9} {'ratio':>6}")
for (key, size, place), row in sorted(turns.items()):
    if "own" in row and "theirs" in row:
        theirs, own = (statistics.median(row[lib]) for lib in ("theirs", "own"))
        print(f"{key:42} {size:>11} {place:>5} {theirs:>9.2f} {own:>9.2f} {theirs / own:>6.2f}")
PY
    cat "$folder/times.txt"
fi
if wanted torch; then
    train="$here/nccl/train.py"
    for part in ${MODELS:-ddp fsdp graph compile}; do
        for lib in theirs own; do
            preload=$([ $lib = own ] && echo "$library")
            step "PyTorch $part, $lib" 100 "$log" env LD_PRELOAD="$preload" \
                python3 -m torch.distributed.run --nproc-per-node "$ranks" --master-port $((20000 + RANDOM % 20000)) \
                "$train" $part "losses_${part}_$lib.json"
        done
        cat losses_${part}_*.json >>"$folder/losses.jsonl" 2>>"$log"
        step "PyTorch $part, both curves" 20 "$log" \
            python3 "$train" compare "losses_${part}_theirs.json" "losses_${part}_own.json"
    done
fi
if wanted torch && [[ ${MODELS:-ddp} == *ddp* ]]; then
    step "PyTorch ddp, own, init without waiting" 100 "$log" env LD_PRELOAD="$library" TORCH_NCCL_USE_COMM_NONBLOCKING=1 \
        python3 -m torch.distributed.run --nproc-per-node "$ranks" --master-port $((20000 + RANDOM % 20000)) \
        "$here/nccl/train.py" ddp losses_nonblocking.json
fi
if wanted killed; then
    # A rank is killed in the middle: the other one must get an error, long before PyTorch's ten minutes.
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) WORLD_SIZE=2
    RANK=1 LOCAL_RANK=1 LD_PRELOAD="$library" python3 "$here/nccl/train.py" killed - >>"$log" 2>&1 &
    # PyTorch's watchdog may end that process by SIGABRT before it has said so itself.
    step "PyTorch, a rank is killed" 60 "$log" bash -c \
        "RANK=0 LOCAL_RANK=0 LD_PRELOAD='$library' python3 '$here/nccl/train.py' killed - 2>killed.txt
         cat killed.txt >&2; grep -m 1 -o 'rank 1 is gone.*' killed.txt | sed 's/^/NOTE /'; grep -q 'rank 1 is gone' killed.txt"
fi
[ $failed = 0 ] || exit 3
