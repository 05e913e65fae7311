// Following a stream for as long as one likes, whatever becomes of connections and servers.

import { ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, ErrorKind } from "./gen/wattle/v1/error_pb.js";

const heartbeat = 1; // seconds
const silence = 3 * heartbeat * 1000; // ms after which a connection is dead
const firstPause = 50;
const longestPause = 5_000;

// What trying again does not change.
const final = new Set([
  ErrorKind.DIVERGED, ErrorKind.TRIMMED, ErrorKind.NO_SUCH_CATEGORY, ErrorKind.NO_SUCH_STREAM, ErrorKind.INVALID,
  ErrorKind.CORRUPT, ErrorKind.UNSUPPORTED, ErrorKind.UNAUTHENTICATED, ErrorKind.DENIED,
]);

// follow yields the entries of a stream behind a mark, each once and in order, and what is
// appended from then on, until the signal. It throws what trying again does not change.
export async function* follow(log, stream, after, signal) {
  for (let pause = firstPause; !signal.aborted; pause = Math.min(2 * pause, longestPause)) {
    const dead = new AbortController();
    let watch = setTimeout(() => dead.abort(), silence);
    try {
      const call = { signal: AbortSignal.any([signal, dead.signal]) };
      for await (const m of log.follow({ stream, after, heartbeat: { seconds: BigInt(heartbeat) } }, call)) {
        clearTimeout(watch); // what the caller does takes its time
        for (const e of m.entries) {
          yield e;
          after = { seqno: e.seqno, id: e.event.id };
          pause = firstPause;
        }
        watch = setTimeout(() => dead.abort(), silence);
      }
    } catch (err) {
      const [detail] = ConnectError.from(err).findDetails(ErrorDetailSchema);
      if (detail && final.has(detail.kind)) throw err;
    } finally {
      clearTimeout(watch);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}
