// The payments service. PORT (0: any free one), and the database by PGHOST and its kind.
import Fastify from 'fastify';
import pg from 'pg';
import idempotency, { malformed, sendAnswer } from './idempotency.js';

const pool = new pg.Pool({ max: 16, idle_in_transaction_session_timeout: 10_000 });
pool.on('error', () => {}); // an idle connection was lost; the pool makes a new one
const app = Fastify({ logger: { level: process.env.LOG_LEVEL ?? 'warn' } });
// who the client is, after authentication; here a header stands for it
const tenant = (request) => request.headers['x-tenant'] ?? 'demo';
await app.register(idempotency, { pool, tenant });

class HttpError extends Error {
  constructor(statusCode, message) {
    super(message);
    this.statusCode = statusCode;
  }
}
// SQL that says PT402 means status 402; every other error of the database is ours, and its text nobody's business
async function query(db, text, values) {
  try {
    return (await db.query(text, values)).rows;
  } catch (error) {
    const [, status] = /^PT([345]\d\d)$/.exec(error.code) ?? [];
    if (status) throw new HttpError(Number(status), error.message);
    if (malformed(error)) throw new HttpError(400, 'The request is malformed.');
    throw new HttpError(error.code?.startsWith('40') ? 503 : 500, 'The request failed.');
  }
}

const payment = {
  type: 'object',
  required: ['payer', 'payee', 'amount'],
  properties: { payer: { type: 'integer' }, payee: { type: 'integer' }, amount: { type: 'integer', minimum: 1 } },
};
const idempotent = { config: { idempotent: true } };

app.post('/payments', { ...idempotent, schema: { body: payment } }, async (request, reply) => {
  const { payer, payee, amount } = request.body;
  await query(request.db, 'SELECT shop.move($1, $2, $3)', [payer, payee, amount]);
  const [{ id }] = await query(request.db, 'INSERT INTO shop.payments (payer, payee, amount) VALUES ($1, $2, $3) RETURNING id', [payer, payee, amount]);
  reply.code(201).header('location', `/payments/${id}`);
  return { id: Number(id), payer, payee, amount };
});

app.post('/payments/:id/refunds', { ...idempotent, schema: { body: { type: 'object', required: ['amount'], properties: { amount: { type: 'integer', minimum: 1 } } } } }, async (request, reply) => {
  const { amount } = request.body;
  const [found] = await query(request.db, `UPDATE shop.payments SET refunded = refunded + $2 WHERE id = $1 AND refunded + $2 <= amount
    RETURNING payer, payee`, [request.params.id, amount]);
  if (!found) throw new HttpError(409, 'There is no such payment, or less of it is left.');
  await query(request.db, 'SELECT shop.move($1, $2, $3)', [found.payee, found.payer, amount]);
  reply.code(201);
  return { payment: Number(request.params.id), refunded: amount };
});

app.get('/payments/:id', async (request) => {
  const [found] = await query(pool, 'SELECT id, payer, payee, amount, refunded FROM shop.payments WHERE id = $1', [request.params.id]);
  if (!found) throw new HttpError(404, 'There is no such payment.');
  return { ...found, id: Number(found.id), amount: Number(found.amount), refunded: Number(found.refunded) };
});

// the same as POST /payments, with claim, work and completion in one statement: one round trip
app.post('/v2/payments', { schema: { body: payment } }, async (request, reply) => {
  const [answer] = await query(pool, "SELECT * FROM idem_execute($1, idem_key_from_header($2), 'POST', $3, $4::jsonb, 'shop.pay(jsonb)')",
    [tenant(request), request.headers['idempotency-key'], request.url, request.bodyText]);
  return sendAnswer(reply, answer);
});

const address = await app.listen({ port: Number(process.env.PORT ?? 0), host: '127.0.0.1' });
console.log(`listening on ${address}`);
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, async () => {
    await app.close();
    await pool.end();
  });
}
