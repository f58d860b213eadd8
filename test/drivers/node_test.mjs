// The scenario through node-postgres: bound parameters, prepared (named) statements, the simple protocol.
import { createRequire } from 'node:module';

const pg = createRequire(new URL('../../examples/payments-api/server.js', import.meta.url))('pg');
const literal = (value) => pg.escapeLiteral(typeof value === 'string' ? value : JSON.stringify(value));
const modes = {
  bound: (db, name, text, values) => db.query(text, values),
  prepared: (db, name, text, values) => db.query({ name, text, values }),
  simple: (db, name, text, values) => db.query(text.replace(/\$(\d)/g, (_, n) => (Buffer.isBuffer(values[n - 1]) ? `'\\x${values[n - 1].toString('hex')}'` : literal(values[n - 1])))),
};
let mode;
const check = (what, condition, detail) => console.log(`${condition ? 'ok' : 'not ok'} - node-postgres ${mode}: ${what}${condition ? '' : ` ${JSON.stringify(detail)}`}`);
const equal = (what, is, want) => check(what, JSON.stringify(is) === JSON.stringify(want), is);

for (mode of Object.keys(modes)) {
  const db = new pg.Client();
  await db.connect();
  const run = async (name, text, values) => (await modes[mode](db, name, text, values)).rows;
  // an object is sent as its JSON text; an array would become a PostgreSQL array: give JSON.stringify(array)
  const claim = async (key, body) => (await run('claim', "SELECT * FROM idem_claim('acme', $1, 'POST', '/payments', $2::jsonb)", [key, body]))[0];
  const fails = async (work) => work().then(() => 'none', (error) => error.code);
  const key = `node-${mode}-0123456789abcdef`;
  const body = { amount: 15, key: 'k' };
  const raw = Buffer.from('{"paid" : 15}\u0000\u00ff', 'latin1');

  await db.query('BEGIN');
  equal('claimed', (await claim(key, body)).outcome, 'claimed');
  await run('insert', 'INSERT INTO paid VALUES ($1, 15)', [key]);
  equal('completed', (await run('complete', "SELECT idem_complete('acme', $1, 201, raw_body => $2) AS said", [key, raw]))[0].said, 'completed');
  await db.query('COMMIT');
  const replay = await claim(key, { key: 'k', amount: 15 });
  equal('replayed to the byte', [replay.outcome, replay.status, replay.raw_body.toString('latin1')], ['replay', 201, raw.toString('latin1')]);
  equal('headers are an object', replay.headers, { 'Idempotent-Replayed': 'true' });
  equal('another body', (await claim(key, { amount: 16 })).status, 422);
  equal('an array', (await claim(key, JSON.stringify([1]))).status, 422);

  const free = `node-${mode}-rolled-back-1`;
  await db.query('BEGIN');
  await claim(free, body);
  await db.query('ROLLBACK');
  await db.query('BEGIN');
  equal('a rollback frees the key', (await claim(free, body)).outcome, 'claimed');
  equal('a commit without completion is refused', await fails(() => db.query('COMMIT')), 'ID001');
  equal('a claim alone in autocommit is refused', await fails(() => claim(free, body)), 'ID001');
  const execute = async (k, b) => (await run('execute', "SELECT * FROM idem_execute('acme', $1, 'POST', '/payments', $2::jsonb, 'pay(jsonb)')", [k, b]))[0];
  for (const outcome of ['completed', 'replay']) {
    const answer = await execute(`node-${mode}-executed-0001`, body);
    equal(`idem_execute in autocommit: ${outcome}`, [answer.outcome, answer.status, answer.body], [outcome, 200, { paid: 15 }]);
    equal(`an exception is an answer: ${outcome}`, (await execute(`node-${mode}-declined-0001`, { amount: 1001 })).status, 402);
  }
  await db.end();
}

// several statements in one string are one transaction
mode = 'one string';
const db = new pg.Client();
await db.connect();
const key = 'node-string-0123456789';
for (const outcome of ['claimed', 'replay']) {
  try {
    const results = await db.query(`SELECT outcome FROM idem_claim('acme', '${key}', 'POST', '/p'); SELECT idem_complete('acme', '${key}', 204)`);
    equal(outcome, results[0].rows[0].outcome, 'claimed');
  } catch (error) {
    equal(`${outcome}: completing what is not claimed fails`, [outcome, error.code], ['replay', 'ID002']);
  }
}
await db.end();
