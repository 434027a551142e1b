#!/usr/bin/env bash
# Arrays placed by real processes: exact bytes, few of them sent, and a copy that differs is named.
# Usage: placement.sh PROGRAM
program=$1
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"

for n in 1 4; do
  "$program" bench placement --processes "$n" --size 8MiB --json - >"$folder/out" 2>"$folder/err" ||
    fault "$n processes: status $?: $(<"$folder/err")"
  (($(grep -c '"rank"' "$folder/out") == n)) || fault "$n processes: expected a line each, got: $(<"$folder/out")"
  (($(grep -c '"device_bytes": *8388608\b' "$folder/out") == n)) ||
    fault "$n processes: expected 8388608 bytes of device each, got: $(<"$folder/out")"
  while read -r sent; do
    ((sent < 1024)) || fault "$n processes: one sent $sent bytes, expected less than 1024"
  done < <(sed -n 's/.*"sent_bytes": *\([0-9]*\).*/\1/p' "$folder/out")
  while read -r growth; do
    ((growth <= 8388608 + 2097152)) || fault "$n processes: one grew by $growth bytes, expected 8 MiB and at most 2 more"
  done < <(sed -n 's/.*"rss_growth_bytes": *\([0-9]*\).*/\1/p' "$folder/out")
done

"$program" bench placement --processes 4 --size 8MiB --flip 2 >"$folder/out" 2>"$folder/err"
status=$?
[[ $status == 1 ]] || fault "a flipped bit: expected status 1, got $status"
[[ $(<"$folder/err") =~ "process 2 has another value than most" && $(<"$folder/err") =~ weights ]] ||
  fault "a flipped bit: expected process 2 and weights to be named, got: $(<"$folder/err")"
"$program" bench placement --processes 2 --flip 2 >"$folder/out" 2>"$folder/err" &&
  fault "--flip 2 of 2 processes: expected an error"
grep -q 'expected a process from 0 to 1' "$folder/err" || fault "--flip 2 of 2 processes: $(<"$folder/err")"
exit $((faults > 0))
