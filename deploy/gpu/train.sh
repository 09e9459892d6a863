#!/bin/bash
# Train the kit's model on this machine's GPU, in at most 7 minutes:
#
#     OUT=results deploy/gpu/train.sh [options of deploy.gpu.train]
#
# TRAIN_SECONDS is the limit of everything. What was done before is in $OUT.
. "$(dirname "$0")/environment.sh"

timeout -k 15 "${TRAIN_SECONDS:-400}" "$PYTHON" -m deploy.gpu.train --kit "$KIT" --out "$OUT" "$@" \
  2>&1 | tee "$OUT/train.txt"
exit "${PIPESTATUS[0]}"
