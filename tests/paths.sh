#!/bin/bash
# paths.sh - what two paths between two emulated hosts give: measures, and prints a table.
#
#   tests/paths.sh            all of it, in about two minutes; needs root, ip and tc
#   tests/paths.sh sizes      one part: floor, large, sizes, tenth, cut
#
# The hosts are network namespaces, the paths cables with token buckets (runtime/tests/paths). Times are those of
# rank 0, the median of the calls after the first ten; ranks meet before each call. The floor of an all_reduce over
# two ranks: each sends and receives as many bytes as the vector has.
set -euo pipefail
cd "$(dirname "$0")/.."
test=$(cargo test --release -p roundelay --test runtime_tests --no-run 2>&1 | sed -n 's/.*(\(.*\))$/\1/p' | tail -1)
what=${1:-all}

# run RATES CHANGE ALGORITHM PATHS ELEMENTS CALLS: a line a call
run() {
  TEST_PATHS_MEASURE="$1 $2 $3 $4 $5 $6 unchecked" "$test" --exact paths::measure --nocapture | grep -E '^[0-9]+ [0-9]+ '
}
median() { awk '$1 >= 10 { print $2 }' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
is() { [ "$what" = all ] || [ "$what" = "$1" ]; }

if is floor; then
  t=$(run 4000,1000 none multipath 2 4194304 40 | median)
  awk -v t="$t" 'BEGIN { f = 16777216 * 8 / 5e3; printf "all_reduce 16 MiB over 4 + 1 Gbit/s: %.1f ms, floor %.1f, ratio %.2f\n", t / 1e3, f / 1e3, t / f }'
fi
if is large; then
  t=$(run 1000,500 none multipath 2 16777216 20 | median)
  awk -v t="$t" 'BEGIN { f = 67108864 * 8 / 1.5e3; printf "all_reduce 64 MiB over 1 + 0.5 Gbit/s: %.1f ms, %.0f %% of the sum\n", t / 1e3, 100 * f / t }'
fi
if is sizes; then
  printf '%10s %12s %12s %6s  %s\n' bytes 'both us' 'best one us' ratio shares
  for bytes in 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864; do
    calls=$((bytes > 1048576 ? 30 : 300))
    both=$(run 4000,1000 none multipath 2 $((bytes / 4)) $calls)
    one=$(run 4000,1000 none ring 1 $((bytes / 4)) $calls | median)
    shares=$(tail -1 <<<"$both" | cut -d' ' -f3- | sed 's/:.*//')
    both=$(median <<<"$both")
    awk -v b="$bytes" -v x="$both" -v y="$one" -v s="$shares" 'BEGIN { printf "%10d %12.0f %12.0f %6.2f  %s\n", b, x, y, x / y, s }'
  done
fi
if is tenth; then
  echo 'all_reduce 16 MiB over 4 + 1 Gbit/s, the first cut to 0.4 after call 15 (optimum then 95.9 ms):'
  run 4000,1000 15:400 multipath 2 4194304 40 | awk '$1 > 12 { if ($1 > 15) at += $2; printf "  call %2d  %6.1f ms  %5.2f s after the cut  %s\n", $1, $2 / 1e3, at / 1e6, substr($0, index($0, $3)) }'
fi
if is cut; then
  echo 'all_reduce 16 MiB over 4 + 1 Gbit/s, the first cut off after call 15 (then 134.2 ms at best):'
  run 4000,1000 15:cut multipath 2 4194304 24 | awk '$1 > 12 { printf "  call %2d  %6.1f ms  %s\n", $1, $2 / 1e3, substr($0, index($0, $3)) }'
fi
