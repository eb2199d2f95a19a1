// The status page: draws the data of the bridge's API, and follows /v1/events.
//
// Text of apps and backends reaches the page only by `textContent`, never as markup.
"use strict";

const SHOWN = 100;
const state = { status: null, mayDecide: false, backends: new Map(), trust: [], tools: [], runs: new Map(), calls: new Map() };
const at = (id) => document.getElementById(id);

/** An element with a class, and children that are texts or elements. */
function make(tag, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A table cell. Its label is shown if there is no room for columns. */
function cell(label, content, kind) {
  const made = make("td", kind, content);
  if (label) made.dataset.label = label;
  return made;
}

const TONES = {
  ready: "good", answered: "good", result: "good", driven: "good", live: "good",
  degraded: "warn", connecting: "warn", running: "warn", waiting: "warn", pending: "warn", attaching: "warn",
  down: "bad", error: "bad", given_up: "bad", cancelled: "warn",
};
const dot = (word) => make("span", `state ${TONES[word] ?? ""}`, word);

function ago(time) {
  if (!time) return "never";
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  const made = make("time", "", seconds < 60 ? "just now"
    : seconds < 3600 ? `${Math.floor(seconds / 60)} min ago`
    : seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago`
    : `${Math.floor(seconds / 86400)} d ago`);
  made.dateTime = time;
  made.title = new Date(time).toLocaleString();
  return made;
}

function clock(time) {
  const made = make("time", "", new Date(time).toLocaleTimeString());
  made.dateTime = time;
  made.title = new Date(time).toLocaleString();
  return made;
}

function took(ms) {
  if (ms < 1000) return `${ms} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
}

/**
 * Puts elements into a place. Elements that have not changed stay in the document: so no click is
 * lost, and details that a person opened stay open. `says` identifies the data of an element that a
 * person changes (opens, types into).
 */
function put(place, elements) {
  const isSame = (old, made) => made.says === undefined ? old.isEqualNode(made) : old.says === made.says;
  const standing = new Map([...place.children].map((old) => [old.says, old]));
  elements.forEach((made, position) => {
    const old = place.children[position];
    const known = made.says === undefined ? old : standing.get(made.says);
    if (known && isSame(known, made)) {
      if (known !== old) place.insertBefore(known, old ?? null);
    } else if (old?.tagName === "TR" && old.cells.length === made.cells.length) {
      put(old, [...made.cells]);
    } else if (old && old.says === made.says) {
      old.replaceWith(made);
    } else {
      place.insertBefore(made, old ?? null);
    }
  });
  while (place.children.length > elements.length) place.lastElementChild.remove();
}

function fill(table, rows, empty) {
  const none = make("td", "empty", empty);
  none.colSpan = at(table).tHead.rows[0].cells.length;
  put(at(table).tBodies[0], rows.length ? rows : [make("tr", "", none)]);
}

// Drawing.

function drawStatus() {
  drawInjected();
  const { upstream, runs, problems, approvals, runtimes } = state.status;
  const reached = { true: "reachable", false: "not reachable", null: "not asked yet" }[String(upstream.reachable)];
  at("upstream").replaceChildren("MANTYX: ", make("code", "", upstream.baseUrl), make("span", "soft", ` ${reached}`));
  at("driven").textContent = `${runs.driven} driven now`;
  at("others").hidden = !runtimes.length;
  fill("runtimes", runtimes.map((one) => make("tr", "",
    cell("", make("strong", "", one.name)), cell("", dot(one.state)), cell("Kind", one.kind),
    cell("Open calls", String(one.openCalls), "number"))), "");
  at("problems").replaceChildren(...problems.map((problem) => make("div", "problem",
    make("p", "", make("strong", "", problem.subject), `: ${problem.message}`),
    make("p", "soft", problem.cure))));
  const news = problems.length + approvals.waiting;
  document.title = news ? `(${news}) mantyx-bridge` : "mantyx-bridge";
}

/** The cards of questions to a person, by their ids. */
const asks = new Map();
/** How long new buttons are disabled, in ms: a card may appear under the pointer just before a click. */
const UNTOUCHED = 700;

/** Text with invisible characters written out, as they can hide what it says. */
const plain = (text) => String(text).replace(/[^\P{C}\n]/gu, (odd) => `\\u{${odd.codePointAt(0).toString(16)}}`);

/** The choices of a field, with their titles; `null` if it has none. */
function choicesOf(field) {
  const all = field.enum ?? field.oneOf ?? field.anyOf;
  if (!Array.isArray(all)) return null;
  return all.map((one, at) => one?.const === undefined
    ? [String(one), field.enumNames?.[at] ?? String(one)]
    : [String(one.const), one.title ?? String(one.const)]);
}

/** The input of a field, and how its value is read: `undefined` leaves the field out. */
function input(field, isRequired) {
  const choices = choicesOf(field.type === "array" ? field.items : field);
  if (choices) {
    const isList = field.type === "array";
    const made = make("select", "", ...(isList || isRequired ? [] : [make("option", "", "")]), ...choices.map(([value, title]) => {
      const option = make("option", "", plain(title));
      option.value = value;
      option.defaultSelected = isList ? (Array.isArray(field.default) && field.default.includes(value)) : field.default === value;
      return option;
    }));
    made.multiple = isList;
    if (!isList && isRequired && field.default === undefined) made.selectedIndex = -1;
    const chosen = () => [...made.selectedOptions].map((option) => option.value);
    return [made, () => isList ? (chosen().length || isRequired ? chosen() : undefined) : (chosen()[0] || undefined)];
  }
  const made = make("input", "");
  if (field.type === "boolean") {
    made.type = "checkbox";
    made.checked = field.default === true;
    return [made, () => made.checked];
  }
  made.value = field.default === undefined ? "" : field.default;
  if (field.type === "array") {
    made.placeholder = "one, another";
    return [made, () => made.value ? made.value.split(",").map((one) => one.trim()) : undefined];
  }
  if (field.type !== "string") {
    made.inputMode = "decimal";
    // What is no number goes as it is, and the bridge says so.
    return [made, () => made.value.trim() === "" ? undefined : Number.isNaN(Number(made.value)) ? made.value : Number(made.value)];
  }
  made.type = { date: "date", "date-time": "text", email: "email", uri: "url" }[field.format] ?? "text";
  return [made, () => made.value === "" && !isRequired ? undefined : made.value];
}

/** What a call's server asks: the elements of its form, and how its content is read. */
function form(id, question) {
  const title = make("p", "text", make("strong", "", "Its server asks: "), plain(question.message ?? ""));
  if (question.mode === "url") {
    let url = null;
    try { url = new URL(question.url); } catch { /* It is shown as it is. */ }
    if (!url || !/^https?:$/.test(url.protocol)) return { elements: [title, make("pre", "", plain(question.url))], read: () => undefined };
    // The browser's own form of it: a host that looks like another one shows what it is.
    const user = url.username ? `${url.username}@` : "";
    const link = make("a", "", `${url.protocol}//${user}`, make("strong", "", url.host), url.pathname + url.search + url.hash);
    [link.href, link.target, link.rel] = [url.href, "_blank", "noopener noreferrer"];
    return { elements: [title, make("p", "text", link)], read: () => undefined };
  }
  const required = Array.isArray(question.requestedSchema?.required) ? question.requestedSchema.required : [];
  const fields = Object.entries(question.requestedSchema?.properties ?? {}).map(([name, field], at) => {
    const [element, value] = input(field, required.includes(name));
    element.id = `${id}-${at}`;
    element.required = required.includes(name) && field.type !== "boolean";
    const label = make("label", "", plain(field.title ?? name), required.includes(name) ? make("span", "bad-word", " required") : null);
    label.htmlFor = element.id;
    const text = field.description === undefined ? null : make("small", "soft", plain(field.description));
    return { name, value, row: make("div", "field", label, element, text) };
  });
  const read = () => Object.fromEntries(fields.map(({ name, value }) => [name, value()]).filter(([, value]) => value !== undefined));
  return { elements: [title, make("div", "fields", ...fields.map(({ row }) => row))], read };
}

/** A card. It keeps its position, so that a click hits the right one; only its text changes. */
function ask(one) {
  const reason = make("input");
  const isQuestion = one.kind === "question";
  reason.placeholder = isQuestion ? "Reason, if you decline" : "Reason; the model gets it if you deny";
  reason.maxLength = 1000;
  reason.setAttribute("aria-label", `Reason, ${one.name}`);
  const button = (word, decision, content) => {
    const made = make("button", "", word);
    made.setAttribute("aria-label", `${word} ${one.name}`);
    made.disabled = true;
    made.onclick = () => decide(one.id, { decision, content: content?.(), reason: reason.value || undefined });
    return made;
  };
  // Without a form, there is nothing to fill in.
  const asked = one.question && !one.flaw ? form(one.id, one.question) : null;
  const flaw = one.flaw ? [
    make("p", "text", make("strong", "", "Its server asks: "), plain(one.question?.message ?? "")),
    make("pre", "", plain(JSON.stringify(one.question))), make("p", "", `It can only be declined: ${one.flaw}.`)] : [];
  const buttons = isQuestion
    ? [...(asked ? [button("Answer", "answer", asked.read)] : []), button("Decline", "deny")]
    : [button("Approve", "approve"), button("Deny", "deny")];
  setTimeout(() => buttons.forEach((button) => { button.disabled = false; }), UNTOUCHED);
  const answer = make("div", "answer", reason, ...buttons);
  answer.hidden = !state.mayDecide;
  const word = make("p", "word soft", "");
  const card = make("article", "ask",
    make("p", "", make("code", "", one.name), make("span", "soft", ` of ${one.backend}, app ${one.app}, `),
      one.runId ? make("code", "", one.runId) : "by hand", make("span", "soft", ", asked at "), clock(one.since),
      make("span", "soft", ", expires at "), clock(one.deadline)),
    make("pre", "", one.argumentsText), ...(asked?.elements ?? flaw), answer, word);
  return { card, answer, buttons, word };
}

function say(word, text) {
  word.textContent = text;
  word.title = text;
}

/** A decided card keeps its size, so that the card below does not move under the pointer. */
function settle({ card, word }, text) {
  say(word, text);
  card.classList.add("over");
  for (const part of card.querySelectorAll(".answer, .fields")) part.inert = true;
}

/** Draws the open questions. New cards come last; decided ones go once the pointer leaves the list. */
function drawApprovals(all) {
  for (const one of all) {
    const known = asks.get(one.id);
    if (one.state === "waiting") {
      // After a restart, the bridge asks again about a call whose card was over.
      if (known && !known.card.classList.contains("over")) continue;
      known?.card.remove();
      const made = ask(one);
      asks.set(one.id, made);
      at("asks").append(made.card);
    } else if (known) {
      settle(known, one.reason ? `${one.state}: ${one.reason}` : one.state);
    }
  }
  // The bridge no longer knows these: it was restarted, or has forgotten old questions.
  const named = new Set(all.map((one) => one.id));
  for (const [id, known] of asks) {
    if (!named.has(id)) settle(known, "no longer asked");
  }
  sweep();
}

function sweep() {
  const section = at("approvals");
  if (!section.matches(":hover") && !section.contains(document.activeElement)) {
    for (const [id, { card }] of asks) {
      if (!card.classList.contains("over")) continue;
      card.remove();
      asks.delete(id);
    }
  }
  section.hidden = !asks.size && at("keyless").hidden;
  at("operator").hidden = state.mayDecide || !at("keyless").hidden;
}

/** What each app's runs are given; the operator sees all apps. */
function drawInjected() {
  const all = state.status?.injected ?? [];
  at("cost").hidden = !all.some((one) => one.tools + one.searched > 0);
  const rows = all.map((one) => {
    const [first, ...others] = one.largest.map((tool) => `${tool.name} ${tool.tokens.toLocaleString()}`);
    const more = others.map((tool) => make("li", "", tool));
    const largest = more.length ? make("details", "", make("summary", "", first), make("ul", "", ...more)) : first ?? "";
    return make("tr", "",
      cell("", make("strong", "", one.app)),
      cell("Tools", one.tools.toLocaleString(), "number"),
      cell("By search", one.searched.toLocaleString(), "number"),
      cell("Bytes", one.bytes.toLocaleString(), "number"),
      cell("Tokens", one.tokens.toLocaleString(), "number"),
      cell(first && "Largest tools", largest));
  });
  fill("injected", rows, "");
}

function drawBackends() {
  // An app's own setting may differ: the dearest counts.
  const tokens = new Map();
  for (const one of (state.status?.injected ?? []).flatMap((one) => one.backends)) {
    tokens.set(one.name, Math.max(one.tokens, tokens.get(one.name) ?? 0));
  }
  const rows = [...state.backends.values()].sort((a, b) => a.name < b.name ? -1 : 1).map((one) => {
    const refresh = make("button", "", "Refresh");
    refresh.setAttribute("aria-label", `Refresh ${one.name}`);
    refresh.onclick = () => refreshed(refresh, one.name);
    const how = [one.kind, one.transport, one.protocolVersion].filter(Boolean).join(" · ");
    const stale = one.stale ? make("span", "soft", " stale tools") : null;
    const breaker = one.breaker.state === "closed" ? null : make("span", "soft", " calls rejected");
    const last = one.lastCall
      ? make("span", "", ago(one.lastCall.at), one.lastCall.answered ? null : make("span", "soft", " no answer"))
      : "none yet";
    return make("tr", "",
      cell("", make("strong", "", one.name)),
      cell("", make("span", "", dot(one.state), stale, breaker)),
      cell("Reached by", how),
      cell("Tools", one.pin?.withdrawn ? `${Math.max(0, one.tools - one.pin.withdrawn)} of ${one.tools}` : String(one.tools), "number"),
      cell("Tokens", tokens.has(one.name) ? tokens.get(one.name).toLocaleString() : "", "number"),
      cell("In flight", String(one.callsInFlight), "number"),
      cell("Last call", last),
      cell("Last refresh", ago(one.lastRefresh)),
      cell("", refresh));
  });
  fill("backends", rows, "No backends. Add mcp, a2a or local entries to bridge.yaml.");
}

/** The differences from what was accepted, line by line. The operator accepts them here, or on the host. */
function drawTrust() {
  const tones = { "+": "added", "-": "removed" };
  const drawn = state.trust.filter((one) => one.damaged || one.findings.some((found) => found.change !== "gone")).map((one) => {
    const found = one.findings.map((found) => {
      const becomes = found.withdrawn ? ", withdrawn" : found.change === "gone" ? "" : ", still offered";
      const unseen = found.hidden.length ? make("span", "soft", ` with invisible characters: ${found.hidden.join(" ")}`) : null;
      const lines = found.diff.map((line) => make("span", tones[line[0]] ?? "", `${line}\n`));
      const name = found.tool === null ? make("span", "", "the card") : make("code", "", found.tool);
      return make("details", "", make("summary", "", name, make("span", "soft", found.change + becomes), unseen), make("pre", "", ...lines));
    });
    const command = `mantyx-bridge trust accept ${one.name} --all --digest ${one.digest.slice(0, 16)}`;
    const accept = make("button", "", "Accept all of it");
    accept.setAttribute("aria-label", `Accept all of ${one.name}`);
    const word = make("span", "soft", "");
    accept.onclick = () => accepted(accept, word, one);
    const section = make("section", "",
      make("p", "", make("strong", "", one.name), one.damaged ? ` Its accepted tools cannot be read: ${one.damaged}` : null),
      make("div", "", ...found),
      state.status?.operator
        ? make("p", "", accept, " ", word)
        : make("p", "soft", "As the user that the bridge runs as: ", make("code", "", command)));
    section.says = JSON.stringify([one, state.status?.operator]);
    return section;
  });
  at("trust").hidden = !drawn.length;
  put(at("findings"), drawn);
}

/** The tools of one ref, under the names that models see. */
function toolsOf(ref) {
  if (ref.kind === "mcp_local") {
    return ref.tools.map((tool) => ({ name: tool.name, text: tool.description ?? "", more: tool }));
  }
  if (ref.kind === "a2a_local") {
    const text = ref.description ?? ref.agentCard.description ?? "";
    return [{ name: ref.name, text, more: ref.agentCard }];
  }
  return [{ name: ref.name, text: ref.description ?? "", more: ref }];
}

function drawTools() {
  const wanted = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.tools.filter((tool) => {
    const text = `${tool.name} ${tool.text}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  at("found").textContent = wanted.length ? `${found.length} of ${state.tools.length}` : `${found.length}`;
  const drawn = found.map((tool) => {
    const line = tool.text.split("\n", 1)[0];
    const brief = line.length > 160 ? `${line.slice(0, 160)}…` : line;
    const made = make("details", "", make("summary", "", make("code", "", tool.name), make("span", "soft", brief)));
    // Large schemas are written only when a person opens the entry.
    made.addEventListener("toggle", () => made.append(
      brief === tool.text ? "" : make("p", "text", tool.text),
      make("pre", "", JSON.stringify(tool.more, null, 2))), { once: true });
    made.says = JSON.stringify(tool);
    return made;
  });
  put(at("tools"), found.length ? drawn : [make("p", "empty", state.tools.length ? "No tool has these words." : "No tools.")]);
}

function latest(map, newest) {
  const all = [...map.values()].sort(newest);
  for (const old of all.slice(5 * SHOWN)) map.delete(key(old));
  return all.slice(0, SHOWN);
}

const key = (one) => "number" in one ? one.number : `${one.workspace}/${one.kind}/${one.runId}`;

function drawRuns() {
  const rows = latest(state.runs, (a, b) => a.startedAt < b.startedAt ? 1 : -1).map((run) => make("tr", "",
    cell("", make("span", "", make("code", "", run.runId), run.kind === "eval" ? make("span", "soft", " eval") : null)),
    cell("App", run.app),
    cell("", dot(run.state)),
    cell("Started", clock(run.startedAt)),
    cell("Calls", String(run.calls), "number"),
    cell("In flight", String(run.callsInFlight), "number"),
    cell("Backends", run.backends.join(", "))));
  fill("runs", rows, "No runs since the bridge was started.");
}

function drawCalls() {
  const rows = latest(state.calls, (a, b) => b.number - a.number).map((call) => make("tr", "",
    cell("", clock(call.startedAt)),
    cell("App", call.app),
    cell("", make("code", "", call.name)),
    cell("Backend", call.backend),
    cell("", dot(call.outcome ?? (call.pending ? "pending" : call.state))),
    cell("Took", took(call.ms), "number"),
    cell("Run", call.runId ? make("code", "", call.runId) : "by hand")));
  fill("calls", rows, "No calls since the bridge was started.");
}

// Requests.

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

let approvals = 0;
async function readApprovals() {
  const mine = ++approvals;
  const response = await fetch("/v1/approvals", { headers: keyed() });
  if (mine !== approvals) return;
  at("keyless").hidden = response.status !== 401 || !state.status?.approvals.waiting;
  if (response.ok) {
    const { approvals: all, mayDecide } = await response.json();
    state.mayDecide = mayDecide;
    drawApprovals(all);
  } else sweep();
}

async function decide(id, decision) {
  const { buttons, word } = asks.get(id);
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const headers = { ...keyed(), "content-type": "application/json" };
    const body = JSON.stringify(decision);
    const response = await fetch(`/v1/approvals/${id}`, { method: "POST", headers, body });
    if (response.status === 401) location.reload();
    if (!response.ok) say(word, (await response.json()).message);
    await readApprovals();
  } catch {
    say(word, "The bridge was not reached.");
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

async function refreshed(button, name) {
  button.disabled = true;
  try {
    const response = await fetch(`/v1/backends/${name}/refresh`, { method: "POST" });
    if (response.status === 401) location.reload();
    if (response.ok) take("backend", await response.json());
  } finally {
    button.disabled = false;
  }
}

/** Accepts the differences that are drawn. If they have changed since, the bridge refuses. */
async function accepted(button, word, one) {
  button.disabled = true;
  try {
    const headers = { ...keyed(), "content-type": "application/json" };
    const body = JSON.stringify({ accept: "all", digest: one.digest });
    const response = await fetch(`/v1/trust/${one.name}`, { method: "POST", headers, body });
    if (!response.ok) say(word, (await response.json()).message);
    else await readTrust();
  } catch {
    say(word, "The bridge was not reached.");
  } finally {
    button.disabled = false;
  }
}

let trust = 0;
async function readTrust() {
  const mine = ++trust;
  const { backends } = await get("/v1/trust");
  if (mine !== trust) return;
  state.trust = backends;
  drawTrust();
}

let tools = 0;
async function readTools() {
  const mine = ++tools;
  const refs = await get("/v1/tool-refs");
  if (mine !== tools) return;
  state.tools = refs.tools.flatMap(toolsOf);
  drawTools();
}

/** Runs and calls are drawn at most a few times a second, however many change. */
const due = new Set();
function drawSoon(draw) {
  if (!due.size) setTimeout(() => { const all = [...due]; due.clear(); all.forEach((draw) => draw()); }, 150);
  due.add(draw);
}

function take(event, data) {
  if (event === "status") {
    state.status = data;
    drawSoon(drawStatus);
    // Reads the approvals if some wait, or if the hint about the key may be obsolete.
    if (!at("keyless").hidden || data.approvals.waiting) readApprovals().catch(lost);
  } else if (event === "approval") {
    readApprovals().catch(lost);
  } else if (event === "backend") {
    const before = state.backends.get(data.name);
    if (data.state === "removed") state.backends.delete(data.name);
    else state.backends.set(data.name, data);
    const isOther = before?.digest !== data.digest || JSON.stringify(before?.pin) !== JSON.stringify(data.pin);
    if (isOther) readTrust().catch(lost);
    if (isOther || (before?.state === "ready") !== (data.state === "ready")) readTools().catch(lost);
    drawSoon(drawBackends);
  } else if (event === "run") {
    state.runs.set(key(data), data);
    drawSoon(drawRuns);
  } else if (event === "call") {
    state.calls.set(key(data), data);
    drawSoon(drawCalls);
  }
}

async function readAll() {
  const [status, runs, calls] = await Promise.all([get("/v1/status"), get("/v1/runs"), get("/v1/calls"), readTools(), readTrust()]);
  at("version").textContent = status.version;
  state.backends = new Map(status.backends.map((one) => [one.name, one]));
  state.runs = new Map(runs.runs.map((one) => [key(one), one]));
  state.calls = new Map(calls.calls.map((one) => [key(one), one]));
  state.status = status;
  drawTrust();
  [drawStatus, drawBackends, drawRuns, drawCalls].forEach((draw) => draw());
  await readApprovals();
}

function live(word, tone) {
  at("live").textContent = word;
  at("live").className = `state push ${tone}`;
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
for (const leaving of ["pointerleave", "focusout"]) at("approvals").addEventListener(leaving, () => setTimeout(sweep));
// Redraws relative times and the durations of running calls.
setInterval(() => { if (state.status) [drawBackends, drawCalls].forEach(drawSoon); }, 30000);
follow();
