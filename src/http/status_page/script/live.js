// Follows the bridge, and shows the section that the address names.

/** GETs from the bridge's API. Says so if the session has ended. */
async function get(path) {
  const response = await fetch(path, { headers: keyed() });
  if (response.status === 401) sessionOver();
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

// The key of the session, which the bridge gives at the sign-in. Unlike the cookie, the browser shows
// it to no other port of the host.
const KEY = "mantyx-bridge-key";
// Where a link has led that was followed before the sign-in (sign_in.js).
const WANTED = "mantyx-bridge-wanted";
const wanted = sessionStorage.getItem(WANTED) ?? "";
sessionStorage.removeItem(WANTED);
if (location.hash.startsWith("#key=")) {
  localStorage.setItem(KEY, location.hash.slice(5));
  history.replaceState(null, "", `/${wanted}`);
} else if (location.search) history.replaceState(null, "", `/${location.hash}`);
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
  readView().catch(lookForBridge);
}

/** Reads what is large, and needed by one section alone. */
async function readView() {
  if (view === "tools" || view === "backends") await readDetails();
  if (view === "tools") await readTools();
  if (view === "trust") await readTrust();
  if (view === "activity") await readRuns();
  if (view === "overview" && namedAsk()) await readApprovals();
}

async function readRuns() {
  const { runs } = await get("/v1/runs");
  runs.forEach((run) => rememberRun({ prompt: "", ...run }));
  drawView();
}

/** Reads what prompts begin with, which events do not tell, soon after a run began. */
let runsDue = false;
function readRunsSoon() {
  if (runsDue) return;
  runsDue = true;
  setTimeout(() => { runsDue = false; readRuns().catch(lookForBridge); }, 1000);
}

function take(event, data) {
  if (event === "status") {
    state.status = data;
    drawSoon(drawStatus);
    drawSoon(drawView);
    // Reads the approvals if some wait, or if the hint about the key may be obsolete.
    if (!at("keyless").hidden || data.approvals.waiting) readApprovals().catch(lookForBridge);
  } else if (event === "approval") {
    readApprovals().catch(lookForBridge);
  } else if (event === "backend") {
    const before = state.backends.get(data.name);
    if (data.state === "removed") state.backends.delete(data.name);
    else state.backends.set(data.name, data);
    const isOther = before?.digest !== data.digest || JSON.stringify(before?.pin) !== JSON.stringify(data.pin)
      || before?.state !== data.state;
    if (isOther && view !== "activity") readView().catch(lookForBridge);
    drawSoon(drawStatus);
    drawSoon(drawView);
  } else if (event === "run") {
    if (!state.runs.has(key(data))) readRunsSoon();
    rememberRun(data);
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
  reached();
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

let following = null;
const isFollowing = () => following?.readyState === EventSource.OPEN;

function follow() {
  if (connection.isOver) return;
  const events = new EventSource("/v1/events");
  following = events;
  events.onopen = () => readAll().catch(lookForBridge);
  for (const name of ["status", "backend", "run", "call", "approval"]) {
    events.addEventListener(name, (event) => take(name, JSON.parse(event.data)));
  }
  events.addEventListener("missed", () => readAll().catch(lookForBridge));
  events.onerror = async () => {
    live("no connection; trying again", "bad");
    await lookForBridge();
    // Refused, not broken: a browser does not ask again.
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  };
}

at("search").addEventListener("input", drawTools);
for (const id of ["by-app", "by-backend", "by-state", "by-text"]) at(id).addEventListener("input", drawActivity);
// Another section begins at its top.
addEventListener("hashchange", () => { scrollTo(0, 0); show(); });
for (const leaving of ["pointerleave", "focusout"]) at("approvals").addEventListener(leaving, () => setTimeout(sweep));
// What a program writes is no event.
setInterval(() => { if (view === "backends" && !document.hidden && !connection.goneSince && !connection.isOver) readDetails().catch(lookForBridge); }, 5000);
// Redraws relative times and the durations of running calls.
setInterval(() => { if (state.status && !connection.goneSince) drawSoon(drawView); }, 30000);
setInterval(() => { if (!document.hidden) lookForBridge(); }, 10000);
setInterval(() => { tick(); drawGone(); }, 1000);
addEventListener("visibilitychange", lookForBridge);
addEventListener("focus", lookForBridge);
follow();
