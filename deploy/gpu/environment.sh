# Sourced by check.sh and train.sh: the folder of the checkout, the results in $OUT, and the wheels.

cd "$(dirname "$0")/../.." || exit 1
export OUT="${OUT:-build/gpu-results}"
export KIT="${KIT:-build/gpu-kit}"
PYTHON="${PYTHON:-python3}"
mkdir -p "$OUT"

# A wheel is a zip file: the machine needs no pip. They are built for one version of Python.
if [ -d "$KIT/wheels" ] && "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))'; then
  SITE="${TMPDIR:-/tmp}/bertloom-gpu-site"
  for wheel in "$KIT"/wheels/*.whl; do
    "$PYTHON" -m zipfile -e "$wheel" "$SITE" || exit 1
  done
  export PYTHONPATH="$SITE${PYTHONPATH:+:$PYTHONPATH}"
fi

"$PYTHON" -m deploy.gpu.machine > "$OUT/machine.json" || exit 1
