// Random documents through the core and through JavaScript, whose numbers and strings RFC 8785 is defined by.
// usage: node differential.mjs PROGRAM [COUNT] [SEED]
import { spawnSync } from 'node:child_process';

const [program, count = '20000', seed = '20261201'] = process.argv.slice(2);

// A small generator of its own, so that a seed means the same documents everywhere (mulberry32).
let state = Number(seed) >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);

const view = new DataView(new ArrayBuffer(8));
function number() {
  switch (below(5)) {
    case 0: return below(1000);
    case 1: return (below(2000000) - 1000000) / 100;
    case 2: return Number(`${below(1000)}e${below(60) - 30}`);
    case 3: return Number.MAX_SAFE_INTEGER - below(10);
    default:
      view.setUint32(0, below(4294967296));
      view.setUint32(4, below(4294967296));
      return Number.isFinite(view.getFloat64(0)) ? view.getFloat64(0) : 0;
  }
}

const ranges = [[0x61, 0x7a], [0x20, 0x7e], [0x1, 0x1f], [0x7f, 0x9f], [0xa0, 0x7ff], [0x2028, 0x2029], [0xd700, 0xd7ff],
  [0xe000, 0xe010], [0xfff0, 0xffff], [0x10000, 0x10010], [0x1f600, 0x1f64f], [0x10fff0, 0x10ffff]];
function string() {
  let out = '';
  for (let length = below(12); length > 0; length--) {
    const [low, high] = ranges[below(ranges.length)];
    out += String.fromCodePoint(low + below(high - low + 1));
  }
  return out;
}

function value(depth) {
  switch (depth > 4 ? below(4) : below(6)) {
    case 0: return null;
    case 1: return random() < 0.5;
    case 2: return number();
    case 3: return string();
    case 4: return Array.from({ length: below(6) }, () => value(depth + 1));
    default: return new Map(Array.from({ length: below(8) }, () => [string(), value(depth + 1)]));
  }
}

// Names by code unit, which is what sort() does; text by JSON.stringify. A Map keeps integer-like names in order.
function text(node, sorted) {
  if (Array.isArray(node)) return `[${node.map((element) => text(element, sorted)).join(',')}]`;
  if (node instanceof Map) {
    const names = sorted ? [...node.keys()].sort() : [...node.keys()];
    return `{${names.map((name) => `${JSON.stringify(name)}:${text(node.get(name), sorted)}`).join(',')}}`;
  }
  return JSON.stringify(node);
}

const documents = Array.from({ length: Number(count) }, () => value(0));
const input = documents.map((node) => text(node, false)).join('\n') + '\n';
const run = spawnSync(program, { input, maxBuffer: 1 << 30 });
if (run.status !== 0) {
  console.error(run.stderr.toString());
  process.exit(1);
}
const lines = run.stdout.toString().split('\n');
let different = 0;
documents.forEach((node, i) => {
  if (lines[i] !== text(node, true) && different++ < 5) {
    console.error(`document ${i}:\n  JavaScript ${text(node, true)}\n  core       ${lines[i]}`);
  }
});
console.log(`differential: ${documents.length - different} of ${documents.length} documents agree`);
process.exit(different === 0 ? 0 : 1);
