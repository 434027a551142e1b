#!/usr/bin/env bash
# Checkpoints of runs over a mesh: who writes what, resuming on the same mesh and on others, damage, and
# processes that are killed while they train and save.
# Usage: resume_on_mesh.sh PROGRAM [COUNT]. COUNT processes are killed at random moments (default 5).
program=$1
count=${2:-5}
in_memory=1  # each run flushes checkpoints
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"

tiny=(--set model.layers=2 --set model.dim=64 --set model.heads=4 --set model.kv_heads=2 --set model.ffn=128
      --set data.batch=4 --set data.seq=32 --set eval.every=0 --set train.sample=0
      --set optimizer.total_steps=6)
data4=(--set mesh.data=4)
data2_model2=(--set mesh.data=2 --set mesh.model=2)

# Trains in FOLDER/NAME; its losses are in FOLDER/NAME.losses, a line a step: number, hexadecimal.
train() {  # NAME ARGUMENT…
  local name=$1
  shift
  "$program" train "${tiny[@]}" --set "train.out=$folder/$name" --json "$folder/$name.json" "$@" \
    >"$folder/out" 2>"$folder/err" || { fault "$name $*: $(<"$folder/err")"; return 1; }
  sed -n 's/.*"loss": \([^,]*\), "loss_hex": "\([^"]*\)".*/\1 \2/p' "$folder/$name.json" >"$folder/$name.losses"
}
same_bits() { cmp -s <(tail -n "$3" "$folder/$1.losses") <(tail -n "$3" "$folder/$2.losses") || fault "$1 and $2: losses differ"; }
close() {  # NAME NAME COUNT
  paste -d' ' <(tail -n "$3" "$folder/$1.losses") <(tail -n "$3" "$folder/$2.losses") |
    awk '{ d = ($1 - $3) / $3; if (d < 0) d = -d; n++; if (d > 1e-5) bad = 1 } END { exit bad || n != '"$3"' }' ||
    fault "$1 and $2: losses are not within 1e-5"
}
copy() { rm -rf "${folder:?}/$2" && cp -r "$folder/$1" "$folder/$2"; }

train whole "${data4[@]}" --processes 4 --set train.steps=6
train first "${data4[@]}" --processes 4 --set train.steps=3
got=$(cd "$folder/first" && echo *)
expected="step-000003.json step-000003.rank-0.safetensors step-000003.rank-1.safetensors"
expected+=" step-000003.rank-2.safetensors step-000003.rank-3.safetensors"
[[ $got == "$expected" ]] || fault "expected $expected, got $got"
# What is cut is cut: the parts are alike, and together hardly more than the file of one process.
train alone --set train.steps=3 --devices 1
read -r least most total <<<"$(wc -c "$folder"/first/*.safetensors | awk '
  /total/ { total = $1; next } { if (!n++ || $1 < least) least = $1; if ($1 > most) most = $1 }
  END { print least, most, total }')"
alone=$(stat -c %s "$folder/alone/step-000003.safetensors")
((most * 10 <= least * 11)) || fault "parts of $least to $most bytes"
((total <= alone + alone / 50 + 20000)) || fault "parts of $total bytes for $alone"

copy first a && train a "${data4[@]}" --processes 4 --set train.steps=6 --resume && same_bits a whole 3
copy first b && train b "${data4[@]}" --processes 2 --devices 2 --set train.steps=6 --resume && same_bits b whole 3
copy first c && train c "${data4[@]}" --devices 4 --set train.steps=6 --resume && same_bits c whole 3
copy first d && train d "${data2_model2[@]}" --processes 2 --devices 2 --set train.steps=6 --resume && close d whole 3
copy first e && train e --set train.steps=6 --resume && close e whole 3
# One device's checkpoint goes on over a mesh.
copy alone f && train f "${data4[@]}" --processes 4 --set train.steps=6 --resume && close f whole 3

# A few bytes of one part, seen by all.
copy first g
part=$folder/g/step-000003.rank-2.safetensors
printf '\x55\xaa\x55\xaa' | dd of="$part" bs=1 seek=$(($(stat -c %s "$part") - 100)) conv=notrunc status=none
"$program" train "${tiny[@]}" --set "train.out=$folder/g" "${data4[@]}" --processes 4 --set train.steps=6 \
  --resume >"$folder/out" 2>"$folder/err" && fault "a damaged part was taken"
[[ $(<"$folder/err") =~ step-000003.rank-2.safetensors:\ is\ damaged:\ its\ digest ]] ||
  fault "a damaged part: $(<"$folder/err")"

# Kills: the newest checkpoint is whole and goes on.
for ((n = 0; n < count; n++)); do
  rm -rf "$folder/k" "$folder/killed.json"
  "$program" train "${tiny[@]}" --set "train.out=$folder/k" "${data4[@]}" --processes 4 \
    --set train.steps=100000 --set optimizer.total_steps=100000 --set train.checkpoint_every=1 \
    --json "$folder/killed.json" >"$folder/out" 2>"$folder/err" &
  pid=$!
  for ((i = 0; i < 400; i++)); do
    compgen -G "$folder/k/*.json" >/dev/null && break
    sleep 0.05
  done
  sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
  mapfile -t kids < <(children "$pid")
  kill -KILL "${kids[RANDOM % ${#kids[@]}]}"
  { wait "$pid"; } 2>/dev/null && fault "kill $n: status 0"
  pid=
  newest=$(cd "$folder/k" && printf '%s\n' *.json | tail -n 1)
  step=$((10#${newest//[!0-9]/}))
  "$program" train "${tiny[@]}" --set "train.out=$folder/k" "${data4[@]}" --processes 4 \
    --set "train.steps=$((step + 1))" --set optimizer.total_steps=100000 --resume --json "$folder/k.json" \
    >"$folder/out" 2>"$folder/err" || fault "kill $n, resuming at $step: $(<"$folder/err")"
  line=$(grep "\"step\": $((step + 1))," "$folder/k.json") || fault "kill $n: expected step $((step + 1))"
  # If the killed run had got beyond its checkpoint, this is the same step.
  killed=$(grep "\"step\": $((step + 1))," "$folder/killed.json")
  [[ -z $killed || ${killed%%\"grad_norm*} == "${line%%\"grad_norm*}" ]] || fault "kill $n: $killed, then $line"
done
((faults == 0))
