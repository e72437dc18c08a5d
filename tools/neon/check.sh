#!/bin/sh
# The kernels built for aarch64 (NEON) and run under qemu-user, against the baseline build of this machine: make test-neon.
#
# Without contraction of a * b + c both round every operation alike, so the bits must be equal; only what goes through
# libm's log ("log ..." lines) may differ in its last digits. As shipped, NEON fuses multiply and add and SSE2 does not:
# then numbers must agree to 1e-3 of the largest of their array, and whole numbers (ranks, draws) are not compared.
set -eu
here=$(dirname "$0")
core=$here/../../src/core
out=$here/../../build/neon
cross=aarch64-linux-gnu-g++
for tool in g++ "$cross" qemu-aarch64 awk; do
  command -v "$tool" > /dev/null || {
    echo "make test-neon: $tool is not installed. On Debian or Ubuntu: apt-get install g++ g++-aarch64-linux-gnu qemu-user" >&2
    exit 2
  }
done
mkdir -p "$out"
flags="-std=gnu++20 -O3 -fno-math-errno -fno-trapping-math -Wno-psabi -DCONSIDERATE_ISA=baseline"
for contract in off fast; do
  # shellcheck disable=SC2086
  g++ $flags -ffp-contract=$contract "$here/harness.cpp" "$core/kernels.cpp" -o "$out/host-$contract"
  # shellcheck disable=SC2086
  "$cross" -static $flags -ffp-contract=$contract "$here/harness.cpp" "$core/kernels.cpp" -o "$out/neon-$contract"
  "$out/host-$contract" > "$out/host-$contract.txt"
  qemu-aarch64 "$out/neon-$contract" > "$out/neon-$contract.txt"
done
# Fields are separated by tabs: name, place, value.
paste "$out/host-off.txt" "$out/neon-off.txt" | awk -F'\t' '
  $1 != $4 || $2 != $5 { print "another line: " $0; bad++; exit }
  { lines++ }
  $3 == $6 { next }
  $1 ~ /^log / { d = $3 - $6; if (d < 0) d = -d; m = $3 < 0 ? -$3 : $3; if (d <= 1e-5 * (m + 1e-3)) next }
  { if (bad++ < 10) print "differs: " $0 }
  END { print lines " numbers, bits: " bad + 0 " differ"; exit bad > 0 || lines == 0 }'
paste "$out/host-fast.txt" "$out/neon-fast.txt" | awk -F'\t' '
  function size(x) { return x < 0 ? -x : x }
  function close_array() { if (worst > 1e-3 * largest) { print name ": off by " worst " of " largest; bad++ } worst = largest = 0 }
  $1 ~ /items|above|ties|best|alias|drawn/ { next }
  $2 == 0 { close_array(); name = $1 }
  $3 ~ /nan|inf/ { if ($3 != $6) { print "differs: " $0; bad++ } next }
  { lines++; d = size($3 - $6); if (d > worst) worst = d; if (size($3) > largest) largest = size($3) }
  END { close_array(); print lines " numbers as shipped, within 1e-3: " bad + 0 " arrays are not"; exit bad > 0 || lines == 0 }'
