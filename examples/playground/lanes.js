// Draws who ran when: one lane a node, the last half minute, now at the right.

const WINDOW = 30_000, LANE = 46, GAP = 8, LEFT = 26, AXIS = 18;
const KINDS = ['answer', 'stream'];
const calm = matchMedia('(prefers-reduced-motion: reduce)');

const make = (name, attributes, text) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

function pattern(id, size, ...lines) {
  const all = make('pattern', { id, width: size, height: size, patternUnits: 'userSpaceOnUse' });
  all.append(...lines);
  return all;
}

const patterns = () => [
  pattern('hatch', 8, make('path', { d: 'M-2 10 L10 -2 M-2 2 L2 -2 M6 10 L10 6', class: 'hatch' })),
  pattern('dots', 6, make('circle', { cx: 3, cy: 3, r: 1, class: 'dot' })),
  pattern('cross', 8, make('path', { d: 'M0 0 L8 8 M0 8 L8 0', class: 'cross' })),
];

const WHOLE = { frozen: ['hatch', 'frozen'], cut: ['dots', 'cut off'], dead: ['cross', 'killed'] };

export function drawLanes(host, { now_ms, nodes, spans }) {
  // Where motion is not wanted, a step a second.
  const now = calm.matches ? Math.ceil(now_ms / 1000) * 1000 : now_ms;
  const width = host.clientWidth, from = now - WINDOW;
  if (width === 0) return;
  const x = (at) => LEFT + ((Math.max(at, from) - from) / WINDOW) * (width - LEFT - 2);
  const bottom = nodes.length * (LANE + GAP);
  const svg = make('svg', { viewBox: `0 0 ${width} ${bottom + AXIS}`, height: bottom + AXIS });
  const defs = make('defs', {});
  defs.append(...patterns());
  svg.append(defs);

  const every = width < 420 ? 10 : 5;
  for (let ago = 0; ago <= 30; ago += every) {
    const at = x(now - ago * 1000);
    svg.append(make('line', { x1: at, x2: at, y1: 0, y2: bottom - GAP / 2, class: 'grid' }));
    const text = ago === 0 ? 'now' : `−${ago} s`;
    const anchor = ago === 0 ? 'end' : ago === 30 ? 'start' : 'middle';
    svg.append(make('text', { x: at, y: bottom + 11, 'text-anchor': anchor }, text));
  }
  const seen = spans.filter((span) => (span.to ?? now) > from);
  const kinds = KINDS.filter((kind) => seen.some((span) => span.kind === kind));
  // Words come last, on top of all that is drawn.
  const words = [];
  nodes.forEach((node, at) => {
    const top = at * (LANE + GAP), here = seen.filter((span) => span.node === at);
    svg.append(make('text', { x: 2, y: top + LANE / 2 + 5, class: 'name' }, node.name));
    svg.append(make('line', { x1: LEFT, x2: width, y1: top + LANE + GAP / 2, y2: top + LANE + GAP / 2, class: 'grid' }));
    const row = LANE / Math.max(kinds.length, 1);
    for (const span of here.filter((span) => !WHOLE[span.what])) {
      drawSpan(svg, words, span, top + row * kinds.indexOf(span.kind), row, x, now, kinds.length > 1);
    }
    // Over its runs: what is beneath is only what was last heard.
    for (const span of here.filter((span) => WHOLE[span.what])) drawWhole(svg, words, span, top, x, now);
  });
  svg.append(...words);
  host.replaceChildren(svg);
}

function drawWhole(svg, words, { what, from, to }, top, x, now) {
  const left = x(from), right = x(to ?? now), width = Math.max(right - left, 2);
  const [fill, text] = WHOLE[what], long = text.length * 6.4 + 8;
  const box = { x: left, y: top, width, height: LANE, rx: 4 };
  if (what === 'frozen') svg.append(make('rect', { ...box, class: 'frozen' }));
  svg.append(make('rect', { ...box, fill: `url(#${fill})`, opacity: 0.6 }));
  if (width < long + 6) return;
  words.push(make('rect', { x: right - long - 3, y: top + LANE / 2 - 8, width: long, height: 16, rx: 3, class: 'label' }));
  words.push(make('text', { x: right - long + 1, y: top + LANE / 2 + 4, class: `${what}-text` }, text));
}

function drawSpan(svg, words, span, top, row, x, now, both) {
  const left = x(span.from), right = x(span.to ?? now), width = Math.max(right - left, 2);
  const middle = top + row / 2;
  if (span.what === 'wait') {
    svg.append(make('rect', { x: left, y: middle - 1.5, width, height: 3, rx: 1.5, class: 'wait' }));
    return;
  }
  const high = Math.min(row - 4, 22);
  svg.append(make('rect', { x: left, y: middle - high / 2, width, height: high, rx: 4, class: span.what }));
  const names = span.token ? [`${both ? `${span.kind}, ` : ''}token ${span.token}`, `${span.token}`] : ['no lease'];
  const word = names.find((word) => word.length * 6.2 + 12 < width);
  if (word) words.push(make('text', { x: left + 6, y: middle + 4, class: `${span.what}-text` }, word));
  if (span.to === null || span.to < now - WINDOW) return;
  const end = span.whole
    ? make('path', { d: `M${right + 3} ${middle} l4 5 l6 -10`, class: 'ended' })
    : make('path', { d: `M${right + 4} ${middle - 5} l9 10 m0 -10 l-9 10`, class: 'broken' });
  svg.append(end);
}
