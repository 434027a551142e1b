#include "stowage/train/plan_page_text.h"

namespace stow {

// Every text of the figures enters the page as a text node, never as markup.
const std::string_view kPlanPageHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Memory plan</title>
<style>
:root {
  color-scheme: light dark;
  --back: #ffffff; --panel: #f5f6f8; --text: #1c2330; --faint: #667085; --line: #d9dde5;
  --over: #c62f2f; --good: #1f7a46; --base: 46%; --spread: 22%;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171d; --panel: #1d2129; --text: #e6e9ef; --faint: #98a2b3; --line: #363c49;
    --over: #ff7b72; --good: #5fd08c; --base: 42%; --spread: 22%;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1180px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; }
h2 { font-size: 18px; margin: 36px 0 6px; }
h3 { font-size: 15px; margin: 22px 0 4px; }
p { margin: 4px 0; }
.faint { color: var(--faint); }
.over { color: var(--over); }
.good { color: var(--good); }
code, .mono { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 8px 14px; min-width: 150px; }
.card b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
.chart { position: relative; }
svg { display: block; width: 100%; height: auto; background: var(--panel); border-radius: 8px;
  border: 1px solid var(--line); }
svg text { fill: var(--faint); font: 12px system-ui, sans-serif; }
svg text.strong { fill: var(--text); font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0; font-size: 13px; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px; }
.tip { position: absolute; top: 8px; pointer-events: none; background: var(--back); z-index: 1;
  border: 1px solid var(--line); border-radius: 8px; padding: 8px 10px; font-size: 12px; width: 370px;
  box-shadow: 0 4px 16px rgb(0 0 0 / .25); display: none; }
.tip table td { padding: 0 6px 0 0; border: 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
.wide { overflow-x: auto; }
th { text-align: left; font-weight: 600; color: var(--faint); border-bottom: 1px solid var(--line); }
td, th { padding: 3px 12px 3px 0; vertical-align: top; }
td { border-bottom: 1px solid color-mix(in srgb, var(--line) 50%, transparent); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.total td { font-weight: 600; }
tr.chosen td { background: color-mix(in srgb, var(--good) 14%, transparent); }
tr[data-owner]:hover td { background: var(--panel); }
.bar { height: 9px; border-radius: 3px; background: #4c7ddb; min-width: 1px; }
.bar.o { background: var(--over); }
td.b { width: 180px; padding-top: 8px; }
path.layer { stroke: var(--panel); stroke-width: .4; }
.dim path.layer:not(.lit) { opacity: .2; }
</style>
</head>
<body>
<main id="page"><noscript>The figures of this page are drawn by its script, which is switched off
here.</noscript></main>
<script type="application/json" id="figures">)html";

const std::string_view kPlanPageTail = R"html(</script>
<script>
'use strict';
const F = JSON.parse(document.getElementById('figures').textContent);
const page = document.getElementById('page');
const HUES = {
  'parameters': [214, 62], 'optimizer state': [258, 48], 'frozen weights': [230, 30], 'batch and other inputs': [190, 14],
  'results': [186, 55], 'kept for backward': [32, 80], 'gradients and backward work': [352, 60],
  'forward and update work': [146, 42], 'scratch': [58, 58], 'beside the program': [300, 22]};

function el(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...inside.filter(x => x !== null));
  return made;
}
function svg(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < 5) { value /= 1024; unit++; }
  return unit === 0 ? bytes + ' B' : value.toFixed(2) + ' ' + units[unit];
}
const exact = bytes => bytes.toLocaleString('en-US') + ' bytes';
const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '';
const kindName = kind => kind === 'device' ? 'device' : kind === 'pinned_host' ? 'host (pinned_host)' : kind;
function cell(text, style, title) {
  const made = el('td', style ? {class: style} : {}, text);
  if (title) made.title = title;
  return made;
}
const sized = bytes => cell(size(bytes), 'n', exact(bytes));
function table(heads, rows) {
  const head = el('tr', {}, ...heads.map(h => el('th', h.startsWith('#') ? {class: 'n'} : {}, h.replace('#', ''))));
  return el('div', {class: 'wide'}, el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)));
}
function series(runs) {
  const all = [];
  for (let i = 0; i < runs.length; i += 2)
    for (let k = 0; k < runs[i + 1]; ++k) all.push(runs[i]);
  return all;
}
function swatch(color) {
  const made = el('span', {class: 'swatch'});
  made.style.background = color;
  return made;
}

