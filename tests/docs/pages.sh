#!/usr/bin/env bash
# Runs the commands that a page shows and compares what they print with the block behind them.
#
# A command is a line of four spaces and ./stowage, a variable before it or not, up to a line that
# does not end with \. If the next line that is not empty opens a block without a language, that is
# what it prints. A block of toml is the file that the commands behind it name.
# plan, train, config, run and allocate are run; builds, tests and measurements are not.
#
# Every line of a block must be printed, in this order, and nothing else, but for these:
# - a line of … stands for any lines;
# - what `masked` says depends on the machine and the hour, or is a line of a source, which moves;
# - `train` is planned only, where the block shows no step, and else runs for the first of its steps:
#   what `shortened` says comes of later ones is not compared. A budget that train found in its
#   machine is given to it.
# Usage: pages.sh PROGRAM ROOT PAGE
set -u -o pipefail
program=$1 root=$2 page=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
ln -s "$root/examples" "$folder/examples"
export STOW_ROOT=$root HOME=$folder XDG_CACHE_HOME=$folder OMP_NUM_THREADS=2

masked() {
  sed -E -e 's/(planned in|step: measured) [0-9.]+ m?s/\1 TIME/' -e 's/ [0-9]+ tok\/s/ RATE/' \
    -e 's/[0-9hms]+ left$/TIME left/' -e 's/([a-z_]+\.(cpp|h)):[0-9]+/\1:LINE/g' -e 's/^(disk: a file) in .*/\1/'
}

shortened() {
  sed -E -e '/^sample:/,/^peak:/{/^peak:/!s/.*/…/}' -e '/^step 1\//!s/^step [0-9]+\/.*/…/' \
    -e 's/^(validation loss|saved to) .*/…/' -e 's/(median of|^step 1\/)[ 0-9]+/\1/'
}

# Says where what is printed is not what the page shows.
compare() {  # SHOWN PRINTED
  local -a shown printed
  local line at=0 from skips=
  mapfile -t shown <<<"$1"
  mapfile -t printed <<<"$2"
  for line in "${shown[@]}"; do
    if [[ ${line// /} == … ]]; then
      skips=1
      continue
    fi
    from=$at
    if [[ $skips ]]; then
      while ((at < ${#printed[@]})) && [[ ${printed[at]} != "$line" ]]; do at=$((at + 1)); done
    fi
    if [[ ${printed[at]-} != "$line" ]]; then
      printf '  shown:    %s\n  printed:  %s\n' "$line" "${printed[from]-nothing more}"
      return
    fi
    at=$((at + 1)) skips=
  done
  [[ $skips ]] || ((at == ${#printed[@]})) || printf '  printed as well:  %s\n' "${printed[at]}"
}

runs=0 faults=0
check() {  # LINE COMMAND SHOWN
  local command=$2 shown=$3 printed status expected=0 said=
  [[ $command =~ ^([A-Z_]+=[^ ]+ )?\./stowage\ (plan|train|config|run|allocate)( |$) ]] || return
  local trains=
  if [[ ${BASH_REMATCH[2]} == train ]]; then
    if [[ $'\n'$shown =~ $'\n'step\ [0-9]+/([0-9]+) ]]; then
      trains=1
      command+=" --set optimizer.total_steps=${BASH_REMATCH[1]} --set train.steps=1"
      [[ $command == *--memory* || ! $'\n'$shown =~ $'\n'budget:\ ([0-9.]+)\ ([A-Za-z]+) ]] ||
        command+=" --memory ${BASH_REMATCH[1]}${BASH_REMATCH[2]}"
    else
      command=${command/stowage train/stowage plan}
      command=${command/ --resume/}
    fi
  fi
  case $shown in
    'stowage: over budget'*) expected=2 ;;
    'stowage: error'*) expected=1 ;;
  esac
  printed=$(cd "$folder" && eval "${command/.\/stowage/'"$program"'}" 2>&1)
  status=$?
  printed=$(grep -v '^stowage: .* takes longer than a second$' <<<"$printed")  # a slow machine's
  runs=$((runs + 1))
  if ((status != expected)); then
    said="  ended with status $status: $(tail -n 1 <<<"$printed")"
  elif [[ $shown ]]; then
    shown=$(masked <<<"$shown") printed=$(masked <<<"$printed")
    [[ $trains ]] && shown=$(shortened <<<"$shown") && printed=$(shortened <<<"$printed")
    said=$(compare "$shown" "$printed")
  fi
  [[ $said ]] || return
  printf '%s:%d: %s\n%s\n' "${page##*/}" "$1" "$2" "$said"
  faults=$((faults + 1))
}

# Goes through the page: a command is checked when it is known whether a block follows.
command='' command_line=0 block='' n=0 state=text
finish() {
  [[ -z $command ]] || check "$command_line" "$command" "$block"
  command='' block=''
}
while IFS= read -r line || [[ $line ]]; do
  n=$((n + 1))
  case $state in
    text)
      if [[ $line == '    '*'./stowage '* ]]; then
        finish
        command_line=$n command=${line#    }
        [[ $command == *\\ ]] && state=command
      elif [[ $line == '```toml' ]]; then
        finish
        state=toml
      elif [[ $line == '```' && $command ]]; then
        state=block
      elif [[ $line == '```'* ]]; then
        finish
        state=other
      elif [[ $line ]]; then
        finish
      fi
      ;;
    command)
      command=${command%\\}${line#"${line%%[! ]*}"}
      [[ $command == *\\ ]] || state=text
      ;;
    *)
      if [[ $line == '```' ]]; then
        [[ $state == toml ]] && printf '%s' "$block" >"$folder/small.toml"
        [[ $state == toml ]] && block=''
        [[ $state == block ]] && block=${block%$'\n'} && finish
        state=text
      elif [[ $state != other ]]; then
        block+=$line$'\n'
      fi
      ;;
  esac
done <"$page"
finish
printf '%s: %d commands run, %d faults\n' "${page##*/}" "$runs" "$faults"
((runs > 0 && faults == 0))
