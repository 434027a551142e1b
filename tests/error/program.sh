#!/usr/bin/env bash
# What the program makes of its arguments and of standard streams that are closed or full: status and
# message of whole commands, in the shell's words.
# Usage: program.sh PROGRAM ROOT
export STOW_ROOT=$2
program=$1
stowage() { "$program" "$@"; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
faults=0

expect() {  # STATUS STDERR COMMAND
  local said status
  said=$(eval "$3" 2>&1 >/dev/null)
  status=$?
  [[ $status == "$1" && $said == "$2" ]] && return
  printf '%s\n  expected status %s and: %s\n  got status %s and:      %s\n' "$3" "$1" "$2" "$status" "$said"
  faults=$((faults + 1))
}
expect_text() {  # FILE PATTERN
  # shellcheck disable=SC2053
  [[ $(<"$1") == $2 ]] && return
  printf '%s holds:\n%s\n' "$1" "$(<"$1")"
  faults=$((faults + 1))
}

printf 'id,lower,upper,size\na,0,1,4\n' >one.csv
printf 'graph(%%0: f32[2] "x") {\n  return %%0\n}\n' >graph.txt
small='--set model.dim=8 --set model.layers=1 --set model.ffn=8 --set data.seq=8 --set data.batch=1'
small+=' --set train.steps=1 --set train.sample=0'

# Streams. What is opened while one is closed does not get what the program says.
expect 0 '' "stowage config >/dev/null"
expect 1 'stowage: error: standard output: No space left on device' "stowage config >/dev/full"
expect 1 'stowage: error: standard output: No space left on device' "stowage train --help >/dev/full"
expect 1 'stowage: error: standard output: Bad file descriptor' "stowage config >&-"
expect 1 'stowage allocate: standard output: Bad file descriptor' "stowage allocate one.csv --json - >&- 2>err; s=\$?; tail -n 1 err >&2; exit \$s"
expect 1 'stowage allocate: standard input: Bad file descriptor' "stowage allocate - <&-"
expect 1 '' "stowage none 2>&-"
expect 1 '' "stowage none 2>/dev/full"
expect 2 '' "stowage allocate one.csv --capacity 3 --output placed.csv 2>&-"
expect_text placed.csv $'id,lower,upper,size,offset\na,0,1,4,0'
expect 1 'stowage: error: standard output: Bad file descriptor' "stowage plan $small --json plan.json >&-"
expect_text plan.json '{"predicted_peak_bytes"*}'

# Names that would begin a line of their own.
expect 1 "stowage: error: --set a?b=1: unknown key 'a?b'; did you mean 'model.path'?" "stowage config --set \$'a\nb=1'"
expect 1 'stowage: error: a?stowage: No such file or directory' "stowage config \$'a\nstowage'"
expect 1 'stowage allocate: The following argument was not expected: ?[31m' "stowage allocate one.csv \$'\e[31m'"

# The launcher's help, which builds nothing, names every command of the program.
commands=$(stowage help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for command in ${commands:-none}; do
  expect 0 '' "'$2/stowage' help | grep -q '^  ./stowage $command '"
done

# What has no effect.
expect 1 'stowage: error: config: --resume has no effect: nothing is run; leave it out' "stowage config --resume"
expect 1 'stowage: error: config: --json has no effect: it prints TOML; leave it out' "stowage config --json x"
expect 1 'stowage: error: run: --output has no effect with --plan: nothing is run; leave it out' "stowage run graph.txt --plan --output x"
expect 1 'stowage: error: run: --inputs has no effect with --plan: nothing is run; leave it out' "stowage run graph.txt --plan --inputs x"
needs=$(stowage run graph.txt --plan | sed -n 's/^device: total \([0-9]*\) B .*/\1/p')
expect 2 "stowage: error: graph.txt needs $needs B of the $((needs - 1)) B there are" \
  "stowage run graph.txt --plan --memory $((needs - 1))"
expect 0 '' "stowage run graph.txt --plan --memory $needs"
expect 1 'stowage: error: bench step: --set train.compute=bf16: --dtype decides it' \
  "stowage bench step --dtype f32 --set train.compute=bf16"
expect 1 'stowage: error: bench step: --set model.layers=1: --config decides the model' \
  "stowage bench step --set memory.policy=recompute --set model.layers=1"

# What cannot be written is said before the work.
for command in "profile $small" "bench step" "bench program1" "run graph.txt --plan" "plan $small"; do
  expect 1 'stowage: error: none/x: No such file or directory' \
    "stowage $command --json none/x >printed || { s=\$?; [[ -s printed ]] && echo late >&2; exit \$s; }"
done
expect 1 'stowage: error: none/x: No such file or directory' \
  "stowage profile $small --trace none/x >printed || { s=\$?; [[ -s printed ]] && echo late >&2; exit \$s; }"
expect 1 'stowage: error: none/x: No such file or directory' \
  "stowage train $small --trace none/x >printed || { s=\$?; grep -q '^step 1' printed && echo late >&2; exit \$s; }"
expect 1 'stowage: error: none/x: No such file or directory' \
  "stowage plan $small --html none/x >printed || { s=\$?; [[ -s printed ]] && echo late >&2; exit \$s; }"

# A loss that is not finite, and what was measured until then.
expect 3 'stowage: error: step N: the loss is nan' \
  "stowage bench step --set data.batch=1 --set data.seq=8 --set optimizer.lr=1000 \
     --set optimizer.weight_decay=1000 --steps 9 --json losses.json 2>err
   s=\$?; sed -E 's/step [0-9]+/step N/; s/is -?nan/is nan/' err >&2; exit \$s"
expect_text losses.json '{"config": "small",*"losses": [[]5.*, null],*}'
exit $((faults > 0))