// --- head ---
const budget = F.budget_bytes.device;
page.append(el('h1', {}, F.refused ? 'Memory plan: refused, over budget' : 'Memory plan'),
            el('p', {}, F.model));
if (F.mesh) page.append(el('p', {}, F.mesh));
const cards = el('div', {class: 'cards'});
for (const kind of ['device', 'pinned_host', 'disk']) {
  const needed = F.needed_bytes[kind], allowed = F.budget_bytes[kind];
  if (!needed && kind !== 'device') continue;
  if (kind === 'pinned_host' && F.host_counts_as_device && allowed === null) continue;
  const over = allowed !== null && needed > allowed;
  const card = el('div', {class: 'card', title: exact(needed)}, kindName(kind), el('b', {}, size(needed)),
    el('span', {class: allowed === null ? 'faint' : over ? 'over' : 'good'},
       allowed === null ? 'no budget given'
         : (over ? size(needed - allowed) + ' more than ' : 'of ') + size(allowed)));
  cards.append(card);
}
page.append(cards);
const P = F.programs.find(p => p.name === F.peak_phase) || F.programs[0];
page.append(el('p', {}, F.refused ? 'Nothing fits. Shown is the plan that lacks least: ' : 'Placement: ',
                 el('b', {}, F.placement)));
if (F.refused) page.append(el('p', {class: 'over'}, F.report.refused));
else {
  const chosen = F.candidates.find(c => c.chosen);
  if (chosen) page.append(el('p', {class: 'faint'}, chosen.verdict + '.'));
}
page.append(el('p', {class: 'faint'}, 'Peak of the run on the device: in ' + F.peak_phase + ', at instant ' +
  P.peak_instant + ' of ' + P.n_instants + ': ' + P.peak_at));
if (F.host_counts_as_device)
  page.append(el('p', {class: 'faint'},
    'The host\'s memory is the device\'s here: the budget of the device bounds both together.'));

// --- meshes ---
const seconds = s => s === null ? '-' : s >= 1 ? s.toPrecision(3) + ' s'
  : s >= 1e-3 ? (1e3 * s).toPrecision(3) + ' ms' : (1e6 * s).toPrecision(3) + ' us';
const count = n => n === null ? '-' : Math.round(n).toLocaleString('en-US');
if (F.sweep) {
  const fastest = Math.max(1, ...F.sweep.map(r => r.tokens_per_s || 0));
  const bar = el('div', {class: 'bar'});
  const rate = r => {
    const made = bar.cloneNode();
    made.style.width = (100 * (r.tokens_per_s || 0) / fastest) + '%';
    return el('td', {class: 'b'}, made);
  };
  const possible = F.sweep.filter(r => r.impossible === null), others = F.sweep.filter(r => r.impossible !== null);
  page.append(el('h2', {}, 'Meshes'),
    el('p', {class: 'faint'}, 'Each planned and simulated. The best by tokens a second within the budget is marked, and is the plan of this page.'),
    table(['mesh', '#batch', 'placement', '#peak', '#step', '#exposed', '#tokens/s', '', '#largest batch', 'bound by'],
      possible.map(r => el('tr', r.best ? {class: 'chosen'} : {}, cell(r.name, 'mono'), cell(count(r.batch), 'n'),
        cell(r.placement, ''), sized(r.peak_bytes), cell(seconds(r.step_s), 'n'), cell(seconds(r.exposed_s), 'n'),
        cell(count(r.tokens_per_s), 'n'), rate(r), cell(count(r.largest_batch), 'n'),
        cell(r.bound_by === null ? '-' : r.bound_by, r.fits ? '' : 'over')))),
    F.sweep_left_out > 0 ? el('p', {class: 'faint'}, 'and ' + F.sweep_left_out + ' more') : '');
  if (others.length)
    page.append(el('h3', {}, 'Not possible'), table(['mesh', 'why'],
      others.map(r => el('tr', {}, cell(r.name, 'mono'), cell(r.impossible, 'faint')))));
}
if (F.report.whole && F.report.whole.length)
  page.append(el('h2', {}, 'Whole on every device'),
    el('p', {class: 'faint'}, 'Values that the mesh could cut over data, and the run\'s peak if it did; each planned.'),
    table(['value', 'type', '#size', '#peak', '#if cut'], F.report.whole.map(v => el('tr', {}, cell(v.name, 'mono'),
      cell(v.type, 'mono'), sized(v.bytes), sized(v.peak_bytes),
      v.peak_if_cut_bytes === null ? cell('-', 'n') : sized(v.peak_if_cut_bytes)))));

