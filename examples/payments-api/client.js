// A client that retries as it should: one key for each logical operation, the same in every retry; exponential backoff with
// full jitter, a cap of 30 s; Retry-After obeyed; only what may succeed later is sent again.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const retryable = new Set([408, 425, 429]);

// A 409 of the key says that its first request has not ended; any other 409 is an answer.
const inProgress = (status, body) => status === 409 && body.includes('urn:idempotency:problem:request-in-progress');

export const shouldRetry = (status, body) => status >= 500 || retryable.has(status) || inProgress(status, body);

// Milliseconds to wait before attempt + 1: between 0 and base * 2^attempt, or what the server asked for if that is more.
export function backoff(attempt, { base = 200, cap = 30_000, retryAfter = 0, random = Math.random } = {}) {
  return Math.max(retryAfter * 1000, random() * Math.min(cap, base * 2 ** attempt));
}

export class PaymentsClient {
  constructor(url, { attempts = 10, base, cap, timeout = 30_000, headers = {} } = {}) {
    Object.assign(this, { url, attempts, base, cap, timeout, headers });
  }

  // Resolves to { status, headers, body, attempts }; rejects when the attempts are used up: the outcome is then unknown, and
  // the error has the key, with which the caller may go on later.
  async post(path, body, { key = randomUUID() } = {}) {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    let last;
    for (let attempt = 0; attempt < this.attempts; attempt++) {
      let retryAfter = 0;
      try {
        const response = await fetch(this.url + path, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...this.headers, 'idempotency-key': `"${key}"` },
          body: text,
          signal: AbortSignal.timeout(this.timeout),
        });
        const answer = { status: response.status, headers: response.headers, body: await response.text(), attempts: attempt + 1, key };
        if (!shouldRetry(answer.status, answer.body)) return answer;
        last = new Error(`status ${answer.status}`);
        retryAfter = Number(response.headers.get('retry-after')) || 0;
      } catch (error) {
        last = error; // the connection was lost: nobody knows whether the request was served
      }
      if (attempt + 1 < this.attempts) await sleep(backoff(attempt, { base: this.base, cap: this.cap, retryAfter }));
    }
    throw Object.assign(new Error(`no answer after ${this.attempts} attempts: ${last.message}`, { cause: last }), { key });
  }
}
