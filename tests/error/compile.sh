#!/usr/bin/env bash
# Programs that must not compile, with a sentence of ours in what the compiler says. The first line
# of each says which; "nothing" is for one that must compile, so that the others fail for their
# mistake alone.
# Usage: compile.sh CXX ROOT
set -u
cxx=$1 root=$2
faults=0
# The public header is parsed once. A compiler that cannot read the result parses it each time.
parsed=$(mktemp -d) || exit 1
trap 'rm -rf "$parsed"' EXIT
mkdir "$parsed/stowage"
"$cxx" -w -std=c++20 -I"$root/src" -x c++-header "$root/src/stowage/stowage.h" \
  -o "$parsed/stowage/stowage.h.gch" || exit 1
for file in "$root"/tests/error/compile/*.cpp; do
  expected=$(head -n 1 "$file")
  expected=${expected#// expect: }
  said=$("$cxx" -std=c++20 -fsyntax-only -fmessage-length=0 -I"$parsed" -I"$root/src" "$file" 2>&1)
  status=$?
  if [[ $expected == nothing ]]; then
    ((status == 0)) && continue
  elif ((status != 0)) && [[ $said == *"$expected"* ]]; then
    continue
  fi
  printf '%s: expected "%s", the compiler ended with %d and said:\n%s\n' "${file##*/}" "$expected" \
    "$status" "$(head -n 20 <<<"$said")"
  faults=$((faults + 1))
done
exit $((faults > 0))