// --- charts ---
function colors(owners) {
  const count = {}, at = {};
  for (const o of owners) count[o.use] = (count[o.use] || 0) + 1;
  return owners.map(o => {
    const [hue, saturation] = HUES[o.use] || [0, 0];
    const i = at[o.use] = (at[o.use] ?? -1) + 1;
    const along = count[o.use] > 1 ? i / (count[o.use] - 1) : 0;
    return `hsl(${hue + 10 * along} ${saturation}% calc(var(--base) + ${along.toFixed(3)} * var(--spread)))`;
  });
}
function ownerName(o) {
  if (o.what === 'argument') return o.source;
  return o.source ? o.what + ' of ' + o.source : o.what;
}
function draw(chart, program) {
  const W = 1000, H = 330, left = 74, right = 14, top = 26, bottom = 30;
  const n = chart.instants.length, owners = chart.owners, color = colors(owners);
  const bytes = owners.map(o => series(o.bytes)), sums = new Array(n).fill(0);
  for (const s of bytes) for (let c = 0; c < n; ++c) sums[c] += s[c];
  const allowed = F.budget_bytes[chart.kind];
  const budgetFits = allowed !== null && allowed > 0 && allowed <= 1.6 * chart.total_bytes;
  const most = 1.06 * Math.max(chart.total_bytes, budgetFits ? allowed : 0, 1);
  const x = c => left + (W - left - right) * c / n;
  const y = b => top + (H - top - bottom) * (1 - b / most);
  const picture = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img',
    'aria-label': 'Bytes by owner over the timeline'});
  let step = 1;  // between lines of the scale: a power of two, times one of these
  while (most / step > 8) step *= 2;
  for (let b = 0; b <= most; b += step) {
    picture.append(svg('line', {x1: left, x2: W - right, y1: y(b), y2: y(b), stroke: 'var(--line)'}));
    picture.append(svg('text', {x: left - 6, y: y(b) + 4, 'text-anchor': 'end'}, size(b).replace('.00', '')));
  }
  const base = new Array(n).fill(0);
  owners.forEach((o, i) => {
    let up = '', down = '';
    for (let c = 0; c < n; ++c) {
      const low = y(base[c]).toFixed(1), high = y(base[c] + bytes[i][c]).toFixed(1);
      const from = x(c).toFixed(1), to = x(c + 1).toFixed(1);
      up += `${c ? 'L' : 'M'}${from} ${high}L${to} ${high}`;
      down = `L${to} ${low}L${from} ${low}` + down;
      base[c] += bytes[i][c];
    }
    picture.append(svg('path', {class: 'layer', 'data-owner': i, d: up + down + 'Z',
                                style: `fill: ${color[i]}`}));
  });
  const rule = (b, text, stroke, side) => {
    picture.append(svg('line', {x1: left, x2: W - right, y1: y(b), y2: y(b), stroke,
                                'stroke-width': 1.5, 'stroke-dasharray': '6 4'}));
    picture.append(svg('text', {class: 'strong', x: side === 'start' ? left + 6 : W - right - 6,
                                y: y(b) - 5, 'text-anchor': side}, text));
  };
  rule(chart.total_bytes, 'planned ' + size(chart.total_bytes), 'var(--text)', 'start');
  if (budgetFits) rule(allowed, 'budget ' + size(allowed), 'var(--over)', 'end');
  else if (allowed) picture.append(svg('text', {x: W - right - 6, y: 16, 'text-anchor': 'end'},
    'the budget of ' + size(allowed) + ' lies ' + (allowed > chart.total_bytes ? 'above' : 'far below')));
  const px = (x(chart.peak_column) + x(chart.peak_column + 1)) / 2, py = y(sums[chart.peak_column]);
  picture.append(svg('line', {x1: px, x2: px, y1: py, y2: H - bottom, stroke: 'var(--text)', 'stroke-dasharray': '2 3'}));
  picture.append(svg('circle', {cx: px, cy: py, r: 4, fill: 'var(--text)', stroke: 'var(--back)'}));
  const ends = [[x(0), 'start', 'instant ' + chart.instants[0]],
                [x(n), 'end', 'instant ' + chart.instants[n - 1]],
                [px, px < 250 ? 'start' : px > W - 250 ? 'end' : 'middle',
                 'peak at instant ' + chart.instants[chart.peak_column]]];
  ends.forEach(([at, anchor, text], i) => {
    if (i < 2 && Math.abs(at - px) < 190) return;
    picture.append(svg('text', {x: at, y: H - 10, 'text-anchor': anchor, class: i === 2 ? 'strong' : ''}, text));
  });
  const cursor = svg('line', {y1: top, y2: H - bottom, stroke: 'var(--text)', visibility: 'hidden'});
  picture.append(cursor);

  const tip = el('div', {class: 'tip'});
  const box = el('div', {class: 'chart'}, picture, tip);
  const hover = event => {
    const place = picture.getBoundingClientRect();
    const at = (event.clientX - place.left) / place.width * W;
    const c = Math.floor((at - left) / (W - left - right) * n);
    if (c < 0 || c >= n) return leave();
    cursor.setAttribute('x1', (x(c) + x(c + 1)) / 2);
    cursor.setAttribute('x2', (x(c) + x(c + 1)) / 2);
    cursor.setAttribute('visibility', 'visible');
    const order = owners.map((o, i) => i).filter(i => bytes[i][c] > 0).sort((a, b) => bytes[b][c] - bytes[a][c]);
    const rows = order.slice(0, 9).map(i => el('tr', {}, el('td', {}, swatch(color[i]), ownerName(owners[i])),
      sized(bytes[i][c]), cell(share(bytes[i][c], sums[c]), 'n')));
    if (order.length > 9) rows.push(el('tr', {}, cell('and ' + (order.length - 9) + ' smaller', 'faint'),
      sized(order.slice(9).reduce((sum, i) => sum + bytes[i][c], 0)), cell('', '')));
    tip.replaceChildren(el('b', {}, `instant ${chart.instants[c]}: ${size(sums[c])}`),
      el('div', {class: 'faint'}, exact(sums[c])), el('div', {class: 'mono'}, chart.places[chart.running[c]]),
      el('table', {}, el('tbody', {}, ...rows)));
    tip.style.display = 'block';
    const beside = (event.clientX - place.left) < place.width / 2;
    tip.style.left = beside ? (event.clientX - place.left + 16) + 'px' : '';
    tip.style.right = beside ? '' : (place.right - event.clientX + 16) + 'px';
  };
  const leave = () => { tip.style.display = 'none'; cursor.setAttribute('visibility', 'hidden'); };
  picture.addEventListener('pointermove', hover);
  picture.addEventListener('pointerleave', leave);

  const uses = [...new Set(owners.map(o => o.use))];
  const legend = el('div', {class: 'legend'}, ...uses.map(use =>
    el('span', {}, swatch(color[owners.findIndex(o => o.use === use)]), use)));
  const byBytes = owners.map((o, i) => i).filter(i => owners[i].peak_bytes > 0)
    .sort((a, b) => owners[b].peak_bytes - owners[a].peak_bytes);
  const rows = byBytes.map(i => {
    const row = el('tr', {'data-owner': i}, el('td', {}, swatch(color[i]), owners[i].use),
      cell(owners[i].what, 'mono'), cell(owners[i].what === 'argument' ? '' : owners[i].source, 'mono'),
      sized(owners[i].peak_bytes), cell(owners[i].peak_bytes.toLocaleString('en-US'), 'n faint'),
      cell(share(owners[i].peak_bytes, chart.total_bytes), 'n'));
    row.addEventListener('pointerenter', () => light(i));
    row.addEventListener('pointerleave', () => light(-1));
    return row;
  });
  const light = lit => {
    picture.classList.toggle('dim', lit >= 0);
    for (const layer of picture.querySelectorAll('path.layer'))
      layer.classList.toggle('lit', Number(layer.dataset.owner) === lit);
  };
  if (chart.gap_bytes > 0)
    rows.push(el('tr', {}, cell('', ''), cell('gaps that the packing leaves', ''), cell('', ''),
      sized(chart.gap_bytes), cell(chart.gap_bytes.toLocaleString('en-US'), 'n faint'),
      cell(share(chart.gap_bytes, chart.total_bytes), 'n')));
  rows.push(el('tr', {class: 'total'}, cell('planned', ''), cell('', ''), cell('', ''), sized(chart.total_bytes),
    cell(chart.total_bytes.toLocaleString('en-US'), 'n'), cell('', '')));
  const notes = [];
  if (n < chart.n_instants + 1)
    notes.push(`${chart.n_instants + 1} instants are drawn as ${n} columns; each shows its fullest instant.`);
  if (chart.n_owners > owners.length)
    notes.push(`Of ${chart.n_owners} owners the largest are drawn by themselves.`);
  page.append(el('h3', {}, program.name + ', ' + kindName(chart.kind)), box, legend);
  if (notes.length) page.append(el('p', {class: 'faint'}, notes.join(' ')));
  page.append(el('h3', {}, 'Owners at this peak'),
    table(['serves', 'what', 'source', '#size', '#bytes', '#share'], rows));
}
page.append(el('h2', {}, 'Bytes over the step'),
  el('p', {class: 'faint'}, 'An instant is one kernel or one move. Point at a chart for its values, at a row of a table for its layer.'));
