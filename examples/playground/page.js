// Shows what the playground says, and says to it what is pressed. What is shown comes from
// the nodes, the callers and Redis: nothing here reckons what ought to be.

import { drawLanes } from '/lanes.js';

const byId = (id) => document.getElementById(id);
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

let setting = null;

// ---- saying

async function tell(path) {
  write(byId('refused'), '');
  try {
    const answer = await fetch(path, { method: 'POST' });
    if (!answer.ok) write(byId('refused'), `Not done: ${await answer.text()}.`);
  } catch {
    write(byId('refused'), 'Not done: the playground does not answer.');
  }
}

byId('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ kind: event.submitter?.value ?? 'answer', callers: byId('callers').value });
  tell(`/burst?${query}`);
});
byId('flush').addEventListener('click', () => tell('/scripts/flush'));

// ---- nodes

const NAMES = { freeze: 'Freeze', thaw: 'Thaw', cut: 'Cut off', heal: 'Heal', kill: 'Kill', start: 'Start' };
const cards = [];

function card(at, name) {
  if (cards[at]) return cards[at];
  const made = byId('node').content.firstElementChild.cloneNode(true);
  const heading = made.querySelector('h2');
  heading.id = `node-${name}`;
  heading.textContent = `Node ${name}`;
  made.setAttribute('aria-labelledby', heading.id);
  made.querySelector('.deeds').setAttribute('aria-label', `What to do with node ${name}`);
  for (const button of made.querySelectorAll('.deeds button')) {
    button.addEventListener('click', () => {
      if (button.getAttribute('aria-disabled') !== 'true') tell(`/nodes/${name}/${button.dataset.deed}`);
    });
  }
  byId('nodes').append(made);
  return (cards[at] = made);
}

function token(known) {
  if (!known) return 'no token';
  const mark = document.createElement('abbr');
  mark.title = `the whole token: ${known.whole}`;
  mark.textContent = `token ${known.place}`;
  return mark;
}

function bar(share) {
  const outer = document.createElement('span'), inner = document.createElement('i');
  outer.className = 'bar';
  outer.setAttribute('aria-hidden', 'true');
  inner.style.transform = `scaleX(${Math.min(Math.max(share, 0), 1)})`;
  outer.append(inner);
  return outer;
}

// What a node does in a flight, or in a run that is no flight's any more.
function part({ kind, phase, token: known, callers }, runs, still) {
  const run = runs.find((run) => run.kind === kind && run.token?.whole === known?.whole)
    ?? (phase === 'local' ? runs.find((run) => run.kind === kind && !run.token) : undefined);
  const made = document.createElement('div'), what = document.createElement('strong');
  const much = document.createElement('span');
  made.className = 'part';
  much.className = 'much';
  const thing = kind ? `the ${kind}` : 'a flight';
  const is = { owning: 'run', ending: 'run', following: 'wait', local: 'alone' }[phase] ?? 'join';
  made.dataset.is = is;
  const words = { run: `Runs ${thing}`, wait: `Follows ${thing}`, alone: `Runs ${thing} alone`, join: 'Asks who runs' };
  what.append(still ? words[is].replace('Runs', 'Ran').replace('Follows', 'Followed')
    : phase === 'ending' ? `Tells the end of ${thing}` : words[is]);
  much.append(token(known), `, ${plural(callers, 'caller')}${still ? ', as last heard' : ''}`);
  made.append(what, much);
  if (run) {
    const share = run.kind === 'stream' ? run.pieces / run.of : run.elapsed_ms / setting.run_ms;
    made.append(bar(share));
  }
  return made;
}

function showNode(at, node) {
  const made = card(at, node.name);
  made.dataset.health = node.health;
  made.dataset.part = node.runs.length > 0 ? 'run' : 'none';
  const words = { up: 'up', frozen: 'frozen', dead: 'killed', starting: 'starting' };
  write(made.querySelector('.health'), words[node.health]);
  made.querySelector('.way').hidden = !node.cut;

  const parts = made.querySelector('.parts');
  if (node.flights.length > 0) {
    parts.replaceChildren(...node.flights.map((flight) => part(flight, node.runs, node.health === 'frozen')));
  } else {
    const idle = { dead: 'Gone.', starting: 'Starts.', frozen: 'Idle, as last heard.' };
    parts.textContent = idle[node.health] ?? 'Idle.';
  }

  const latest = node.callers.toSorted((a, b) => a.began_ms - b.began_ms);
  const open = latest.filter(({ waiting, receiving }) => waiting + receiving > 0);
  const shown = open.length > 0 ? open : latest.slice(-1);
  write(made.querySelector('.heard'), shown.findLast(({ text }) => text)?.text ?? '');
  showCallers(made, shown);
  for (const count of made.querySelectorAll('[data-count]')) write(count, String(node.counts[count.dataset.count]));
  showDeeds(made, node);
}

