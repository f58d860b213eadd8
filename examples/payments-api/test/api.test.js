// The service over HTTP, with answers lost on purpose; the books are checked at the end of each test.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { backoff, PaymentsClient, shouldRetry } from '../client.js';
import { bodyOf, openBooks, startProxy, startService } from './support.js';

const accounts = 20;
const balance = 1_000_000;
let service;
let books;
before(async () => { service = await startService(); });
beforeEach(async () => {
  await books?.close();
  books = await openBooks(accounts, balance);
});
after(async () => {
  await books.close();
  await service.stop();
});

const pay = { payer: 1, payee: 2, amount: 1500 };
const post = (path, body, headers = {}) => fetch(service.url + path, {
  method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body),
});
const answerOf = async (response) => ({ status: response.status, body: await response.text(), headers: Object.fromEntries(response.headers) });
async function checkBooks(payments) {
  assert.equal(await books.payments(), payments, 'payments');
  assert.equal(await books.error(), 0, 'balances and payments agree');
  assert.equal(await books.total(), accounts * balance, 'no money came or went');
}

for (const path of ['/payments', '/v2/payments']) {
  test(`${path}: a payment and its retry`, async () => {
    const key = { 'idempotency-key': `"${randomUUID()}"` };
    const first = await answerOf(await post(path, pay, key));
    const again = await answerOf(await post(path, pay, key));
    assert.equal(first.status, 201);
    assert.match(first.headers.location, /^\/payments\/\d+$/);
    assert.equal(again.status, 201);
    assert.equal(again.body, first.body, 'the same bytes');
    assert.equal(again.headers.location, first.headers.location);
    assert.equal(again.headers['content-type'], first.headers['content-type']);
    assert.equal(first.headers['idempotent-replayed'], undefined);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    const found = await (await fetch(service.url + first.headers.location)).json();
    assert.equal(found.amount, 1500);
    await checkBooks(1);
  });

  test(`${path}: another body, another tenant, the same in other words`, async () => {
    const key = { 'idempotency-key': randomUUID() };
    assert.equal((await post(path, pay, key)).status, 201);
    const other = await answerOf(await post(path, { ...pay, amount: 1501 }, key));
    assert.equal(other.status, 422);
    assert.equal(other.headers['content-type'], 'application/problem+json');
    assert.equal(other.headers['x-idempotency-conflict'], 'true');
    assert.equal(JSON.parse(other.body).type, 'urn:idempotency:problem:key-reused');
    assert.equal((await post(path, '{"amount":1500.0, "payee":2,\n"payer":1e0}', key)).headers.get('idempotent-replayed'), 'true');
    // two amounts that JavaScript can't tell apart
    assert.equal((await post(path, '{"payer":1,"payee":2,"amount":1500.00000000000000000001}', key)).status, 422);
    assert.equal((await post(path, pay, { ...key, 'x-tenant': 'another' })).status, 201);
    await checkBooks(2);
  });

  test(`${path}: no key, a malformed key, two keys, no JSON`, async () => {
    for (const headers of [{}, { 'idempotency-key': 'short' }, { 'idempotency-key': '"0123456789abcdef' }, { 'idempotency-key': '' },
      { 'idempotency-key': '0123456789abcdef, 0123456789abcdeg' }]) {
      const answer = await answerOf(await post(path, pay, headers));
      assert.equal(answer.status, 400, JSON.stringify(headers));
      if (path === '/payments') assert.equal(answer.headers['content-type'], 'application/problem+json');
    }
    assert.equal((await post(path, '{"payer": 1,', { 'idempotency-key': randomUUID() })).status, 400);
    assert.equal((await post(path, { payer: 1 }, { 'idempotency-key': randomUUID() })).status, 400);
    await checkBooks(0);
    assert.equal(await books.keys(), 0);
  });

  test(`${path}: a refused payment is refused again, its key is spent, and nothing moved`, async () => {
    const key = { 'idempotency-key': randomUUID() };
    const poor = { payer: 1, payee: 2, amount: balance + 1 };
    const first = await answerOf(await post(path, poor, key));
    assert.equal(first.status, 402);
    await books.db.query('UPDATE shop.accounts SET balance = balance + 10 WHERE id = 1');
    const again = await answerOf(await post(path, poor, key));
    assert.equal(again.status, 402);
    assert.equal(again.body, first.body);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    await books.db.query('UPDATE shop.accounts SET balance = balance - 10 WHERE id = 1');
    await checkBooks(0);
  });

  test(`${path}: two at once are one payment`, async () => {
    const key = { 'idempotency-key': randomUUID() };
    const answers = await Promise.all(Array.from({ length: 12 }, async () => answerOf(await post(path, pay, key))));
    const statuses = answers.map((answer) => answer.status);
    assert.ok(statuses.includes(201));
    assert.ok(statuses.every((status) => status === 201 || status === 409), statuses.join());
    for (const answer of answers.filter(({ status }) => status === 409)) {
      assert.ok(Number(answer.headers['retry-after']) >= 1);
      assert.equal(JSON.parse(answer.body).type, 'urn:idempotency:problem:request-in-progress');
    }
    await checkBooks(1);
  });

  for (const fate of ['before', 'during', 'after']) {
    test(`${path}: the connection is cut ${fate} the commit`, async () => {
      let cuts = 2;
      const proxy = await startProxy(() => service.port, () => (cuts-- > 0 ? fate : 'pass'));
      const client = new PaymentsClient(proxy.url, { base: 5 });
      const answer = await client.post(path, pay);
      assert.equal(answer.status, 201);
      assert.ok(answer.attempts >= 3);
      if (fate === 'after') {
        assert.equal(answer.headers.get('idempotent-replayed'), 'true');
        assert.equal(answer.body, bodyOf(proxy.lost[0].answer), 'what was lost is what is told');
      }
      proxy.close();
      await checkBooks(1);
    });
  }

  test(`${path}: the service is killed and started again`, async () => {
    let cuts = 1;
    const proxy = await startProxy(() => service.port, () => (cuts-- > 0 ? 'during' : 'pass'));
    const client = new PaymentsClient(proxy.url, { base: 20, attempts: 20 });
    const answers = Array.from({ length: 10 }, (_, i) => client.post(path, { ...pay, payer: i + 1, payee: 20 }));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await service.stop('SIGKILL');
    service = await startService();
    for (const answer of await Promise.all(answers)) assert.equal(answer.status, 201);
    proxy.close();
    await checkBooks(10);
  });
}

