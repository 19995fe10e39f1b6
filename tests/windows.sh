#!/usr/bin/env bash
# Windows beside the one-sided operations of Open MPI and MPICH: puts and gets between two ranks, by turns, over shared
# memory and over TCP of the loopback interface.
#
#   tests/windows.sh [TURNS]
#
# Prints the medians over the turns (3 by default) in microseconds, with the ratio of each peer's to ours, and the
# geometric mean of the ratios: above 1 is ahead. Rows that were measured go to standard error. A peer that is not
# installed is left out. Ends with 77 and the reason where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
turns=${1:-3}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

peers=()
for peer in openmpi mpich; do
    if command -v mpicc.$peer >/dev/null && mpicc.$peer -O2 -Wall runtime/benches/windows_mpi.c -o "$folder/$peer"; then
        peers+=("$peer")
    fi
done
if [ ${#peers[@]} = 0 ]; then
    echo "windows cannot be compared: there is neither mpicc.openmpi nor mpicc.mpich" >&2
    exit 77
fi
if [ -z "${WINDOWS_BENCH:-}" ]; then
    cargo bench --quiet -p roundelay --bench windows --no-run
    own=$(find "$target/release/deps" -name "windows-*" -type f -executable -printf "%T@ %p\n" | sort -n | tail -n 1)
fi
own=${WINDOWS_BENCH:-${own#* }}

# run PEER WAY: the rows of one turn.
run() {
    local label=$1-$2
    case $label in
    roundelay-shm) LABEL=$label timeout 60 "$own" ;;
    roundelay-tcp) LABEL=$label TRANSPORT=tcp timeout 60 "$own" ;;
    openmpi-shm) timeout 60 mpirun.openmpi --bind-to none --mca pml ob1 -n 2 "$folder/openmpi" "$label" ;;
    openmpi-tcp)
        timeout 60 mpirun.openmpi --bind-to none --mca pml ob1 --mca osc pt2pt --mca btl tcp,self --mca btl_tcp_if_include lo \
            -n 2 "$folder/openmpi" "$label"
        ;;
    mpich-shm) timeout 60 mpiexec.mpich -n 2 "$folder/mpich" "$label" ;;
    mpich-tcp)
        MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi UCX_TLS=tcp,self UCX_NET_DEVICES=lo FI_PROVIDER=tcp \
            FI_TCP_IFACE=lo timeout 60 mpiexec.mpich -n 2 "$folder/mpich" "$label"
        ;;
    esac
}

for ((turn = 0; turn < turns; turn++)); do
    for way in shm tcp; do
        for peer in roundelay "${peers[@]}"; do
            run "$peer" "$way" >>"$folder/rows" || echo "$peer-$way failed in turn $turn" >&2
        done
    done
done
cat "$folder/rows" >&2
python3 - "$folder/rows" <<'PY'
import collections, math, statistics, sys

rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    label, operation, size, us = line.split()
    peer, way = label.rsplit("-", 1)
    rows[way, operation, int(size), peer].append(float(us))
peers = sorted({key[3] for key in rows} - {"roundelay"})
for way in ("shm", "tcp"):
    print(f"\n| {way} | bytes | roundelay |", " | ".join(f"{peer} | ratio" for peer in peers), "|")
    print("|---|---|---|" + "---|---|" * len(peers))
    ratios = collections.defaultdict(list)
    for operation in ("put", "get"):
        for size in sorted({key[2] for key in rows}):
            own = rows.get((way, operation, size, "roundelay"))
            if not own:
                continue
            own = statistics.median(own)
            cells = []
            for peer in peers:
                its = rows.get((way, operation, size, peer))
                if not its:
                    cells.append("- | -")
                    continue
                its = statistics.median(its)
                ratios[peer].append(its / own)
                cells.append(f"{its:.2f} | {its / own:.2f}")
            print(f"| {operation} | {size} | {own:.2f} |", " | ".join(cells), "|")
    for peer, all_ in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, all_)))
        print(f"\nOver {way}, {peer} takes {mean:.2f} times as long in the geometric mean.")
PY
