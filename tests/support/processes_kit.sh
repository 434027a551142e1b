# Shared by the tests of real processes: a folder that goes again, faults that are counted, and the process
# that a test has started. Sourced, not run. With in_memory=1 the folder is in memory, where the machine has
# such a folder: for small files that are flushed many times.
folder=$(mktemp -d ${in_memory:+-p /dev/shm} 2>/dev/null) || folder=$(mktemp -d) || exit 1
pid=  # of a launcher that runs in the background; killed at exit
trap '[[ -n $pid ]] && kill -KILL "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
faults=0
fault() { printf '%s\n' "$*"; faults=$((faults + 1)); }

# The processes that a launcher has started, in the order of their numbers.
children() { pgrep -P "$1" | sort -n; }
# A dead process whose launcher was killed is for the init process to reap, and does not run.
is_running() { [[ -e /proc/$1/stat && $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) == [!Z]* ]]; }
