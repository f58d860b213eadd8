// The real service in a process of its own, a proxy that loses answers, and the books.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

export async function startService() {
  const server = fileURLToPath(new URL('../server.js', import.meta.url));
  const process_ = spawn(process.execPath, [server], { env: { ...process.env, PORT: '0', LOG_LEVEL: 'silent' }, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  for await (const chunk of process_.stdout) {
    said += chunk;
    if (said.includes('\n')) break;
  }
  const url = said.match(/http:\S+/)[0];
  return {
    url,
    port: Number(new URL(url).port),
    async stop(signal = 'SIGTERM') {
      if (process_.exitCode !== null || process_.signalCode !== null) return;
      process_.kill(signal);
      await once(process_, 'exit');
    },
  };
}

// Between client and service. plan(bodyOfRequest) says what happens to a request: 'pass'; 'before': the connection is cut
// before the service has seen it; 'during': as soon as the service has it; 'after': when the service has answered.
export async function startProxy(portOf, plan) {
  const lost = [];
  const proxy = net.createServer((client) => {
    const service = net.connect(portOf(), '127.0.0.1');
    let request = '';
    let fate;
    let answer = '';
    const cut = () => { client.destroy(); if (fate !== 'during') service.destroy(); };
    client.on('data', (chunk) => {
      request += chunk.toString('latin1');
      if (!complete(request)) return;
      fate = plan(request);
      if (fate === 'before') { lost.push({ request, fate }); return cut(); }
      answer = '';
      service.write(Buffer.from(request, 'latin1'));
      if (fate === 'during') { lost.push({ request, fate }); setTimeout(cut, 1); }
      request = '';
    });
    service.on('data', (chunk) => {
      if (fate === 'after') {
        answer += chunk.toString('latin1');
        if (complete(answer)) { lost.push({ fate, answer }); cut(); }
        return;
      }
      if (fate !== 'during' && !client.destroyed) client.write(chunk);
    });
    client.on('error', () => service.destroy());
    client.on('close', () => { if (fate !== 'during') service.destroy(); else service.end(); });
    service.on('error', () => client.destroy());
    service.on('close', () => client.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return { url: `http://127.0.0.1:${proxy.address().port}`, lost, close: () => proxy.close() };
}

// Whether a message of HTTP/1.1 with a Content-Length is all there.
function complete(message) {
  const end = message.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const [, length] = /content-length: (\d+)/i.exec(message.slice(0, end)) ?? [];
  return message.length >= end + 4 + Number(length ?? 0);
}

export const bodyOf = (message) => message.slice(message.indexOf('\r\n\r\n') + 4);

export async function openBooks(accounts, balance) {
  const db = new pg.Client();
  await db.connect();
  await db.query('TRUNCATE shop.accounts, shop.payments, idempotency_keys RESTART IDENTITY');
  await db.query('INSERT INTO shop.accounts SELECT i, $2 FROM generate_series(1, $1) AS i', [accounts, balance]);
  const one = async (sql, values) => Number((await db.query(sql, values)).rows[0].value);
  return {
    db,
    payments: () => one('SELECT count(*) AS value FROM shop.payments'),
    keys: () => one('SELECT count(*) AS value FROM idempotency_keys'),
    // what the accounts have gained or lost against what the payments say
    error: async () => await one(`SELECT sum(abs(balance - $1 + paid - got)) AS value FROM (SELECT a.balance,
        coalesce((SELECT sum(amount - refunded) FROM shop.payments WHERE payer = a.id), 0) AS paid,
        coalesce((SELECT sum(amount - refunded) FROM shop.payments WHERE payee = a.id), 0) AS got FROM shop.accounts AS a) AS each`, [balance]),
    total: () => one('SELECT sum(balance) AS value FROM shop.accounts'),
    close: () => db.end(),
  };
}
