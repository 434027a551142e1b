#!/usr/bin/env bash
# Programs of users over several real processes: the bits of one process, and what is said and left behind
# when one of them is lost, differs or cannot be started.
# Usage: processes.sh STOWAGE PROGRAM [COUNT]. PROGRAM is examples/processes; COUNT of its processes are
# killed at random moments (default 4).
stowage=$1
program=$2
count=${3:-4}
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"
export OMP_WAIT_POLICY=passive

# The bits do not depend on how devices are spread over processes.
"$stowage" launch --devices 4 -- "$program" 3 >"$folder/want" 2>"$folder/err" ||
  fault "4 devices of one process: status $?: $(<"$folder/err")"
grep -q '^2 x 2 devices, 4 here$' "$folder/want" || fault "expected 2 x 2 devices, got: $(<"$folder/want")"
(($(grep -c '^step ' "$folder/want") == 3)) || fault "expected 3 steps, got: $(<"$folder/want")"
grep -qE '^weights [0-9a-f]{16}$' "$folder/want" || fault "expected a checksum, got: $(<"$folder/want")"
same() {  # WHAT
  diff <(tail -n +2 "$folder/want") <(tail -n +2 "$folder/got") >"$folder/diff" ||
    fault "$1: other bits: $(<"$folder/diff")"$'\n'"$(<"$folder/err")"
}
for split in '2 2' '4 1'; do
  read -r processes devices <<<"$split"
  "$stowage" launch --processes "$processes" --devices "$devices" -- "$program" 3 >"$folder/got" 2>"$folder/err" ||
    fault "$split: status $?: $(<"$folder/err")"
  same "$processes processes with $devices devices"
  grep -q "^2 x 2 devices, $devices here$" "$folder/got" || fault "$split: got $(head -n 1 "$folder/got")"
done
# By itself it is one device, of other sums.
"$program" 1 >"$folder/got" 2>"$folder/err" || fault "alone: status $?: $(<"$folder/err")"
grep -q '^1 x 1 devices, 1 here$' "$folder/got" || fault "alone: got $(head -n 1 "$folder/got")"

# The same through Open MPI, where it is there and the program was built with it.
if command -v mpirun >/dev/null; then
  root=()
  ((EUID != 0)) || root=(--allow-run-as-root)
  mpirun "${root[@]}" --oversubscribe -n 4 "$program" 3 >"$folder/got" 2>"$folder/err"
  status=$?
  if grep -q 'this build has no Open MPI' "$folder/err"; then
    echo 'skipped: mpirun, since this build has no Open MPI'
  else
    ((status == 0)) || fault "mpirun: status $status: $(<"$folder/err")"
    same 'mpirun -n 4'
  fi
fi

# A process that is lost in the middle of its steps ends all, with one line.
for ((n = 0; n < count; n++)); do
  rm -f "$folder/out"
  "$stowage" launch --processes 2 --devices 2 -- "$program" 1000000 >"$folder/out" 2>"$folder/err" &
  pid=$!
  for ((i = 0; i < 400; i++)); do
    mapfile -t kids < <(children "$pid")
    ((${#kids[@]} == 2)) && grep -qs '^step ' "$folder/out" && break
    sleep 0.05
  done
  if ((i == 400)); then
    fault "2 processes did not begin: ${kids[*]} $(head -n 3 "$folder/out") $(<"$folder/err")"
    kill -KILL "$pid"
    continue
  fi
  sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
  lost=$((n % 2))
  begin=$(date +%s%N)
  kill -KILL "${kids[lost]}"
  { wait "$pid"; } 2>/dev/null
  status=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  pid=
  ((took <= 5000)) || fault "process $lost killed: took $took ms"
  [[ $status == 1 ]] || fault "process $lost killed: expected status 1, got $status"
  [[ $(<"$folder/err") =~ ^"stowage: error: process $lost was ended by signal 9 (Killed); "(process [01] waits in |no other waits in a collective$) ]] ||
    fault "process $lost killed: got $(<"$folder/err")"
  (($(wc -l <"$folder/err") == 1)) || fault "process $lost killed: more than one line: $(<"$folder/err")"
  for kid in "${kids[@]}"; do
    for ((i = 0; i < 20; i++)); do
      is_running "$kid" || break
      sleep 0.05
    done
    is_running "$kid" && fault "process $lost killed: process $kid is left"
  done
done

# What cannot be started, and what programs say that fail.
says() {  # STATUS STDERR ARGUMENT…
  local want=$1 text=$2 said status
  shift 2
  said=$("$stowage" "$@" 2>&1 >/dev/null)
  status=$?
  [[ $status == "$want" && $said == "$text" ]] || fault "$*: expected $want and: $text"$'\n'"got $status and: $said"
}
e='stowage: error: launch:'
says 1 "$e expected a program behind the options: ./stowage launch --processes 2 -- ./train" launch --processes 2
says 1 "$e --processes 0: expected a number from 1 to 1024" launch --processes 0 -- true
says 1 "$e --processes: expected a value behind it" launch --processes
says 1 "$e no program no-such-program in the PATH; one of this folder is ./no-such-program" launch no-such-program
says 1 "$e expected a program that can be run, got ./none" launch -- ./none
printf '#!/no/such/shell\n' >"$folder/script"
chmod +x "$folder/script"
says 127 "stowage: error: $folder/script could not be started" launch --processes 2 -- "$folder/script"
says 1 "$e this process is process 0 of 1 already, which a launcher has started; leave launch out" \
  launch -- "$stowage" launch true
# shellcheck disable=SC2016  # the variable is of the shell that is started
says 3 $'one\nstowage: error: process 1 ended with status 3; no other waits in a collective' \
  launch --processes 2 -- sh -c 'case $STOW_LAUNCH in 1/*) echo one >&2; exit 3;; esac'
says 1 'processes: expected a number of steps from 1 on, got '"'x'" launch --processes 2 -- "$program" x
[[ $("$stowage" launch --processes 3 -- echo --processes 9) == '--processes 9' ]] ||
  fault 'expected the first process alone to print, and options behind the program to be its own'
[[ $("$stowage" launch --processes 2 --log-ranks all -- echo a | sort) == $'[0] a\n[1] a' ]] ||
  fault 'expected the lines of both processes'

((faults == 0)) || { printf '%s faults\n' "$faults"; exit 1; }
