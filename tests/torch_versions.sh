#!/usr/bin/env bash
# The package's tests of PyTorch, and programs of others, with versions of PyTorch from the package index.
#
#   tests/torch_versions.sh [--json FOLDER] [--only TEXT ...] VERSION ...
#
# For each VERSION, in an environment of its own: the tests in python/tests/torch*, of which torch_compiled compiles the
# backend in C++ against that version, and torch_programs runs examples/torch; then tests/torch_ecosystem.sh, where --only
# chooses programs. It prints a table of each; FOLDER gets torch-VERSION.json. The package is the tree's own where its
# native module lies in it, or the wheel that `tests/python.sh wheel` has built. Ends with 77 and the reason where what it
# needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
results= versions=() only=()
while [ $# -gt 0 ]; do
    case $1 in
        --json) results=$(realpath -m "$2"); shift 2 ;;
        --only) shift; while [ $# -gt 0 ] && [[ $1 != [0-9]* && $1 != --* ]]; do only+=("$1"); shift; done ;;
        *) versions+=("$1"); shift ;;
    esac
done
if [ ${#versions[@]} = 0 ]; then
    echo "no version of PyTorch is named: tests/torch_versions.sh 2.11.0 2.14.0" >&2
    exit 77
fi

. tests/torch_environment.sh
export PIP_NO_CACHE_DIR=1
status=0
for version in "${versions[@]}"; do
    environment=$target/torch-ecosystem/env-$version
    python=$environment/bin/python
    torch_environment "$environment" "$version"
    package "$python" "$target"
    reports=$target/torch-ecosystem/reports-$version
    rm -rf "$reports"
    mkdir -p "$reports"
    echo "== torch $version"
    for suite in python/tests/torch*/; do
        PATH=$environment/bin:$PATH OMP_NUM_THREADS=1 TORCH_EXTENSIONS_DIR=$target/torch-ecosystem/extensions-$version \
            "$python" -m pytest -q -p no:cacheprovider --timeout 600 --junitxml "$reports/$(basename "$suite").xml" \
            "$suite" || [ $? = 5 ] || status=1
    done
    tests/torch_ecosystem.sh --torch "$version" --json "$reports/ecosystem.json" ${only[@]+--only "${only[@]}"} || status=1
    "$python" - "$reports" ${results:+"$results/torch-$version.json"} <<'PYTHON'
import json, sys
import xml.etree.ElementTree as xml
from pathlib import Path
import torch

reports, *outputs = map(Path, sys.argv[1:])
suites = {}
for report in sorted(reports.glob("*.xml")):
    suites[report.stem] = counts = dict(passed=0, failed=[], skipped={})
    for case in xml.parse(report).iter("testcase"):
        kinds = {child.tag: child.get("message", "") for child in case}
        if kinds.keys() & {"failure", "error"}:
            counts["failed"].append(case.get("name"))
        elif "skipped" in kinds:
            counts["skipped"][kinds["skipped"]] = counts["skipped"].get(kinds["skipped"], 0) + 1
        else:
            counts["passed"] += 1
# One that was ended from outside, by its deadline too, has written none.
for suite in Path("python/tests").glob("torch*/"):
    suites.setdefault(suite.name, dict(passed=0, failed=["the suite ended without a report"], skipped={}))
print(f"\ntorch {torch.__version__}\n\n| suite | passed | failed | skipped |\n|---|---|---|---|")
for suite, counts in sorted(suites.items()):
    print(f"| {suite} | {counts['passed']} | {len(counts['failed'])} | {sum(counts['skipped'].values())} |")
made = reports / "ecosystem.json"
rows = json.loads(made.read_text())["rows"] if made.exists() else []
for output in outputs:
    output.write_text(json.dumps(dict(torch=torch.__version__, suites=suites, programs=rows), indent=1) + "\n")
PYTHON
done
exit $status
