import { tap, type TestEvent } from 'node:test/reporters';

/** TAP without the tests that pass: those that fail or are skipped, comments, and totals. */
export default (events: AsyncIterable<TestEvent>): AsyncIterable<string> =>
  tap(withoutPasses(events));

async function* withoutPasses(events: AsyncIterable<TestEvent>): AsyncGenerator<TestEvent, void> {
  for await (const event of events) {
    const isPass = event.type === 'test:pass' && event.data.skip === undefined;
    if (!isPass && event.type !== 'test:start' && event.type !== 'test:plan') yield event;
  }
}
