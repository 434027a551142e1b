#!/usr/bin/env bash
# Checks that pages.sh finds each kind of fault in a small page, and none in a good one.
# shellcheck disable=SC2016
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
bad=0

cat >"$folder/program" <<'PROGRAM'
#!/usr/bin/env bash
case "$DIM $*" in
  ' train small.toml --memory 2MiB --set optimizer.total_steps=50 --set train.steps=1')
    grep -q 'layers = 1' small.toml || exit 1
    printf '%s\n' 'budget: 2.00 MiB' '  some     9 B' '  all      8 B' 'planned in 7 ms' \
      'step 1/1  loss 5.5  33 tok/s  1s left' 'validation loss 5.4' 'sample:' '  abc' \
      'peak: predicted 8 bytes' 'step: measured 3 ms, the median of 1' 'saved to out/step-000001.json' ;;
  ' train --set optimizer.total_steps=3 --set train.steps=1 --memory 4.50GiB')
    printf '%s\n' 'budget: 4.50 GiB' 'step 1/1  loss 5.5' ;;
  '64 config') echo 'stowage: error: DIM=64' >&2 && exit 1 ;;
  ' plan --memory 1 --set a=b') printf '%s\n' 'stowage: over budget: by much' '  least' >&2 && exit 2 ;;
  ' plan small.toml') ;;
  *) echo "asked for: $*" && exit 3 ;;
esac
PROGRAM
chmod +x "$folder/program"

page='
    ./stowage build

```toml
layers = 1
```

    ./stowage train small.toml --memory 2MiB

```
budget: 2.00 MiB
…
  all      8 B
planned in 5 ms
step 1/50  loss 5.5  44 tok/s  5m1s left
  …
step 50/50  loss 3.1
validation loss 3.1
sample:
  def
peak: predicted 8 bytes
step: measured 2 ms, the median of 50
saved to out/step-000050.json
```

    ./stowage train

```
budget: 4.50 GiB
step 1/3  loss 5.5
```

    DIM=64 ./stowage config

```
stowage: error: DIM=64
```

Words.

    ./stowage plan --memory 1 \
      --set a=b

```
stowage: over budget: by much
  least
```

    ./stowage train small.toml
Words.'

# Runs pages.sh on the page with a text in place of another.
expect() {  # STATUS TEXT FROM TO
  local out status
  [[ $page == *"$3"* ]] || { printf 'no "%s" in the page\n' "$3"; bad=1; }
  printf '%s' "${page/"$3"/"$4"}" >"$folder/page.md"
  out=$("$here/pages.sh" "$folder/program" "$folder" "$folder/page.md" 2>&1)
  status=$?
  [[ $out == *"$2"* ]] || status="$status, without '$2'"
  [[ $status == "$1" ]] ||
    { printf '%s -> %s: expected status %s and "%s", got %s:\n%s\n' "$3" "$4" "$1" "$2" "$status" "$out"; bad=1; }
}

expect 0 'page.md: 5 commands run, 0 faults' '' ''
expect 1 'page.md:8: ./stowage train small.toml --memory 2MiB' 'all      8 B' 'all      7 B'
expect 1 'shown:    budget: 3.00 MiB' 'budget: 2.00' 'budget: 3.00'
expect 1 'printed:    some     9 B' $'…\n  all' '  all'
expect 1 'shown:    peak: predicted 9 bytes' 'predicted 8' 'predicted 9'
expect 1 'shown:    step 1/' 'step 1/50  loss 5.5' 'step 1/50  loss 5.4'
expect 1 'printed:  nothing more' 'step 1/3  loss 5.5' $'step 1/3  loss 5.5\nmore'
expect 1 'printed as well:    least' $'\n  least' ''
expect 1 'ended with status 3: asked for: train --set optimizer.total_steps=3' 'budget: 4.50' 'budget: 4.60'
expect 1 'shown:    stowage: error: DIM=65' 'error: DIM=64' 'error: DIM=65'
expect 1 'ended with status 1: stowage: error: DIM=64' 'stowage: error: DIM=64' 'DIM=64'
expect 1 'ended with status 2' 'stowage: over budget: by' 'over budget: by'
expect 1 'ended with status 3: asked for: plan other.toml' 'train small.toml
Words' 'train other.toml
Words'
page='Nothing.' expect 1 '0 commands run' '' ''
exit $bad
