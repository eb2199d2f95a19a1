// Follows the bridge, and shows the section that the address names.

/** GETs from the bridge's API. Goes to the sign-in form if the session has ended. */
async function get(path) {
  const response = await fetch(path);
  if (response.status === 401) location.reload();
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

// The key of the session, which the bridge gives at the sign-in. Unlike the cookie, the browser shows
// it to no other port of the host.
const KEY = "mantyx-bridge-key";
if (location.hash.startsWith("#key=")) {
  localStorage.setItem(KEY, location.hash.slice(5));
  history.replaceState(null, "", "/");
}
const keyed = () => ({ "x-bridge-key": localStorage.getItem(KEY) ?? "" });

/** Runs and calls are drawn at most a few times a second, however many change. */
const due = new Set();
function drawSoon(draw) {
  if (!due.size) setTimeout(() => { const all = [...due]; due.clear(); all.forEach((draw) => draw()); }, 150);
  due.add(draw);
}

/** What each section shows. Only the one that a person looks at is drawn. */
const VIEWS = { overview: [drawTiles, drawLatest], backends: [drawBackends], tools: [drawTools], activity: [drawActivity], trust: [drawTrust] };
let view = "overview";
const drawView = () => VIEWS[view].forEach((draw) => draw());

/** Shows the section that the address names. */
function show() {
  const wanted = location.hash.slice(1).split("/")[0];
  view = wanted in VIEWS ? wanted : "overview";
  for (const name of Object.keys(VIEWS)) at(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!state.status) return;
  drawView();
  readView().catch(lost);
}

/** Reads what is large, and needed by one section alone. */
async function readView() {
  if (view === "tools" || view === "backends") await readDetails();
  if (view === "tools") await readTools();
  if (view === "trust") await readTrust();
  if (view === "activity") {
    const { runs } = await get("/v1/runs");
    for (const run of runs) state.runs.set(key(run), run);
    drawActivity();
  }
}

function take(event, data) {
  if (event === "status") {
    state.status = data;
    drawSoon(drawStatus);
    drawSoon(drawView);
    // Reads the approvals if some wait, or if the hint about the key may be obsolete.
    if (!at("keyless").hidden || data.approvals.waiting) readApprovals().catch(lost);
  } else if (event === "approval") {
    readApprovals().catch(lost);
  } else if (event === "backend") {
    const before = state.backends.get(data.name);
    if (data.state === "removed") state.backends.delete(data.name);
    else state.backends.set(data.name, data);
    const isOther = before?.digest !== data.digest || JSON.stringify(before?.pin) !== JSON.stringify(data.pin)
      || before?.state !== data.state;
    if (isOther && view !== "activity") readView().catch(lost);
    drawSoon(drawStatus);
    drawSoon(drawView);
  } else if (event === "run") {
    state.runs.set(key(data), data);
    drawSoon(drawView);
  } else if (event === "call") {
    state.calls.set(key(data), data);
    count(data);
    drawSoon(drawView);
  }
}

/** How many calls are read before the page is drawn. */
const FIRST = 50;

async function readAll() {
  // A few calls are enough to draw the page; the others follow.
  const [status, { calls }] = await Promise.all([get("/v1/status"), get(`/v1/calls?limit=${FIRST}`)]);
  at("version").textContent = status.version;
  if (status.uptimeSeconds < (state.status?.uptimeSeconds ?? 0)) {
    // The bridge was restarted, and numbers its calls from 0 again.
    known.clear();
    state.runs.clear();
    state.calls.clear();
  }
  state.backends = new Map(status.backends.map((one) => [one.name, one]));
  takeCalls(calls);
  state.status = status;
  drawStatus();
  show();
  await readApprovals();
  const all = calls.length < FIRST ? calls : (await get("/v1/calls")).calls;
  takeCalls(all);
  const first = all.reduce((first, one) => one.number < (first?.number ?? Infinity) ? one : first, null);
  since ??= first?.number > 0 ? Date.parse(first.startedAt) : Date.now() - 1000 * status.uptimeSeconds;
  drawView();
}

function takeCalls(calls) {
  for (const one of calls) {
    // An event may have told later news.
    if (!state.calls.get(key(one))?.outcome) state.calls.set(key(one), one);
    count(one);
  }
  hour.sort((a, b) => a.at - b.at);
}

function live(word, kind) {
  at("live").textContent = word;
  at("live").className = `state push ${kind}`;
}

function lost() {
  live("no connection; trying again", "bad");
}

function follow() {
  const events = new EventSource("/v1/events");
  events.onopen = () => { live("live", "good"); readAll().catch(lost); };
  for (const name of ["status", "backend", "run", "call", "approval"]) {
    events.addEventListener(name, (event) => take(name, JSON.parse(event.data)));
  }
  events.addEventListener("missed", () => readAll().catch(lost));
  events.onerror = () => {
    lost();
    if (events.readyState !== EventSource.CLOSED) return;
    // Refused, not broken: probably the session has ended.
    get("/v1/status").then(() => setTimeout(follow, 2000), () => setTimeout(follow, 2000));
  };
}

at("search").addEventListener("input", drawTools);
for (const id of ["by-app", "by-backend", "by-state", "by-text"]) at(id).addEventListener("input", drawActivity);
addEventListener("hashchange", show);
for (const leaving of ["pointerleave", "focusout"]) at("approvals").addEventListener(leaving, () => setTimeout(sweep));
// What a program writes is no event.
setInterval(() => { if (view === "backends" && !document.hidden) readDetails().catch(lost); }, 5000);
// Redraws relative times and the durations of running calls.
setInterval(() => { if (state.status) drawSoon(drawView); }, 30000);
follow();
