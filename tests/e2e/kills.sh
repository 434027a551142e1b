#!/usr/bin/env bash
# A LoRA run with microbatches, an average of the weights and the best checkpoint kept, killed at random
# moments: each killed run goes on, and ends with the files and losses of one that nothing disturbed.
# Usage: kills.sh PROGRAM ROOT [COUNT]. COUNT processes are killed (default 10, or $STOW_KILLS).
program=$1 root=$2
count=${3:-${STOW_KILLS:-10}}
in_memory=1  # each run flushes 75 checkpoints
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"

steps=150
run() {  # NAME ARGUMENT…
  local name=$1
  shift
  exec "$program" train --set "model.path=$root/examples/tiny_model" \
    --set "data.path=$root/examples/questions.jsonl" --set lora.rank=4 --set data.seq=96 \
    --set data.batch=2 --set data.accumulate=2 --set data.valid_fraction=0.25 --set train.ema=0.9 \
    --set optimizer.lr=0.01 --set optimizer.warmup=5 --set eval.every=3 --set eval.keep_best=true \
    --set train.steps=$steps --set train.checkpoint_every=2 --set "train.out=$folder/$name" "$@"
}
losses() {  # FILE: a line a step
  sed -n 's/^{"step": \([0-9]*\), "loss": .*"loss_hex": "\([^"]*\)".*/\1 \2/p' "$1"
}

begin=${EPOCHREALTIME/./}
(run whole --json "$folder/whole.json") >"$folder/out" 2>"$folder/err" ||
  { fault "the run: $(<"$folder/err")"; exit 1; }
took=$((${EPOCHREALTIME/./} - begin))
losses "$folder/whole.json" >"$folder/whole.losses"
(($(wc -l <"$folder/whole.losses") == steps)) || fault "expected $steps losses"

killed=0 runs=0
while ((killed < count && runs < 20 * count)); do
  rm -rf "$folder/k" "$folder"/part-*.json
  runs=$((runs + 1)) part=0
  # Killed again and again until it ends by itself.
  while true; do
    resume=()
    compgen -G "$folder/k/step-*.json" >/dev/null && resume=(--resume)
    run k "${resume[@]}" --json "$folder/part-$part.json" >"$folder/out" 2>"$folder/err" &
    pid=$!
    if ((killed < count)); then
      delay=$((RANDOM * 32768 + RANDOM))
      delay=$((delay % took))
      sleep "$(printf '%d.%06d' $((delay / 1000000)) $((delay % 1000000)))"
      kill -KILL "$pid" 2>/dev/null  # one that has ended is waited for all the same
      { wait "$pid"; } 2>/dev/null
      status=$?
      ((status == 137)) && killed=$((killed + 1))
    else
      wait "$pid"
      status=$?
    fi
    pid=
    ((status == 0)) && break
    ((status == 137)) || { fault "after $killed kills: status $status: $(<"$folder/err")"; break; }
    part=$((part + 1))
  done
  # Every step that any part printed is the step of the whole run.
  for ((i = 0; i <= part; i++)); do
    [[ -e $folder/part-$i.json ]] || continue
    losses "$folder/part-$i.json" | grep -vxF -f "$folder/whole.losses" &&
      fault "run $runs, part $i: other losses than those of the run that was not killed"
  done
  for file in "$folder"/whole/step-*; do
    cmp -s "$file" "$folder/k/${file##*/}" || fault "run $runs: ${file##*/} differs"
  done
  [[ $(cd "$folder/k" && echo step-*) == "$(cd "$folder/whole" && echo step-*)" ]] ||
    fault "run $runs: other checkpoints: $(cd "$folder/k" && echo step-*)"
  ((faults == 0)) || break
done
((killed >= count)) || fault "expected $count kills, got $killed in $runs runs"
((faults == 0)) && echo "$killed kills in $runs runs: the same bits"
((faults == 0))
