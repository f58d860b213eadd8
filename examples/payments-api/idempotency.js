// Idempotency keys for fastify: one transaction for the key and for what the route does.
//
//   app.register(idempotency, { pool, tenant: (request) => request.user.account })
//   app.post('/payments', { config: { idempotent: true } }, async (request, reply) => { await request.db.query(...) })
//
// The route runs its SQL on request.db. An answer of 4xx undoes that SQL and is stored; 401, 403 and what asks the client to
// try again (5xx, 408, 425, 429) roll everything back, the key too.
import fp from 'fastify-plugin';

const claimSql = 'SELECT * FROM idem_claim($1, idem_key_from_header($2), $3, $4, $5::jsonb)';
const completeSql = 'SELECT idem_complete($1, idem_key_from_header($2), $3, headers => $4, raw_body => $5)';
const unkept = (status) => status >= 500 || [401, 403, 408, 425, 429].includes(status);

export const malformed = (error) => ['22P02', '22P05', '22003'].includes(error.code); // the header, or the body as jsonb
const problem = (status, detail) => Buffer.from(JSON.stringify({ type: 'about:blank', status, detail }));

// An answer of idem_claim() or idem_execute(), sent as it stands.
export function sendAnswer(reply, { status, headers, body, raw_body: bytes }) {
  reply.code(status).headers(headers ?? {});
  if (bytes === null && body !== null && !reply.hasHeader('content-type')) reply.type('application/json');
  return reply.send(bytes ?? Buffer.from(body === null ? '' : JSON.stringify(body))); // fastify adds a charset to a string's type
}

export default fp(async (app, { pool, tenant }) => {
  // the text of the body as it came: JSON.parse() rounds what a double can't hold
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, text, done) => {
    request.bodyText = text;
    app.getDefaultJsonParser('error', 'error')(request, text, done);
  });
  app.decorateRequest('db', null);
  app.decorateRequest('bodyText', null);

  app.addHook('preHandler', async (request, reply) => {
    if (!request.routeOptions.config.idempotent) return;
    const db = await pool.connect();
    try {
      await db.query('BEGIN');
      const name = [tenant(request), request.headers['idempotency-key']];
      const { rows: [claim] } = await db.query(claimSql, [...name, request.method, request.url, request.bodyText]);
      if (claim.outcome === 'claimed' || claim.outcome === 'bypass') {
        await db.query('SAVEPOINT work');
        request.db = db;
        request.claimed = claim.outcome === 'claimed' && name;
        return;
      }
      await db.query('ROLLBACK');
      db.release();
      return sendAnswer(reply, claim);
    } catch (error) {
      await db.query('ROLLBACK').catch(() => {});
      db.release(error);
      const [status, detail] = malformed(error) ? [400, error.message] : [503, 'Try again with the same Idempotency-Key.'];
      return reply.code(status).type('application/problem+json').send(problem(status, detail));
    }
  });

  app.addHook('onSend', async (request, reply, payload) => {
    const { db, claimed } = request;
    if (!db) return payload;
    request.db = null;
    try {
      const status = reply.statusCode;
      if (unkept(status)) throw null;
      if (status >= 400) await db.query('ROLLBACK TO work');
      if (claimed) {
        const headers = Object.fromEntries(Object.entries(reply.getHeaders()).map(([name, value]) => [name, [value].flat().map(String)]));
        await db.query(completeSql, [...claimed, status, JSON.stringify(headers), Buffer.from(payload ?? '')]);
      }
      await db.query('COMMIT');
      db.release();
      return payload;
    } catch (error) {
      await db.query('ROLLBACK').catch(() => {});
      db.release(error ?? undefined);
      if (!error) return payload;
      request.log.error({ code: error.code }, 'the transaction failed');
      reply.code(503).headers({ 'retry-after': '1', 'content-type': 'application/problem+json' });
      return problem(503, 'Try again with the same Idempotency-Key.');
    }
  });
});
