#!/usr/bin/env bash
# Schedules inside kernels of users, on a machine with two GPUs or more, by programs that were built elsewhere.
#
#   tests/gpu_functions.sh PROGRAMS [FOLDER]
#
# PROGRAMS is a folder with `12_fused_norm`, `13_matmul_scatter`, `14_experts` (examples) and `tests` (those of the
# runtime, from target/debug/deps/runtime_tests-*); what is not there is left out. Results go to FOLDER ($OUT, or here): what each
# program printed, and functions.txt, the table. NVRTC is found as ever, or by ROUNDELAY_NVRTC. A step that fails or takes
# too long is named, and the next one is run. Ends with 3 if a step failed.
set -u
programs=$(realpath "${1:?the folder with the programs}") folder=${2:-${OUT:-.}}
mkdir -p "$folder" && cd "$folder" || exit 2
failed=0

# step NAME SECONDS COMMAND...
step() {
    local name=$1 limit=$2 began rc said
    shift 2
    if [ ! -x "$1" ]; then
        printf '%-28s %5s    not there\n' "$name" - | tee -a functions.txt
        return
    fi
    began=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$name.txt" 2>&1
    rc=$?
    said=passed
    if [ $rc != 0 ]; then
        failed=1
        said="FAILED ($rc): $(grep -v '^ *$' "$name.txt" | tail -1 | cut -c1-220)"
    elif grep -q skipped "$name.txt"; then
        said=$(grep skipped "$name.txt" | head -1)
    fi
    printf '%-28s %5s s  %s\n' "$name" $(($(date +%s) - began)) "$said" | tee -a functions.txt
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tee -a functions.txt
for scene in functions_in_kernels_of_others functions_that_are_called_wrongly_say_so \
    a_function_whose_peer_does_not_come_names_it blocks_whose_counts_lie_on_the_device \
    counts_that_are_too_large_write_nothing graphs_replay_bit_for_bit messages_between_single_ranks \
    a_rank_that_makes_no_call_is_named; do
    step "$scene" 150 "$programs/tests" --exact --nocapture --test-threads 1 cuda::$scene
done
for example in 12_fused_norm 13_matmul_scatter 14_experts; do
    step "$example" 120 "$programs/$example"
    [ -s "$example.txt" ] && tee -a functions.txt <"$example.txt"
done
exit $((failed * 3))