test('refunds: once each, never more than was paid', async () => {
  const client = new PaymentsClient(service.url, { base: 5 });
  const { id } = JSON.parse((await client.post('/payments', pay)).body);
  const refund = await client.post(`/payments/${id}/refunds`, { amount: 1000 });
  assert.equal(refund.status, 201);
  assert.equal((await client.post(`/payments/${id}/refunds`, { amount: 1000 }, { key: refund.key })).headers.get('idempotent-replayed'), 'true');
  assert.equal((await client.post(`/payments/${id}/refunds`, { amount: 1000 })).status, 409, 'another key is another refund');
  assert.equal((await client.post(`/payments/${id + 1}/refunds`, { amount: 1000 }, { key: refund.key })).status, 422, 'another path');
  await checkBooks(1);
});

test('an error of the service stores nothing, and the retry runs', async () => {
  await books.db.query('ALTER TABLE shop.payments RENAME TO hidden');
  const key = { 'idempotency-key': randomUUID() };
  const answer = await answerOf(await post('/payments', pay, key));
  await books.db.query('ALTER TABLE shop.hidden RENAME TO payments');
  assert.equal(answer.status, 500);
  assert.ok(!answer.body.includes('relation'), 'no text of the database');
  assert.equal((await post('/payments', pay, key)).status, 201);
  await checkBooks(1);
});

test('the client: what it sends again, and how long it waits', () => {
  assert.deepEqual([408, 425, 429, 500, 502, 503, 504].filter((status) => !shouldRetry(status, '')), []);
  assert.deepEqual([200, 201, 204, 301, 400, 401, 402, 403, 404, 409, 422].filter((status) => shouldRetry(status, '')), []);
  assert.ok(shouldRetry(409, '{"type": "urn:idempotency:problem:request-in-progress"}'));
  assert.equal(backoff(0, { base: 100, random: () => 0.5 }), 50);
  assert.equal(backoff(3, { base: 100, random: () => 1 }), 800);
  assert.equal(backoff(50, { base: 100, random: () => 1 }), 30_000, 'no more than 30 s');
  assert.equal(backoff(0, { base: 100, retryAfter: 2, random: () => 0 }), 2000, 'Retry-After is obeyed');
});

test('the client: gives up with the key in hand', async () => {
  const client = new PaymentsClient('http://127.0.0.1:1', { base: 1, attempts: 3 });
  await assert.rejects(client.post('/payments', pay), (error) => error.key.length === 36 && /after 3 attempts/.test(error.message));
});

const requests = Number(process.env.REQUESTS ?? 5000);
test(`${requests} requests, a third of the answers lost`, { timeout: 600_000 }, async () => {
  const keyOf = (message) => /idempotency-key: "([^"]+)"/i.exec(message)[1];
  const firstAnswer = new Map(); // by key: what was answered, whether the client saw it or not
  let seen = 0;
  const proxy = await startProxy(() => service.port, () => ['pass', 'pass', 'pass', 'pass', 'before', 'during', 'after', 'pass', 'after'][seen++ % 9]);
  const client = new PaymentsClient(proxy.url, { base: 5, attempts: 30 });
  let retries = 0;
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < requests; i = next++) {
      const body = { payer: i % accounts + 1, payee: (i * 7 + 3) % accounts + 1 === i % accounts + 1 ? (i + 1) % accounts + 1 : (i * 7 + 3) % accounts + 1, amount: i % 100 + 1 };
      const path = i % 2 === 0 ? '/payments' : '/v2/payments';
      const answer = await client.post(path, body);
      retries += answer.attempts - 1;
      assert.equal(answer.status, 201, answer.body);
      firstAnswer.set(answer.key, { path, body, told: answer.body });
      if (i % 5 === 0) { // a client that lost its own answer asks once more, without the proxy
        const again = await answerOf(await post(path, body, { 'idempotency-key': answer.key }));
        assert.equal(again.status, 201);
        assert.equal(again.body, answer.body);
      }
    }
  };
  await Promise.all(Array.from({ length: 24 }, worker));
  proxy.close();

  const lostAnswers = proxy.lost.filter(({ fate }) => fate === 'after');
  let compared = 0;
  const told = new Set([...firstAnswer.values()].map((entry) => entry.told));
  for (const { answer } of lostAnswers) {
    if (!answer.startsWith('HTTP/1.1 201')) continue; // a 409 that was lost too
    assert.ok(told.has(bodyOf(answer)), 'an answer that was lost is the one that the client was told later');
    compared++;
  }
  assert.equal(firstAnswer.size, requests);
  assert.equal(told.size, requests, 'each payment has an answer of its own');
  assert.ok(proxy.lost.length > requests / 3);
  await checkBooks(requests);
  console.log(`# ${requests} payments, ${proxy.lost.length} requests or answers lost, ${retries} retries, ${compared} lost answers compared, doubles: 0`);
});
