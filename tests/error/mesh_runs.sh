#!/usr/bin/env bash
# Training over processes: the window is in the plan, sums may be the transport's, and what all processes
# refuse is said once. Usage: mesh_runs.sh PROGRAM.
program=$1
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"

for ((i = 0; i < 300; ++i)); do echo "line $((i * i)) of the text to train on"; done >"$folder/text"
sizes=()
for setting in model.dim=32 model.layers=2 model.heads=4 model.kv_heads=4 model.ffn=64 data.batch=8 \
  data.seq=16 train.steps=3 train.sample=0 eval.every=0 mesh.data=2 "data.path=$folder/text"; do
  sizes+=(--set "$setting")
done
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([a-z0-9]*\).*/\1/p" "$2" | tail -n 1; }
losses() { grep -o '"loss_hex": *"[^"]*"' "$1"; }

# The window: planned before the run, mapped in it, a share of the host's budget.
"$program" plan "${sizes[@]}" --processes 2 --json "$folder/plan" >"$folder/said" ||
  fault "plan --processes 2 failed"
grep -q '^window: .* through which 2 devices exchange' "$folder/said" || fault "plan names no window: $(<"$folder/said")"
"$program" train "${sizes[@]}" --set "train.out=$folder/tree" --processes 2 --json "$folder/tree.json" \
  >"$folder/said" || fault "train --processes 2 failed"
planned=$(field window_bytes "$folder/plan") real=$(field window_bytes "$folder/tree.json")
[[ -n $planned && $planned == "$real" && $planned -gt 4194304 ]] ||
  fault "the window is planned as '$planned' bytes and has '$real'"
"$program" plan "${sizes[@]}" --json "$folder/plan" >/dev/null || fault "plan failed"
threads=$(field window_bytes "$folder/plan")
"$program" train "${sizes[@]}" --set "train.out=$folder/threads" --json "$folder/threads.json" >/dev/null ||
  fault "train failed"
[[ -n $threads && $threads == "$(field window_bytes "$folder/threads.json")" && $threads -lt 65536 ]] ||
  fault "two threads: the window is planned as '$threads' bytes"
on_device=(--set runtime.platform=virtual --set memory.policy=recompute)
for place in optimizer parameters gradients; do on_device+=(--set "memory.$place=device"); done
"$program" plan "${sizes[@]}" "${on_device[@]}" --processes 2 --set memory.host=1MiB >"$folder/said" 2>&1
[[ $? == 1 ]] && grep -q 'memory.host = 1.00 MiB has no room for the window .* expected at least 2.0' "$folder/said" ||
  fault "a window of 2 MiB a device fits a host of 1 MiB: $(<"$folder/said")"
"$program" plan "${sizes[@]}" "${on_device[@]}" --processes 2 --set memory.host=3MiB >"$folder/said" 2>&1
[[ $? == 0 ]] && grep -q '^window: .* 2.0. MiB of memory.host' "$folder/said" ||
  fault "the window is no part of memory.host: $(<"$folder/said")"
"$program" plan "${sizes[@]}" --processes 3 >/dev/null 2>"$folder/said"
grep -q 'plan: 3 processes of 1 device are not the 2 devices of' "$folder/said" ||
  fault "three processes of two devices: $(<"$folder/said")"

# Within a host `native` is the tree.
"$program" train "${sizes[@]}" --set "train.out=$folder/native" --set runtime.reduce=native --processes 2 \
  --json "$folder/native.json" >"$folder/said" || fault "train with runtime.reduce=native failed"
grep -q 'runtime.reduce = native' "$folder/said" || fault "nothing says that sums are the transport's"
[[ $(field reduce "$folder/native.json") == native ]] || fault "the summary does not say native"
[[ -n $(losses "$folder/tree.json") && $(losses "$folder/tree.json") == "$(losses "$folder/native.json")" &&
  $(losses "$folder/tree.json") == "$(losses "$folder/threads.json")" ]] || fault "other losses within a host"

if command -v mpirun >/dev/null; then
  root=(--oversubscribe)
  ((EUID)) || root+=(--allow-run-as-root)
  mpi() { timeout 120 mpirun "${root[@]}" -n 2 "$program" train "${sizes[@]}" "$@"; }
  if mpi --set "train.out=$folder/mpi" --set runtime.reduce=native --json "$folder/mpi.json" \
    >"$folder/said" 2>"$folder/err"; then
    [[ $(losses "$folder/mpi.json" | wc -l) == 3 ]] || fault "mpirun, native: $(losses "$folder/mpi.json")"
    # Two numbers have one sum in every order.
    [[ $(losses "$folder/mpi.json") == "$(losses "$folder/tree.json")" ]] || fault "mpirun, native: other losses"
    # What each process refuses is said once.
    once() {  # WHAT STATUS PATTERN ARGUMENT…
      mpi --set "train.out=$folder/none" "${@:4}" >/dev/null 2>"$folder/err"
      local status=$? lines
      lines=$(grep -cE '^stowage: (error|over)' "$folder/err")
      [[ $status == "$2" ]] || fault "mpirun, $1: expected status $2, got $status"
      [[ $lines == 1 ]] && grep -q "$3" "$folder/err" || fault "mpirun, $1: $lines lines: $(<"$folder/err")"
    }
    once 'a wrong key' 1 "unknown key" --set model.nothing=1
    once 'a wrong mesh' 1 'are not the 3 devices of' --set mesh.data=3 --set data.batch=9
    once 'a small budget' 2 'over budget' --memory 100KiB --set model.layers=1 --set memory.policy=recompute
    # One that finds what the others do not says it.
    printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && set -- "$@" --set runtime.reduce=native\nexec "$0.program" "$@"\n' >"$folder/odd"
    chmod +x "$folder/odd" && ln -s "$program" "$folder/odd.program"
    timeout 60 mpirun "${root[@]}" -n 2 "$folder/odd" train "${sizes[@]}" --set "train.out=$folder/none" \
      >/dev/null 2>"$folder/err"
    [[ $(grep -cE '^stowage: (error|over)' "$folder/err") == 1 ]] &&
      grep -q 'runtime.reduce is tree at process 0, native at process 1' "$folder/err" ||
      fault "mpirun, unlike settings: $(<"$folder/err")"
    printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && set -- "$@" --set data.path=/nowhere\nexec "$0.program" "$@"\n' >"$folder/odd"
    timeout 60 mpirun "${root[@]}" -n 2 "$folder/odd" train "${sizes[@]}" --set "train.out=$folder/none" \
      --set runtime.timeout=20 >/dev/null 2>"$folder/err"
    [[ $(grep -cE '^stowage: (error|over)' "$folder/err") == 1 ]] && grep -q '/nowhere' "$folder/err" ||
      fault "mpirun, a file that one process lacks: $(<"$folder/err")"
  elif grep -q 'no Open MPI' "$folder/err"; then
    echo 'skipped: mpirun, since this build has no Open MPI'
  else
    fault "mpirun, native: $(<"$folder/err")"
  fi
else
  echo 'skipped: mpirun, which is not installed'
fi
((faults == 0)) || { printf '%s faults\n' "$faults"; exit 1; }
