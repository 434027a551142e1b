"""Writes a machine's measurements as one section of docs/benchmarks.md: one table, its rows grouped by subject.
Measures nothing; bench/tables.py does.

A measurement comes as the rows of a Markdown table of its own. Cells are copied, so that no number is rounded twice.
"""
import re
import textwrap

import goals

HEAD = ["| what | Stowage | peer or bound | ratio | goal | command |", "|---|---|---|---|---|---|"]
COMMANDS = {"compare", "step", "gemm", "attention", "rows", "profile"}  # that bench/tables.py runs
MISSED = "**no**"


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def body(table):
    """The rows of a Markdown table, without the two of its head."""
    return [cells(line) for line in table if line][2:]


def row(*columns):
    return "| " + " | ".join(columns) + " |"


def bold(ratio, missed):
    return f"**{ratio}**" if missed else ratio


def spread(values):
    """The least and the largest of numbers, as they are written."""
    least, most = min(values, key=float), max(values, key=float)
    return least if least == most else f"{least} to {most}"


def paired(rows, key, columns):
    """Joins rows of one `key`, in order: {key: [cell / cell, …]} of `columns`."""
    found = {}
    for r in rows:
        found.setdefault(key(r), []).append(r)
    return {k: [" / ".join(r[c] for r in same if r[c]) for c in columns] for k, same in found.items()}


def step_rows(verdicts, steps, widened):
    """The training step: rates, time to be ready, losses; bf16 beside f32 where `widened` has it."""
    rates = {(config, who): tokens for config, who, tokens, *_ in body(steps)}
    peers = list(dict.fromkeys(who for _, who in rates if who != "stowage"))
    names = "; ".join({"jax": "JAX", "torch": "PyTorch"}.get(who, who) for who in peers)
    yield row("**Training step**, tokens/s", "", names, "times as fast as the best peer", "at least", "compare")
    for config, ratio, goal, met, *_ in body(verdicts):
        theirs = "; ".join(rates[config, who] for who in peers)
        yield row(config, rates[config, "stowage"], theirs, bold(ratio, met == MISSED), goal, "compare")
    ready, apart = ([r[i] for r in body(verdicts)] for i in (5, 4))
    compiled = {who: spread([r[3] for r in body(steps) if r[1] == who]) for who in ("stowage", "jax")}
    yield row("seconds until a step can run", compiled["stowage"], f"JAX {compiled['jax']}",
              bold(spread(ready), min(map(float, ready)) < goals.READY), f"{goals.READY}", "compare")
    yield row("largest relative difference between our loss and a peer's", "", "",
              bold(spread(apart), max(map(float, apart)) > goals.APART), f"at most {goals.APART:g}", "compare")
    if widened:
        yield row("**bf16 beside f32**, ours alone, tokens/s", "bf16", "f32", "times as fast",
                  f"at least {goals.WIDENED}", "step")
        for config, f32, bf16, ratio, met in body(widened):
            yield row(config, bf16, f32, bold(ratio, met == MISSED), "", "step")


def memory_rows(steps, memory):
    """Peaks of the step, saving all and recomputing."""
    planned = paired([r for r in body(steps) if r[1] in ("stowage", "jax")], lambda r: (r[0].split()[0], r[1]), [4])
    process = paired([r for r in body(steps) if r[1] == "torch"], lambda r: r[0].split()[0], [5])
    dtypes = "f32 / bf16" if any(r[0].endswith("bf16") for r in body(steps)) else "f32"
    yield row(f"**Memory of the step**, MiB, {dtypes}", "plan = measured", "JAX's plan; PyTorch's process", "of JAX's plan, f32",
              "at most", "compare")
    for config, jax, *_, share, most, met, _, _, _ in body(memory):
        (ours,), (theirs,) = planned[config, "stowage"], planned[config, "jax"]
        yield row(config, ours, f"{theirs}; {process[config][0]}", bold(share, met == MISSED), most, "compare")
    yield row("**Memory if less is saved**, MiB, f32, one thread", "save_gate; save_named; recompute (more time than save_all)",
              "JAX's plan", f"of JAX's plan, in at most {100 * goals.MORE_TIME:.0f} % more time", "at most", "step, profile")
    for config, jax, _, *policies, _, _, _, share, most, met in body(memory):
        yield row(config, "; ".join(policies), jax, bold(share, met == MISSED), most, "step, profile")


def condensed(rows, shown=3):
    """A row of how many ratios there are and how all numbers spread, and the rows of the least ratios."""
    def ratios(r):
        return [float(n) for n in re.findall(r"[\d.]+", cells(r)[3])]
    every = [n for r in rows for n in ratios(r)]
    def spreads(column):
        values = [cells(r)[column].split(" / ") for r in rows]
        return "" if any(";" in v for v in values[0]) else " / ".join(map(spread, zip(*values)))
    yield row(f"all {len(every)} ratios: {sum(n >= 1 for n in every)} are 1 or more; the least follow", spreads(1), spreads(2),
              f"{min(every):.2f} to {max(every):.2f}", "", cells(rows[0])[5])
    yield from sorted(rows, key=lambda r: min(ratios(r)))[:max(shown, sum("**" in cells(r)[3] for r in rows))]


