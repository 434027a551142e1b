#!/usr/bin/env bash
# Installs Stowage into a temporary folder, builds the project beside this script, the README's first
# program and examples/generate.cpp against it, with every header included alone, and runs them; then
# takes Stowage into that project's own build.
# Usage: stranger.sh CMAKE BUILD_FOLDER CXX SANITIZERS
set -eu -o pipefail
cmake=$1 build=$2 cxx=$3 sanitizers=$4
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The quiet command, with its output where it fails.
quietly() {
  "$@" >"$folder/log" 2>&1 || { cat "$folder/log"; echo "failed: $*"; exit 1; }
}

"$cmake" --install "$build" --prefix "$folder/prefix" >/dev/null
flags=${sanitizers:+-fsanitize=$sanitizers}
block() {  # N: the Nth block of the README's first program
  sed '1,/^## A first program/d' "$source/README.md" |
    awk -v n="$1" '/^```/ { ++fences; next } fences == 2 * n - 1'
}
block 1 >"$folder/p1.cpp"
quietly "$cmake" -S "$here/stranger" -B "$folder/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
  -DFIRST="$folder/p1.cpp" -DGENERATE="$source/examples/generate.cpp" \
  -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_CXX_FLAGS="$flags"
quietly "$cmake" --build "$folder/build"
result=$("$folder/build/fit")
[[ $result == '3.00 -1.00' ]] || { echo "the stranger's program printed: $result"; exit 1; }

# The last digits of a float are the machine's.
rounded() { sed -E 's/^([0-9]\.[0-9]{4})[0-9]*(e-?[0-9]+)$/\1\2/'; }
diff <(block 2 | rounded) <(OMP_NUM_THREADS=2 "$folder/build/p1" | rounded) ||
  { echo "README.md shows what is marked <, its first program printed what is marked >"; exit 1; }

# The example of language models, on the model that the repository carries.
said=$("$folder/build/generate" "$source/examples/tiny_model" 'The memory of a device')
[[ $said == '22 tokens, perplexity '* ]] || { echo "examples/generate.cpp printed: $said"; exit 1; }

# What is installed is whole: each header compiles with nothing but the installed ones.
(cd "$folder/prefix/include" && find stowage -name '*.h' | sed 's/.*/#include <&>/') >"$folder/all.cpp"
quietly "$cxx" -std=c++20 -fsyntax-only -I"$folder/prefix/include" "$folder/all.cpp"
[[ $("$folder/prefix/bin/stowage" config | head -n 1) == '[model]' ]]

# In a build of one's own: what is configured there finds its files (one source stands for all).
quietly "$cmake" -S "$here/stranger" -B "$folder/sub" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
  -DSTOWAGE_SOURCE="$source"
quietly "$cmake" --build "$folder/sub" --target stowage/CMakeFiles/stowage.dir/src/stowage/train/config.cpp.o
quietly "$cmake" --build "$folder/sub" --target CMakeFiles/fit.dir/fit.cpp.o