for (const program of F.programs) for (const chart of program.kinds) draw(chart, program);

page.append(el('h2', {}, 'Programs of the run'), table(['program', '#device', '#host (pinned_host)', '#disk'],
  F.phases.map(p => el('tr', p.name === F.peak_phase ? {class: 'total'} : {}, cell(p.name, ''),
    ...['device', 'pinned_host', 'disk'].map(kind => sized(p.peak_bytes[kind]))))));

// --- what else there is ---
function weighed(bytes, most, over) {
  const bar = el('div', {class: over ? 'bar o' : 'bar'});
  bar.style.width = (100 * bytes / most) + '%';
  return el('td', {class: 'b'}, bar);
}
const leftOut = n => n > 0 ? el('p', {class: 'faint'}, 'and ' + n + ' more') : '';
const mostOf = list => Math.max(1, ...list);
if (F.enough.length)
  page.append(el('h2', {}, 'What would be enough'), el('p', {class: 'faint'}, 'Each planned.'),
    table(['settings', 'placement'], F.enough.map(e => el('tr', {}, cell(e.settings, 'mono'), cell(e.placement, '')))));
if (F.remedies.length) {
  const most = mostOf(F.remedies.map(r => r.peak_bytes).concat(budget || 0, F.needed_bytes.device));
  page.append(el('h2', {}, 'What each change would need'),
    el('p', {class: 'faint'}, 'Bytes that count against the device\'s budget, each planned with its best placement. This plan needs ' +
      size(F.needed_bytes.device) + '.'),
    table(['change', '#needs', '', budget === null ? '' : 'verdict', 'numbers'], F.remedies.map(r => el('tr', {}, cell(r.change, 'mono'), sized(r.peak_bytes),
      weighed(r.peak_bytes, most, r.verdict !== 'fits'),
      cell(budget === null ? '' : r.verdict, r.verdict === 'fits' ? 'good' : 'over'),
      cell(r.changes_numbers ? 'change' : 'stay', 'faint')))), leftOut(F.remedies_left_out));
}
const most = mostOf(F.candidates.map(c => c.bytes).concat(budget || 0));
page.append(el('h2', {}, 'Placements that were planned'),
  el('p', {class: 'faint'}, 'In the order planned; those that fit come last, the slowest first.'),
  table(['placement', '#device', '', '#host (pinned_host)', '#disk', 'verdict'], F.candidates.map(c =>
    el('tr', c.chosen ? {class: 'chosen'} : {}, cell(c.placement, ''), sized(c.bytes),
      weighed(c.bytes, most, budget !== null && c.bytes > budget), sized(c.by_kind.pinned_host),
      sized(c.by_kind.disk), cell(c.verdict, c.chosen ? 'good' : 'faint')))), leftOut(F.candidates_left_out));
const details = el('details', {}, el('summary', {}, 'The configuration'),
  table(['key', 'value'], F.settings.map(([key, value]) => el('tr', {}, cell(key, 'mono'), cell(value, 'mono')))));
page.append(el('h2', {}, 'Settings'), details);
</script>
</body>
</html>
)html";

}  // namespace stow
