#!/bin/bash
# Test bertloom on this machine's GPU and measure it, in at most 5 minutes:
#
#     OUT=results deploy/gpu/check.sh [options of benchmarks.bench_gpu]
#
# TEST_SECONDS and BENCH_SECONDS are limits. A part that reaches its limit leaves what it has.
. "$(dirname "$0")/environment.sh"

status=0
timeout -k 10 "${TEST_SECONDS:-120}" "$PYTHON" -m pytest -q --noconftest -p no:cacheprovider \
  ${TESTS:-tests/model/test_cuda.py} > "$OUT/tests.txt" 2>&1 || status=1
tail -n 20 "$OUT/tests.txt"
timeout -k 10 "${BENCH_SECONDS:-150}" "$PYTHON" -m benchmarks.bench_gpu --json "$OUT/bench.jsonl" "$@" \
  2>&1 | tee "$OUT/bench.txt"
[ "${PIPESTATUS[0]}" = 0 ] || status=1
exit $status