def product_rows(products, small):
    """The slowest products of usual sizes, and of those in `small`."""
    def ratios(text, goal):
        return " / ".join(bold(ratio, float(ratio) < goal) for ratio in text.split(" / "))
    dtypes = " / ".join(dict.fromkeys(r[1] for r in body(products)))
    yield row(f"**Products**, one thread, GFLOP/s, {dtypes}", "", "oneDNN", "of its rate", f"at least {goals.PRODUCT}", "gemm")
    rows = [row(shape.removeprefix("1 x "), ours, theirs, ratios(ratio, goals.PRODUCT), "", "gemm")
            for shape, (ours, theirs, ratio) in paired(body(products), lambda r: r[0], [2, 3, 4]).items()]
    yield from condensed(rows)
    if small:
        yield row("**Few rows or columns, batches**, f32, nn / nt", "", "oneDNN", "of its rate", "", "gemm")
        yield from condensed([row(shape, *columns, "", "gemm") for shape, columns in paired(
            body(small), lambda r: r[0].rsplit(" ", 1)[0], [1, 2, 3]).items()])


def attention_rows(attention):
    """Attention by its sizes."""
    yield row("**Attention**, one thread, ms, f32 forward / backward; bf16 forward / backward", "", "PyTorch", "times as fast",
              f"at least {goals.ATTENTION}", "attention")
    shapes = {}
    for shape, _, *numbers in body(attention):
        shapes.setdefault(shape, []).append(numbers)
    for shape, dtypes in shapes.items():
        ours, theirs = ("; ".join(f"{n[i]} / {n[i + 3]}" for n in dtypes) for i in (0, 1))
        ratio = "; ".join(" / ".join(bold(r, float(r) < goals.ATTENTION) for r in (n[2], n[5])) for n in dtypes)
        yield row(shape, ours, theirs, ratio, "", "attention")


def row_program_rows(rates, triad):
    """The slowest row programs, and the triad that goes past the caches."""
    yield row("**Row programs**, GB/s, one / two threads; in cache", "", "triad; loop of the same traffic", "of the triad",
              f"at least {goals.TRIAD}", "rows")
    rows = []
    for name, (ours, peer, ratio, met, loop, cached) in paired(body(rates), lambda r: r[0], [2, 3, 4, 5, 6, 7]).items():
        ratio = " / ".join(bold(r, m == MISSED) for r, m in zip(ratio.split(" / "), met.split(" / ")))
        rows.append(row(name, f"{ours}; {cached}", f"{peer}; {loop}", ratio, "none" if "-" in met else "", "rows"))
    yield from condensed(rows, 6)
    yield row("triad whose stores go past the caches", "", " / ".join(re.findall(r"moves ([\d.]+) .* and ([\d.]+) ", triad)[0]),
              "", "", "rows")


def profile_rows(profile):
    """Times of the step over those of its products at the best rate, and the four costliest ops of each."""
    yield row("**Time of the step**, one thread, ms, and its largest shares", "", "FLOP at the best rate of a product",
              "times that", "at most", "profile")
    text = "\n".join(profile)
    for part in re.split(r"\n(?=\w+: )", text)[1:]:
        config, ms, ratio, flop, rate = re.match(
            r"(\w+): (\d+) ms, ([\d.]+) times its (\d+) GFLOP at the (\d+) GFLOP/s", part).groups()
        ops = body([line for line in part.splitlines() if line.startswith("|")])[:4]
        shares = ", ".join(f"{op} {share} ({f'{flops} GFLOP/s' if flops != '-' else f'{bytes_} GB/s'})"
                           for op, _, share, flops, bytes_ in ops)
        goal = f"{goals.MEDIUM_TIME}" if config == "medium" else ""
        yield row(f"{config}: {shares}", ms, f"{flop} GFLOP, {rate} GFLOP/s",
                  bold(ratio, goal and float(ratio) > goals.MEDIUM_TIME), goal, "profile")
    for clock in re.findall(r"medium takes ([\d.]+) times", text):
        yield row("medium, every core, by the clock, alternating with the product", "", "",
                  bold(clock, float(clock) > goals.MEDIUM_TIME), f"{goals.MEDIUM_TIME}", "step, gemm")
    for clock in re.findall(r"it takes ([\d.]+) times", text):
        yield row("the same, of the best rate of vector units (`STOW_ISA=avx512`)", "", "", clock, "", "step, gemm")


def wrapped(line):
    """A paragraph or an item of a list, in lines of at most 120 columns."""
    item = re.match(r" *- ", line)
    return textwrap.fill(line, 120, subsequent_indent=" " * len(item[0]) if item else "", break_long_words=False,
                         break_on_hyphens=False)


def with_section(page, title, intro, rows, notes):
    """The page with section `title`, in the place of the one so called, or as the last: `intro`, a table of `rows`,
    the list `notes`. Of the old section, rows of other commands and the text from its first ### on stay."""
    sections = re.split(r"^(?=## )", page, flags=re.M)
    at = next((i for i, old in enumerate(sections) if old.startswith(f"## {title}\n")), len(sections))
    old = sections[at] if at < len(sections) else ""
    others = [line for line in old.splitlines() if line.startswith("| ") and line != HEAD[0]
              and not COMMANDS & set(cells(line)[-1].split(", "))]
    text = re.search(r"^### .*", old, flags=re.M | re.S)
    section = "\n".join([f"## {title}", "", wrapped(intro), "", *HEAD, *rows, *others, *([""] if notes else []),
                         *map(wrapped, notes),
                         *(["", text[0].rstrip()] if text else [])]) + "\n"
    sections[at:at + 1] = [section]
    return "\n".join(s.rstrip("\n") + "\n" for s in sections)
