#!/usr/bin/env bash
# What the launcher says, and leaves behind, when processes are lost, stuck or stopped.
# Usage: launch.sh PROGRAM [COUNT]. COUNT processes are killed at random moments (default 10).
program=$1
count=${2:-10}
# shellcheck source=tests/support/processes_kit.sh
. "${BASH_SOURCE%/*}/../support/processes_kit.sh"

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# Starts a run that would take for ever; sets pid and kids.
start() {  # ARGUMENT…
  # A shell has what it starts in the background ignore SIGINT.
  env --default-signal=INT "$program" bench collectives --rounds 1000000 "$@" >"$folder/out" 2>"$folder/err" &
  pid=$!
  local i
  for ((i = 0; i < 100; i++)); do
    mapfile -t kids < <(children "$pid")
    ((${#kids[@]} == 4)) && return
    sleep 0.05
  done
  fault "4 processes did not start: $(<"$folder/err")"
}

# Waits for the launcher, which must end in time with that status and that one line, and nothing stays.
ends() {  # WHAT MOST_MS STATUS PATTERN
  local begin status left kid i
  begin=$(now_ms)
  { wait "$pid"; } 2>/dev/null  # the shell reports who was killed
  status=$?
  left=$(($(now_ms) - begin))
  ((left <= $2)) || fault "$1: took $left ms, expected $2"
  [[ $status == "$3" ]] || fault "$1: expected status $3, got $status"
  [[ $(<"$folder/err") =~ $4 ]] || fault "$1: expected on standard error: $4"$'\n'"got: $(<"$folder/err")"
  (($(wc -l <"$folder/err") <= 1)) || fault "$1: more than one line: $(<"$folder/err")"
  for kid in "${kids[@]}"; do
    for ((i = 0; i < 20; i++)); do
      is_running "$kid" || break
      sleep 0.05
    done
    is_running "$kid" && fault "$1: process $kid is left"
  done
  pid=
}

# Lost processes, of every number, anywhere in their work.
for ((n = 0; n < count; n++)); do
  start --processes 4 --size 256KiB
  sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
  lost=$((n % 4))
  kill -KILL "${kids[lost]}"
  ends "process $lost killed" 5000 1 \
    "^stowage: error: process $lost was ended by signal 9 \(Killed\); (process [0-3] waits in [a-z_]+ at [a-z ]+ \(its collective [0-9]+\)|no other waits in a collective)$"
done

# A process that is there and does not go on.
start --processes 4 --size 256KiB --timeout 0.5
sleep 0.3
kill -STOP "${kids[2]}"
ends 'process 2 stopped' 5000 1 \
  '^stowage: error: process 2 has not (entered|gone on in) [a-z_]+ at [a-z ]+ for 0\.[0-9]+ s'

# Signals to the launcher.
for signal in INT TERM HUP; do
  start --processes 4 --size 256KiB
  sleep 0.2
  kill "-$signal" "$pid"
  ends "SIG$signal" 3000 "$((128 + $(kill -l "$signal")))" '^$'
done
start --processes 4 --size 256KiB
kill -KILL "$pid"
ends 'the launcher killed' 1000 137 '^$'

# Arguments.
says() {  # STATUS STDERR ARGUMENT…
  local want=$1 text=$2 said status
  shift 2
  said=$("$program" "$@" 2>&1 >/dev/null)
  status=$?
  [[ $status == "$want" && $said == "$text" ]] || fault "$*: expected $want and: $text"$'\n'"got $status and: $said"
}
e='stowage: error: bench'
says 1 "$e: --processes 0: expected a number from 1 to 1024" bench collectives --processes 0
says 1 "$e: --processes x: expected a number from 1 to 1024" bench collectives --processes=x
says 1 "$e: --processes: expected a value behind it" bench collectives --processes
says 1 "$e: --log-ranks 3: expected all or first" bench collectives --log-ranks 3
says 1 "$e: 1024 processes with 64 devices each: expected at most 4096 ranks on a host" \
  bench collectives --processes 1024 --devices 64
# One line of an error that all processes find, and the status of the command.
says 1 "$e collectives: --size 1B: expected 4 bytes to 64 GiB" bench collectives --processes 3 --size 1B
STOW_LAUNCH=x says 1 'stowage: error: STOW_LAUNCH=x: expected PROCESS/PROCESSES:FD, which the launcher sets' \
  bench collectives
STOW_LAUNCH=0/2:0 says 1 "$e collectives: file descriptor 0 is not the memory of a launcher" \
  bench collectives </dev/null
# Who prints.
[[ $("$program" bench collectives --processes 2 --size 4KiB --json - | grep -c '"op"') == 6 ]] ||
  fault 'expected 6 rows of the first process'
[[ $("$program" bench collectives --processes 2 --size 4KiB --log-ranks all | grep -cE '^\[0\] [a-z_]+ ') == 6 ]] ||
  fault 'expected 6 rows that begin with [0]'

((faults == 0)) || { printf '%s faults\n' "$faults"; exit 1; }