function showCallers(made, crowds) {
  const sum = (what) => crowds.reduce((sum, crowd) => sum + crowd[what], 0);
  const stages = [['answered', 'answered'], ['receiving', 'listening'], ['waiting', 'waiting'], ['lost', 'lost']];
  const all = stages.reduce((all, [stage]) => all + sum(stage), 0);
  const dots = made.querySelector('.dots');
  const marks = all > 40 ? [] : stages.flatMap(([stage]) => Array(sum(stage)).fill(stage));
  if (dots.dataset.marks !== marks.join()) {
    dots.dataset.marks = marks.join();
    dots.replaceChildren(...marks.map((stage) => Object.assign(document.createElement('i'), { className: stage })));
  }
  const words = stages.filter(([stage]) => sum(stage) > 0).map(([stage, word]) => `${sum(stage)} ${word}`);
  write(made.querySelector('.sum'), all === 0 ? 'No callers.' : `${plural(all, 'caller')}: ${words.join(', ')}`);
}

function showDeeds(made, node) {
  const lives = node.health === 'up' || node.health === 'frozen';
  const off = { freeze: node.health === 'frozen', cut: node.cut, kill: node.health === 'dead' };
  const can = { freeze: lives, cut: true, kill: node.health !== 'starting' };
  for (const button of made.querySelectorAll('.deeds button')) {
    const { on, off: other } = button.dataset;
    const deed = off[on] ? other : on;
    button.dataset.deed = deed;
    write(button, NAMES[deed]);
    button.setAttribute('aria-label', `${NAMES[deed]} node ${node.name}`);
    button.setAttribute('aria-disabled', String(!setting.redis || !can[on]));
  }
}

// ---- flights

function showFlight(made, { records, rounds, nodes }) {
  const { kind } = made.dataset;
  const record = records.find((record) => record.kind === kind);
  const round = rounds.find((round) => round.kind === kind);
  const owner = nodes.find(({ runs }) => record && runs.some((run) => run.token?.whole === record.token?.whole));
  const state = made.querySelector('.state');
  if (record) {
    state.dataset.is = 'run';
    state.replaceChildren(owner ? `node ${owner.name}, ` : 'an owner that is gone, ', token(record.token));
  } else {
    state.dataset.is = 'idle';
    write(state, round?.open ? 'in the air' : 'not in the air');
  }
  const left = record ? record.left_ms : 0, outer = made.querySelector('.bar');
  outer.firstElementChild.style.transform = `scaleX(${Math.min(left / setting.lease_ms, 1)})`;
  outer.classList.toggle('low', left < setting.lease_ms - 1.6 * setting.beat_ms);
  const renewed = record && `lease ${seconds(left)}, renewed ${record.beats}×`;
  write(made.querySelector('.left'), renewed ?? (round?.open && !setting.redis ? 'its lease is in memory' : 'no lease'));
  const waits = record?.waiters > 0 ? `; ${plural(record.waiters, 'process waits', 'processes wait')}` : '';
  write(made.querySelector('.round'), round
    ? `${plural(round.callers, 'caller')}, ${plural(round.runs, 'run')}: ${round.answered} answered`
      + `${round.answered > 0 ? ` (${round.shared} by another’s run)` : ''}`
      + `${round.lost > 0 ? `, ${round.lost} lost` : ''}${waits}`
    : 'Nobody has asked yet.');
}

// ---- the story

const SIGNS = { you: '›', run: '▸', fault: '!', takeover: '⇄', done: '✓' };
let last = 0, unsaid = [], saying = null;

function showLine(line) {
  if (line.id <= last) return;
  last = line.id;
  const item = document.createElement('li'), time = document.createElement('time');
  const sign = document.createElement('i'), text = document.createElement('span');
  item.dataset.tone = line.tone;
  time.textContent = seconds(line.at_ms);
  sign.textContent = SIGNS[line.tone] ?? '';
  sign.setAttribute('aria-hidden', 'true');
  text.textContent = line.text;
  item.append(time, sign, text);
  byId('story').prepend(item);
  while (byId('story').children.length > 200) byId('story').lastElementChild.remove();
  const [mark, words] = byId('headline').children;
  byId('headline').dataset.tone = line.tone;
  write(mark, SIGNS[line.tone] ?? '');
  write(words, line.text);
  if (line.tone !== 'you' && line.tone !== 'run') say(line.text);
}

// What matters is read out, and what comes together at once.
function say(text) {
  unsaid.push(text);
  saying ??= setTimeout(() => {
    write(byId('said'), unsaid.slice(-3).join(' '));
    unsaid = [];
    saying = null;
  }, 1500);
}

// ---- hearing

function show(state) {
  state.nodes.forEach((node, at) => showNode(at, node));
  for (const flight of document.querySelectorAll('.flight')) showFlight(flight, state);
  drawLanes(byId('lanes'), state);
}

const source = new EventSource('/events');
source.addEventListener('setting', ({ data }) => {
  const told = JSON.parse(data);
  if (setting && setting.session !== told.session) {
    byId('story').replaceChildren();
    last = 0;
  }
  setting = told;
  byId('lost').hidden = true;
  byId('memory').hidden = Boolean(setting.redis);
  byId('flush').setAttribute('aria-disabled', String(!setting.redis));
  write(byId('fact-run'), seconds(setting.run_ms));
  write(byId('fact-lease'), seconds(setting.lease_ms));
  write(byId('fact-beat'), seconds(setting.beat_ms));
  write(byId('fact-store'), setting.redis ?? 'memory');
});
source.addEventListener('state', ({ data }) => show(JSON.parse(data)));
source.addEventListener('line', ({ data }) => showLine(JSON.parse(data)));
source.onerror = () => { byId('lost').hidden = false; };
