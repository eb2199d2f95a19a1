// What the page knows, from the bridge's API.

/** How many runs and calls are kept. */
const KEPT = 500;
const HOUR = 3600000;
const state = { status: null, mayDecide: false, backends: new Map(), details: new Map(), trust: [], tools: [], runs: new Map(), calls: new Map() };

/** How calls have ended: { at, ms, bad, backend }, of the last hour, the oldest first. */
let hour = [];
const known = new Set();
/** When the oldest call ended that this page can know of, or `null` if it knows the whole hour. */
let since = null;

function count(call) {
  const at = Date.parse(call.startedAt) + call.ms;
  if (call.state !== "answered" || known.has(call.number) || at < Date.now() - HOUR) return;
  known.add(call.number);
  // A person who takes an hour to approve does not make a backend slow.
  hour.push({ at, ms: Math.max(0, call.ms - call.waitedMs), bad: tone(call.outcome ?? "result") === "bad", backend: call.backend });
}

/** What the calls of the last hour say, of all backends or one. */
function measured(backend) {
  const all = backend === undefined ? hour : hour.filter((one) => one.backend === backend);
  const times = all.map((one) => one.ms).sort((a, b) => a - b);
  const share = (part) => times.length ? took(times[Math.min(times.length - 1, Math.floor(part * times.length))]) : "–";
  return { calls: all.length, errors: all.filter((one) => one.bad).length, p50: share(0.5), p95: share(0.95) };
}

const key = (one) => "number" in one ? one.number : `${one.workspace}/${one.kind}/${one.runId}`;

/** Keeps what events do not tell of a run: what its prompt begins with. */
const rememberRun = (run) => state.runs.set(key(run), { prompt: state.runs.get(key(run))?.prompt, ...run });

const stateOf = (call) => call.outcome ?? (call.pending ? "pending" : call.state);
