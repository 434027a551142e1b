#!/bin/sh
# Enforces the table of folders in ARCHITECTURE.md on the includes of src/, and that runtime/cpu alone
# includes its own headers. Not a compiler: it reads the #include lines as they stand, in every header
# and source.
# Usage: layers.sh ROOT. Prints one line a fault; status 1 when there is any.
set -eu
cd "$1"
find src -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cc' -o -name '*.cu' -o -name '*.inc' \) |
  LC_ALL=C sort |
  awk '
    function fault(text) { print text; faults++ }
    # The table: | `folder` | what | folders it may include |
    function read_table(   line, cells, n, folder, allowed, i, names) {
      while ((getline line < "ARCHITECTURE.md") > 0) {
        if (line ~ /^\|.*may include *\|$/) { inside = 1; continue }
        if (line !~ /^\|/) { inside = 0; continue }
        if (!inside || line ~ /^\|-/) continue
        n = split(line, cells, "|")
        folder = cells[2]; allowed = cells[n - 1]
        gsub(/[ `]/, "", folder)
        if (folder in rank) fault("ARCHITECTURE.md: `" folder "` has two rows")
        rank[folder] = ++rows
        may[folder, folder] = may[folder, "base"] = 1
        sub(/^ */, "", allowed); sub(/ *$/, "", allowed)
        if (allowed == "–" || allowed == "-") continue
        n = split(allowed, names, " ")
        for (i = 1; i <= n; i++) {
          if (!(names[i] in rank))
            fault("ARCHITECTURE.md: `" folder "` may include `" names[i] \
                  "`, which has no row above it")
          may[folder, names[i]] = 1
        }
      }
      if (!rows) fault("ARCHITECTURE.md: no table with the column \"may include\"")
    }
    function check(file,   line, number, parts, folder, path, to) {
      split(file, parts, "/")
      folder = parts[3]
      if (parts[2] != "stowage" || file !~ /^src\/stowage\/[^\/]+\/.+/) {
        # The umbrella header stands beside the folders and may include them all.
        if (file != "src/stowage/stowage.h") fault(file ": not in a folder of src/stowage")
        return
      }
      if (!(folder in rank)) { fault(file ": `" folder "` has no row in ARCHITECTURE.md"); return }
      while ((getline line < file) > 0) {
        number++
        if (line !~ /^[ \t]*#[ \t]*include/) continue
        if (line !~ /["<]/) continue                    # include of a macro
        path = line
        sub(/^[^"<]*/, "", path)
        if (path ~ /^</) {
          if (path ~ /^<stowage\//) fault(file ":" number ": write \"stowage/…\" with quotes")
          continue
        }
        sub(/^"/, "", path); sub(/".*/, "", path)
        # The umbrella header is the users\047 side: whoever may include that may include it.
        if (path == "stowage/stowage.h") path = "stowage/api/umbrella"
        if (path !~ /^stowage\/[^\/]+\/./) {
          fault(file ":" number ": \"" path "\" is not rooted at src/ (\"stowage/…\")")
          continue
        }
        split(path, parts, "/")
        to = parts[2]
        if (!((folder, to) in may))
          fault(file ":" number ": `" folder "` may not include `" to "` (" path ")")
        if (path ~ /^stowage\/runtime\/cpu\// && file !~ /^src\/stowage\/runtime\/cpu\//)
          fault(file ":" number ": only runtime/cpu may include runtime/cpu (" path ")")
      }
      close(file)
      files++
    }
    BEGIN { read_table() }
    { check($0) }
    END {
      if (!files) fault("no sources under src/stowage")
      printf "%d files in %d folders, %d faults\n", files, rows, faults
      exit faults > 0
    }'
