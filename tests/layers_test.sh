#!/bin/sh
# Checks that layers.sh finds each kind of fault in a small tree, and none in a good one.
# shellcheck disable=SC2016
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
bad=0

reset() {
  rm -rf "$tree/src" && mkdir -p "$tree/src/stowage/base" "$tree/src/stowage/core/deep" \
    "$tree/src/stowage/ir" &&
    cat >"$tree/ARCHITECTURE.md" <<'TABLE'
| another | table |
|---|---|
| `x` | y |

| folder | what | may include |
|---|---|---|
| `base` | errors | – |
| `core` | types | – |
| `ir` | graph | core |
TABLE
  echo '#include <vector>' >"$tree/src/stowage/base/a.h"
  echo '#include "stowage/base/a.h"' >"$tree/src/stowage/core/deep/b.h"
  printf '#include "stowage/core/deep/b.h"\n# include "stowage/base/a.h"\n' >"$tree/src/stowage/ir/c.cpp"
}

expect() {  # STATUS TEXT
  out=$(sh "$here/layers.sh" "$tree")
  status=$?
  case $out in *"$2"*) ;; *) status="$status, without '$2'" ;; esac
  if [ "$status" != "$1" ]; then
    printf 'expected status %s and "%s", got %s:\n%s\n' "$1" "$2" "$status" "$out"
    bad=1
  fi
}

reset; expect 0 '3 files in 3 folders, 0 faults'
reset; echo '#include "stowage/ir/c.h"' >>"$tree/src/stowage/core/deep/b.h"
expect 1 'src/stowage/core/deep/b.h:2: `core` may not include `ir`'
reset; echo '#include "stowage/core/x.h"' >"$tree/src/stowage/base/a.h"
expect 1 '`base` may not include `core`'
reset; echo '#include "c.h"' >>"$tree/src/stowage/ir/c.cpp"
expect 1 'src/stowage/ir/c.cpp:3: "c.h" is not rooted at src/'
reset; echo '#include <stowage/core/b.h>' >>"$tree/src/stowage/ir/c.cpp"
expect 1 'with quotes'
reset; echo '#include "stowage/stowage.h"' >>"$tree/src/stowage/ir/c.cpp"
expect 1 'src/stowage/ir/c.cpp:3: `ir` may not include `api`'
reset; mkdir -p "$tree/src/stowage/runtime/cpu" "$tree/src/stowage/runtime/comm"
echo '| `runtime` | devices | core |' >>"$tree/ARCHITECTURE.md"
echo '#include "stowage/runtime/cpu/e.h"' >"$tree/src/stowage/runtime/cpu/f.h"
expect 0 '0 faults'
echo '#include "stowage/runtime/cpu/e.h"' >"$tree/src/stowage/runtime/comm/g.h"
expect 1 'src/stowage/runtime/comm/g.h:1: only runtime/cpu may include runtime/cpu'
reset; mkdir "$tree/src/stowage/new"; : >"$tree/src/stowage/new/d.cpp"
expect 1 '`new` has no row'
reset; : >"$tree/src/stray.cpp"
expect 1 'src/stray.cpp: not in a folder'
reset; sed 's/| – |$/| ir |/' "$tree/ARCHITECTURE.md" >"$tree/t" && mv "$tree/t" "$tree/ARCHITECTURE.md"
expect 1 '`core` may include `ir`, which has no row above it'
reset; : >"$tree/ARCHITECTURE.md"
expect 1 'no table'
reset; rm -r "$tree/src/stowage"
expect 1 'no sources'
exit $bad
