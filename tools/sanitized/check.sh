#!/bin/sh
# The core under the sanitizers of GCC: make test-sanitized. Each build has an environment of its own in build/sanitized,
# which takes its other packages from .venv.
#
# address: AddressSanitizer and UBSan, with the tests of the kernels, of model files, of fits on Ray and of the service.
# Kernels are tested with every instruction set of this machine. thread: ThreadSanitizer, with fits of two threads. In each a planted
# fault must be reported first. A report ends its process, and fails the run also where no test looks at that process.
set -eu
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python
out=$PWD/build/sanitized
[ "$(uname)" = Linux ] && command -v g++ > /dev/null || {
  echo "make test-sanitized: needs Linux and g++ with its sanitizers. On Debian or Ubuntu: apt-get install g++" >&2
  exit 2
}
export PYTHONPATH=tools/sanitized CC=gcc CXX=g++ OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 ARROW_DEFAULT_MEMORY_POOL=system

KERNELS="test_arrays test_kernels test_closed_form_kernels test_coordinate_blocks test_far_sides test_full test_half_edges
  test_hidden test_lift test_prediction test_ranks test_threads test_simulate test_feature_weights test_known test_weights"
FILES="test_container test_container_fuzz test_fuzz test_model_damage test_model_file test_model_shards test_checkpoint
  test_out_of_core"
# Not those in a browser, which does not run under a sanitizer, and not the soak. Of the files, the test of the memory
# that a save takes is left out: it is more under a sanitizer.
SERVICE="test_service test_service_access test_service_events test_service_events_file test_service_fuzz test_service_graph
  test_service_honesty test_service_http test_service_load test_service_process test_service_refit
  test_service_refit_kinds test_service_refit_loop test_service_refit_recalibration test_service_refit_swap
  test_service_swaps"

timed() { # what is done, then how: says how long it took
  label=$1 began=$(date +%s)
  shift
  "$@"
  echo "test-sanitized: $label: $(($(date +%s) - began)) s"
}

build() { # name, sanitizers
  $python -m venv --without-pip "$out/$1"
  site=$("$out/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  $python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/packages.pth"
  $python -m pip --python "$out/$1/bin/python" install --quiet --no-deps --force-reinstall -C build-dir="$out/$1/build" \
    -C cmake.build-type=None -C cmake.define.SANITIZE="$2" .
}

libraries() { # of a compiler, by name: as LD_PRELOAD wants them
  for name in "$@" stdc++; do printf '%s ' "$(g++ -print-file-name=lib$name.so)"; done
}

under() { # name of the build, a command: run it with that build
  name=$1
  shift
  case $name in address) preload=$(libraries asan ubsan) ;; thread) preload=$(libraries tsan) ;; esac
  options=log_path=$out/report-$name:halt_on_error=1
  foreign=suppressions=$PWD/tools/sanitized/foreign.supp
  # Python frees not all at its end; tests ask for more memory than there is, and watch the memory of a service.
  env LD_PRELOAD="$preload" ASAN_OPTIONS="$options:$foreign:detect_leaks=0:quarantine_size_mb=16:allocator_may_return_null=1" \
    UBSAN_OPTIONS="$options:print_stacktrace=1" TSAN_OPTIONS="$options" setarch -R "$out/$name/bin/python" "$@"
}

# Of any process, also of those that no test looks at.
reports() {
  code=$?
  for report in "$out"/report-*; do
    if [ -e "$report" ]; then cat "$report" >&2; code=1; fi
  done
  exit "$code"
}

reported() { # name of the build, planted fault, what the report must say
  rm -f "$out/report-$1".*
  if under "$1" tools/sanitized/planted.py "$2" > "$out/planted.txt" 2>&1; then
    echo "test-sanitized: planted fault '$2' was not reported" >&2
    exit 1
  fi
  cat "$out/planted.txt" "$out/report-$1".* 2> /dev/null | grep -q "$3" || {
    echo "test-sanitized: planted fault '$2' ended the run, but not with '$3':" >&2
    cat "$out/planted.txt" >&2
    exit 1
  }
  rm -f "$out/report-$1".*
}

tests() { # names of files below tests/, without their .py
  for name in "$@"; do find tests -name "$name.py"; done
}

address() {
  timed "build with AddressSanitizer and UBSan" build address address,undefined
  timed "planted overrun reported" reported address overrun heap-buffer-overflow
  timed "planted overflow reported" reported address overflow "signed integer overflow"
  sets=$(under address -c 'from considerate.kernels import compiled; print(*compiled.instruction_sets())')
  for CONSIDERATE_SET in $sets; do
    export CONSIDERATE_SET
    timed "tests of kernels, $CONSIDERATE_SET" under address -m pytest -q -p instruction_set $(tests $KERNELS)
  done
  timed "tests of model files" under address -m pytest -q -k "not shard_in_memory" $(tests $FILES)
  timed "fits on Ray" under address -m pytest -q tests/distributed/test_ray_fits.py
  timed "tests of the service" under address -m pytest -q -k "not a_page and not the_page" $(tests $SERVICE)
}

thread() {
  timed "build with ThreadSanitizer" build thread thread
  timed "planted race reported" reported thread race "data race"
  timed "fits of two threads" under thread tools/sanitized/planted.py none
}

rm -f "$out"/report-*
trap reports EXIT
for kind in ${*:-address thread}; do "$kind"; done
