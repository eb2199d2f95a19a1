// The status page: draws the data of the bridge's API, and follows /v1/events.
//
// Text of apps and backends reaches the page only by `textContent`, never as markup.
"use strict";

/** How many rows a list has at first, and how many more a person gets at once. */
const SHOWN = 25;
/** How many runs and calls are kept. */
const KEPT = 500;
const HOUR = 3600000;
const state = { status: null, mayDecide: false, backends: new Map(), trust: [], tools: [], runs: new Map(), calls: new Map() };
const at = (id) => document.getElementById(id);

/** An element with a class, and children that are texts or elements. */
function make(tag, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null));
  return element;
}

function link(to, ...children) {
  const made = make("a", "", ...children);
  made.href = to;
  return made;
}

/** A table cell. Its label is shown if there is no room for columns. */
function cell(label, content, kind) {
  const made = make("td", kind, content);
  if (label) made.dataset.label = label;
  return made;
}

const TONES = {
  ready: "good", answered: "good", result: "good", driven: "good", live: "good", ended: "",
  degraded: "warn", connecting: "warn", running: "warn", waiting: "warn", pending: "warn", attaching: "warn",
  cancelled: "warn", not_approved: "warn", left: "warn", down: "bad", given_up: "bad",
};
/** The tone of a state, or of how a call has ended. */
const tone = (word) => TONES[word] ?? "bad";
const dot = (word) => make("span", `state ${tone(word)}`, word.replaceAll("_", " "));
/** Text with its commands and names, which stand between backticks, as such. */
const prose = (text) => make("span", "", ...text.split("`").map((part, at) => at % 2 ? make("code", "", part) : part));
const counted = (count, what) => `${count.toLocaleString()} ${what}${count === 1 ? "" : "s"}`;

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

/** How calls have ended: { at, ms, bad, backend }, of the last hour, the oldest first. */
let hour = [];
const known = new Set();
/** When the oldest call ended that this page can know of, or `null` if it knows the whole hour. */
let since = null;

function count(call) {
  const at = Date.parse(call.startedAt) + call.ms;
  if (call.state !== "answered" || known.has(call.number) || at < Date.now() - HOUR) return;
  known.add(call.number);
  hour.push({ at, ms: call.ms, bad: tone(call.outcome ?? "result") === "bad", backend: call.backend });
}

/** What the calls of the last hour say, of all backends or one. */
function measured(backend) {
  const all = backend === undefined ? hour : hour.filter((one) => one.backend === backend);
  const times = all.map((one) => one.ms).sort((a, b) => a - b);
  const share = (part) => times.length ? took(times[Math.min(times.length - 1, Math.floor(part * times.length))]) : "–";
  return { calls: all.length, errors: all.filter((one) => one.bad).length, p50: share(0.5), p95: share(0.95) };
}

/** Bars of the last sixty minutes. */
function bars(values, kind, label) {
  const svg = (tag, facts) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
    return made;
  };
  const most = Math.max(1, ...values);
  const made = svg("svg", { viewBox: "0 0 240 32", preserveAspectRatio: "none", role: "img", "aria-label": label });
  values.forEach((value, at) => {
    const height = value ? Math.max(2, 32 * value / most) : 0.5;
    made.append(svg("rect", { x: 4 * at, y: 32 - height, width: 3, height, class: kind }));
  });
  return made;
}

function tile(title, value, note, ...more) {
  const made = make("div", "tile", make("span", "soft", title), make("b", "", value), make("span", "soft", note), ...more);
  made.says = JSON.stringify([title, value, note, more.map((one) => one.outerHTML)]);
  return made;
}

function drawTiles() {
  const now = Date.now();
  const old = hour.findIndex((one) => one.at >= now - HOUR);
  hour = old < 0 ? [] : hour.slice(old);
  const minutes = (take) => {
    const all = Array(60).fill(0);
    for (const one of hour.filter(take)) all[Math.min(59, Math.floor((one.at - (now - HOUR)) / 60000))] += 1;
    return all;
  };
  const { calls, errors, p50, p95 } = measured();
  const [all, bad, slow] = [minutes(() => true), minutes((one) => one.bad), minutes((one) => one.ms >= 1000)];
  const soFar = since && since > now - HOUR ? ` since ${new Date(since).toLocaleTimeString()}` : " in the last hour";
  const inFlight = [...state.backends.values()].reduce((sum, one) => sum + one.callsInFlight, 0);
  const dearest = (state.status.injected ?? []).reduce((most, one) => one.tokens > (most?.tokens ?? -1) ? one : most, null);
  put(at("tiles"), [
    tile("Calls a minute", (all.slice(-5).reduce((a, b) => a + b, 0) / 5).toLocaleString(undefined, { maximumFractionDigits: 1 }),
      counted(calls, "call") + soFar, bars(all, "", `${counted(calls, "call")}, by minute`)),
    tile("Errors", errors.toLocaleString(), calls ? `${(100 * errors / calls).toFixed(1)} % of calls` : "no calls", bars(bad, "bad-bar", `${counted(errors, "error")}, by minute`)),
    tile("Half of the calls take", p50, calls ? `95 % take at most ${p95}` : "no calls", bars(slow, "", `calls of a second or more, by minute`)),
    tile("Runs driven now", state.status.runs.driven.toLocaleString(), `${counted(inFlight, "call")} in flight`),
    tile("Tokens in each run", dearest ? dearest.tokens.toLocaleString() : "0", dearest ? `the definitions of ${counted(dearest.tools, "tool")}, app ${dearest.app}` : "no tools"),
  ]);
}

/** The number of a section's matters, beside its name. */
function badge(section, number) {
  at(`count-${section}`).textContent = number;
  at(`count-${section}`).hidden = !number;
}

function drawStatus() {
  const { upstream, runs, problems, approvals, runtimes, replicas } = state.status;
  const reached = { true: "reachable", false: "not reachable", null: "not asked yet" }[String(upstream.reachable)];
  at("upstream").replaceChildren("MANTYX: ", make("code", "", upstream.baseUrl), ` ${reached}`);
  at("driven").textContent = `${runs.driven} driven now`;
  at("group").hidden = !replicas.length;
  fill("replicas", replicas.map((one) => make("tr", "", cell("", make("span", "", make("strong", "", one.host), one.isSelf ? make("span", "soft", " answers this page") : null)),
    cell("Version", one.version), cell("Since", ago(one.since)))), "");
  at("others").hidden = !runtimes.length;
  fill("runtimes", runtimes.map((one) => make("tr", "",
    cell("", make("strong", "", one.name)), cell("", dot(one.state)), cell("Kind", one.kind),
    cell("Open calls", String(one.openCalls), "number"))), "");
  put(at("problems"), problems.map((problem) => {
    const made = make("div", "problem", make("p", "", make("strong", "", problem.subject), ": ", prose(problem.message)), make("p", "soft", prose(problem.cure)));
    made.says = JSON.stringify(problem);
    return made;
  }));
  const news = problems.length + approvals.waiting;
  document.title = news ? `(${news}) mantyx-bridge` : "mantyx-bridge";
  badge("overview", news);
  const all = [...state.backends.values()];
  badge("backends", all.filter((one) => one.state === "down").length);
  badge("trust", all.reduce((sum, one) => sum + (one.pin?.changed ?? 0), 0));
  const told = [
    approvals.waiting ? `${counted(approvals.waiting, "call")} ${approvals.waiting === 1 ? "waits" : "wait"} for you` : "",
    problems.length ? counted(problems.length, "problem") : "",
  ].filter(Boolean);
  const isNew = !all.length && !told.length;
  at("verdict").textContent = isNew ? "No backends yet: add mcp, a2a or local entries to bridge.yaml"
    : told.length ? told.join(", ") : `All is well: ${counted(all.length, "backend")}, nothing waits for you`;
  at("verdict").className = `state ${problems.length ? "bad" : approvals.waiting || isNew ? "warn" : "good"}`;
}

function drawLatest() {
  const rows = [...state.calls.values()].sort((a, b) => b.number - a.number).slice(0, 5).map((call) => make("tr", "", ...ofCall(call)));
  fill("latest", rows, "No calls since the bridge was started.");
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
  const type = Array.isArray(field.type) ? field.type.find((one) => one !== "null") : field.type;
  const isJson = type === "array" ? !["string", undefined].includes(field.items?.type) : !["string", "number", "integer", "boolean"].includes(type);
  if (isJson) {
    made.placeholder = "JSON";
    made.value = field.default === undefined ? "" : JSON.stringify(field.default);
    // What is no JSON goes as the text that it is, and the bridge says so.
    const parsed = () => { try { return JSON.parse(made.value); } catch { return made.value; } };
    return [made, () => made.value.trim() === "" ? undefined : parsed()];
  }
  if (type === "boolean") {
    made.type = "checkbox";
    made.checked = field.default === true;
    return [made, () => made.checked];
  }
  made.value = field.default === undefined ? "" : field.default;
  if (type === "array") {
    made.placeholder = "one, another";
    return [made, () => made.value ? made.value.split(",").map((one) => one.trim()) : undefined];
  }
  if (type !== "string") {
    made.inputMode = "decimal";
    // What is no number goes as it is, and the bridge says so.
    return [made, () => made.value.trim() === "" ? undefined : Number.isNaN(Number(made.value)) ? made.value : Number(made.value)];
  }
  made.type = { date: "date", "date-time": "text", email: "email", uri: "url" }[field.format] ?? "text";
  return [made, () => made.value === "" && !isRequired ? undefined : made.value];
}

/** The inputs of a schema's properties, and how what they hold is read. */
function fields(id, of) {
  const required = Array.isArray(of?.required) ? of.required : [];
  const all = Object.entries(of?.properties ?? {}).map(([name, field], at) => {
    const [element, value] = input(field ?? {}, required.includes(name));
    element.id = `${id}-${at}`;
    element.required = required.includes(name) && element.type !== "checkbox";
    const label = make("label", "", plain(field?.title ?? name), required.includes(name) ? make("span", "bad-word", " required") : null);
    label.htmlFor = element.id;
    const text = field?.description === undefined ? null : make("small", "soft", plain(field.description));
    return { name, value, row: make("div", "field", label, element, text) };
  });
  const read = () => Object.fromEntries(all.map(({ name, value }) => [name, value()]).filter(([, value]) => value !== undefined));
  return { element: make("div", "fields", ...all.map(({ row }) => row)), read };
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
  const { element, read } = fields(id, question.requestedSchema);
  return { elements: [title, element], read };
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
  const problems = new Map((state.status?.problems ?? []).map((one) => [one.subject, one]));
  // Backends with trouble stand first.
  const rank = (one) => one.state === "ready" && one.breaker.state === "closed" ? 1 : 0;
  const rows = [...state.backends.values()].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1)).map((one) => {
    const refresh = make("button", "", "Refresh");
    refresh.setAttribute("aria-label", `Refresh ${one.name}`);
    refresh.onclick = () => refreshed(refresh, one.name);
    const how = [one.kind, one.transport, one.protocolVersion].filter(Boolean).join(" · ");
    const stale = one.stale ? make("span", "soft", " stale tools") : null;
    const breaker = one.breaker.state === "closed" ? null : make("span", "soft", " calls rejected");
    const problem = problems.get(one.name);
    const why = problem ? make("span", "why", make("span", "bad-word", prose(problem.message)), make("br"), make("span", "soft", prose(problem.cure))) : null;
    const last = one.lastCall
      ? make("span", "", ago(one.lastCall.at), one.lastCall.answered ? null : make("span", "soft", " no answer"))
      : "none yet";
    const { calls, errors, p95 } = measured(one.name);
    const row = make("tr", "",
      cell("", make("span", "", make("strong", "", one.name), make("br"), make("small", "soft how", how))),
      cell("", make("span", "", dot(one.state), stale, breaker, why)),
      cell("Tools", one.pin?.withdrawn ? `${Math.max(0, one.tools - one.pin.withdrawn)} of ${one.tools}` : String(one.tools), "number"),
      cell("Tokens", tokens.has(one.name) ? tokens.get(one.name).toLocaleString() : "", "number"),
      cell("In flight", String(one.callsInFlight), "number"),
      cell("Calls in the last hour", calls.toLocaleString(), "number"),
      cell("Errors", errors.toLocaleString(), `number ${errors ? "bad-word" : ""}`),
      cell("p95", p95, "number"),
      cell("Last call", last),
      cell("Refreshed", ago(one.lastRefresh)),
      cell("", refresh));
    row.dataset.backend = one.name;
    return row;
  });
  fill("backends", rows, "No backends. Add mcp, a2a or local entries to bridge.yaml.");
}

/** Which words two texts do not share, by their longest common part; `null` if they are too long. */
function changedWords(before, after) {
  const [a, b] = [before, after].map((text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []);
  if (a.length * b.length > 4e6) return null;
  const width = b.length + 1;
  const best = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const parts = [[], []];
  const add = (side, word, isNew) => {
    const last = parts[side].at(-1);
    if (last?.isNew === isNew) last.text += word;
    else parts[side].push({ text: word, isNew });
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add(0, a[i++], false);
      add(1, b[j++], false);
    } else if (j >= b.length || (i < a.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) add(0, a[i++], true);
    else add(1, b[j++], true);
  }
  return parts;
}

/** The lines of a difference; of a line that replaces another one, the changed words are marked. */
function diff(lines) {
  const marked = (tag, kind, line, parts) => parts === undefined || parts === null
    ? make("span", kind, `${line}\n`)
    : make("span", kind, line[0], ...parts.map(({ text, isNew }) => isNew ? make(tag, "", text) : text), "\n");
  const made = [];
  for (let at = 0; at < lines.length;) {
    const run = (sign, from) => {
      let to = from;
      while (to < lines.length && lines[to][0] === sign) to++;
      return lines.slice(from, to);
    };
    const gone = run("-", at);
    const come = run("+", at + gone.length);
    const pairs = Array.from({ length: Math.min(gone.length, come.length) }, (_, one) => changedWords(gone[one].slice(1), come[one].slice(1)));
    gone.forEach((line, one) => made.push(marked("del", "removed", line, pairs[one]?.[0])));
    come.forEach((line, one) => made.push(marked("ins", "added", line, pairs[one]?.[1])));
    at += gone.length + come.length;
    if (!gone.length && !come.length) made.push(marked("", "", lines[at++]));
  }
  return make("pre", "diff", ...made);
}

/** The differences from what was accepted. The operator accepts them here, or on the host. */
function drawTrust() {
  const drawn = state.trust.filter((one) => one.damaged || one.findings.some((found) => found.change !== "gone")).map((one) => {
    const found = one.findings.map((found) => {
      const becomes = found.withdrawn ? ", withdrawn" : found.change === "gone" ? "" : ", still offered";
      const unseen = found.hidden.length ? make("span", "soft", ` with invisible characters: ${found.hidden.join(" ")}`) : null;
      const name = found.tool === null ? make("span", "", "the card") : make("code", "", found.tool);
      const made = make("details", "", make("summary", "", name, make("span", "soft", found.change + becomes), unseen), diff(found.diff));
      made.open = one.findings.length <= 20;
      return made;
    });
    const command = `mantyx-bridge trust accept ${one.name} --all --digest ${one.digest.slice(0, 16)}`;
    const accept = make("button", "accept", `Accept all of ${one.name}`);
    const word = make("span", "soft", "");
    accept.onclick = () => accepted(accept, word, one);
    const section = make("section", "finding",
      make("p", "", make("strong", "", one.name), one.damaged ? ` Its accepted tools cannot be read: ${one.damaged}` : null),
      make("div", "", ...found),
      state.status?.operator
        ? make("p", "", accept, make("span", "soft", " What you do not accept stays as it is. "), word)
        : make("p", "soft", "As the user that the bridge runs as: ", make("code", "", command)));
    section.says = JSON.stringify([one, state.status?.operator]);
    return section;
  });
  put(at("findings"), drawn.length ? drawn : [make("p", "empty", "Everything that backends show a model is accepted.")]);
}

/** The tools of one ref, under the names that models see. */
function toolsOf(ref) {
  if (ref.kind === "mcp_local") {
    return ref.tools.map((tool) => ({ name: tool.name, text: tool.description ?? "", more: tool, group: ref.name }));
  }
  if (ref.kind === "a2a_local") {
    const text = ref.description ?? ref.agentCard.description ?? "";
    return [{ name: ref.name, text, more: ref.agentCard, group: "Agents" }];
  }
  return [{ name: ref.name, text: ref.description ?? "", more: ref, group: "Local tools" }];
}

/** A tool's arguments as a table. */
function schema(of) {
  const required = Array.isArray(of?.required) ? of.required : [];
  const rows = Object.entries(of?.properties ?? {}).map(([name, one]) => {
    const type = [one?.type ?? one?.anyOf?.map((it) => it.type) ?? []].flat().filter(Boolean).join(" or ");
    const more = [one?.enum && `one of ${one.enum.map((it) => JSON.stringify(it)).join(", ")}`, one?.default !== undefined && `default ${JSON.stringify(one.default)}`]
      .filter(Boolean).join("; ");
    return make("tr", "", cell("", make("span", "", make("code", "", name), required.includes(name) ? make("span", "soft", " required") : null)),
      cell("Type", type), cell("", [one?.description, more].filter(Boolean).join(" · ")));
  });
  return rows.length ? make("table", "schema", make("tbody", "", ...rows)) : make("p", "soft", "It takes no arguments.");
}

/** A form that calls a tool. What needs approval waits on the overview, as a run's call does. */
function attempt(tool) {
  const ofAgent = { properties: { message: { type: "string", description: "What the agent is asked." } }, required: ["message"] };
  const { element, read } = fields(`try-${tool.name}`, tool.more.inputSchema ?? tool.more.parameters ?? ofAgent);
  // The operator is no app: the call is made as one of them.
  const apps = state.status.operator ? (state.status.injected ?? []).map((one) => one.app) : [];
  const app = make("select", "", ...apps.map((name) => new Option(name, name)));
  const button = make("button", "", "Call it");
  const answer = make("pre", "", "");
  answer.hidden = true;
  answer.setAttribute("role", "status");
  const made = make("form", "try", element, make("p", "", button, " ",
    apps.length > 1 ? make("label", "", "as app ", app) : null, make("span", "soft", " This makes the call, with its effects.")), answer);
  made.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.hidden = false;
    answer.textContent = "It runs. If it waits for a person, the overview shows it.";
    try {
      const toolUseId = `page_${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
      const body = JSON.stringify({ toolUseId, name: tool.name, args: read() });
      const as = apps.length ? `?app=${encodeURIComponent(app.value)}` : "";
      const response = await fetch(`/v1/tool-calls${as}`, { method: "POST", headers: { ...keyed(), "content-type": "application/json" }, body });
      const { result, error, message } = await response.json();
      answer.textContent = plain(message ?? error ?? result ?? "");
      answer.className = response.ok && error === undefined ? "" : "bad-word";
    } catch {
      answer.textContent = "The bridge was not reached, or it ended: the call may have taken effect.";
    } finally {
      button.disabled = false;
    }
  };
  return made;
}

function drawTool(tool) {
  const line = tool.text.split("\n", 1)[0];
  const brief = line.length > 160 ? `${line.slice(0, 160)}…` : line;
  const hints = tool.more.annotations ?? {};
  const chip = (text, kind) => make("span", `chip ${kind}`, text);
  const made = make("details", "tool", make("summary", "", make("code", "", tool.name), make("span", "soft", brief),
    hints.readOnlyHint || tool.more.readOnly ? chip("reads only", "") : null,
    hints.destructiveHint === true ? chip("destructive", "warn-chip") : null));
  // Schemas are written only when a person opens the entry.
  made.addEventListener("toggle", () => made.append(
    brief === tool.text ? "" : make("p", "text", tool.text),
    tool.more.inputSchema || tool.more.parameters ? schema(tool.more.inputSchema ?? tool.more.parameters) : "",
    make("details", "", make("summary", "soft", "Try it"), attempt(tool)),
    make("details", "", make("summary", "soft", "JSON"), make("pre", "", JSON.stringify(tool.more, null, 2)))), { once: true });
  made.says = JSON.stringify(tool);
  return made;
}

/** The groups that are drawn, by name; a group's tools are drawn while it is open. */
const groups = new Map();
function drawTools() {
  drawInjected();
  const wanted = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.tools.filter((tool) => {
    const text = `${tool.name} ${tool.text}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  at("found").textContent = wanted.length ? `${found.length} of ${counted(state.tools.length, "tool")}` : counted(found.length, "tool");
  const all = Map.groupBy(found, (tool) => tool.group);
  const drawn = [...all].map(([name, tools]) => {
    const group = groups.get(name) ?? (() => {
      const made = make("details", "group", make("summary", "", make("strong", "", name), make("span", "soft", "")), make("div", ""));
      made.says = name;
      // Few tools are shown at once, many when a person wants them.
      made.open = state.tools.length <= 60;
      made.addEventListener("toggle", () => made.fill());
      groups.set(name, made);
      return made;
    })();
    group.querySelector("summary span").textContent = counted(tools.length, "tool");
    group.fill = () => put(group.lastElementChild, group.open ? tools.map(drawTool) : []);
    if (wanted.length) group.open = true;
    group.fill();
    return group;
  });
  put(at("tools"), drawn.length ? drawn : [make("p", "empty", state.tools.length ? "No tool has these words." : "No tools.")]);
}

const shown = { runs: SHOWN, calls: SHOWN };
/** The latest ones that match, as many as a person wants to see. */
function latest(list, newest, matches) {
  const all = [...state[list].values()].sort(newest);
  for (const old of all.slice(KEPT)) state[list].delete(key(old));
  const found = all.filter(matches);
  const more = at(`more-${list}`);
  more.hidden = found.length <= shown[list];
  more.textContent = `Show ${Math.min(SHOWN, found.length - shown[list])} more of ${found.length}`;
  more.onclick = () => { shown[list] += SHOWN; drawActivity(); };
  return found.slice(0, shown[list]);
}

const key = (one) => "number" in one ? one.number : `${one.workspace}/${one.kind}/${one.runId}`;

/** Offers the values that there are, and returns whether something has the chosen ones. */
function filtered() {
  const all = [...state.calls.values()];
  const offer = (id, words) => {
    const list = at(id);
    for (const word of new Set(words)) {
      if (![...list.options].some((option) => option.value === word)) list.add(new Option(word.replaceAll("_", " "), word));
    }
    return list.value;
  };
  const app = offer("by-app", [...all, ...state.runs.values()].map((one) => one.app));
  const backend = offer("by-backend", all.map((one) => one.backend));
  const how = offer("by-state", all.map(stateOf));
  const text = at("by-text").value.trim().toLowerCase();
  const has = (...words) => words.some((word) => word?.toLowerCase().includes(text));
  return {
    call: (one) => (!app || one.app === app) && (!backend || one.backend === backend) && (!how || stateOf(one) === how) && has(one.name, one.runId),
    run: (one) => (!app || one.app === app) && (!backend || one.backends.includes(backend)) && has(one.runId),
  };
}

const stateOf = (call) => call.outcome ?? (call.pending ? "pending" : call.state);

/** The cells that every list of calls has. */
const ofCall = (call) => [
  cell("", clock(call.startedAt)), cell("App", call.app), cell("", make("code", "", call.name)), cell("Backend", call.backend),
  cell("", dot(stateOf(call))), cell("Took", took(call.ms), "number"),
];

const runLink = (run) => link(`#activity/${encodeURIComponent(key(run))}`, make("code", "", run.runId));

function drawActivity() {
  const [, one] = location.hash.split("/");
  at("run").hidden = !one;
  at("lists").hidden = !!one;
  if (one) return drawRun(state.runs.get(decodeURIComponent(one)));
  const matches = filtered();
  const runs = latest("runs", (a, b) => a.startedAt < b.startedAt ? 1 : -1, matches.run).map((run) => make("tr", "",
    cell("", make("span", "", runLink(run), run.kind === "eval" ? make("span", "soft", " eval") : null)),
    cell("App", run.app),
    cell("", dot(run.state)),
    cell("Started", clock(run.startedAt)),
    cell("Calls", String(run.calls), "number"),
    cell("In flight", String(run.callsInFlight), "number"),
    cell("Backends", run.backends.join(", "))));
  fill("runs", runs, state.runs.size ? "No run is like that." : "No runs since the bridge was started.");
  const ofRun = (id) => [...state.runs.values()].find((run) => run.runId === id);
  const calls = latest("calls", (a, b) => b.number - a.number, matches.call).map((call) => {
    const run = call.runId && ofRun(call.runId);
    return make("tr", "", ...ofCall(call), cell("Run", run ? runLink(run) : call.runId ? make("code", "", call.runId) : "by hand"));
  });
  fill("calls", calls, state.calls.size ? "No call is like that." : "No calls since the bridge was started.");
}

/** What a call was made with, and its answer, for the operator. */
async function showTexts(place, number) {
  const response = await fetch(`/v1/calls/${number}`, { headers: keyed() });
  const { arguments: given, answer, message } = await response.json();
  place.append(message ? make("p", "soft", message) : make("div", "", make("p", "soft", "Arguments"), make("pre", "", plain(given)),
    make("p", "soft", "Answer"), make("pre", "", plain(answer || "none yet"))));
}

/** One run: what it is, and a bar for each of its calls. */
function drawRun(run) {
  const back = make("p", "", link("#activity", "All activity"));
  if (!run) return put(at("run"), [back, make("p", "empty", "The bridge does not know this run any more.")]);
  const calls = [...state.calls.values()].filter((call) => call.runId === run.runId).sort((a, b) => a.number - b.number);
  const begins = Date.parse(run.startedAt);
  const ends = run.endedAt ? Date.parse(run.endedAt) : Math.max(Date.now(), begins + 1);
  const place = (at) => `${Math.min(100, Math.max(0, 100 * (at - begins) / Math.max(1, ends - begins)))}%`;
  const drawn = calls.map((call) => {
    const started = Date.parse(call.startedAt);
    const bar = make("span", { bad: "bad-bar", warn: "warn-bar" }[tone(stateOf(call))] ?? "");
    bar.style.left = place(started);
    bar.style.width = `calc(${place(started + call.ms)} - ${place(started)})`;
    const waited = make("span", "waited");
    waited.style.width = `${100 * call.waitedMs / Math.max(1, call.ms)}%`;
    bar.append(waited);
    const person = call.waitedMs ? `, ${took(call.waitedMs)} of it for a person` : "";
    const line = make("div", "bar", make("code", "", call.name), make("div", "track", bar),
      make("span", "number", `${took(call.ms)} `, dot(stateOf(call)), person ? make("small", "soft", person) : null));
    if (!state.status.operator) return line;
    const made = make("details", "", make("summary", "", line));
    made.addEventListener("toggle", () => showTexts(made, call.number), { once: true });
    made.says = JSON.stringify([call.number, stateOf(call)]);
    return made;
  });
  const facts = [dot(run.state), `, app ${run.app}, started `, clock(run.startedAt), run.endedAt ? `, took ${took(ends - begins)}` : "",
    `, ${counted(run.calls, "call")}`];
  // The bars stay, so that what a person has opened stays open.
  const bars = at("run").querySelector(".bars") ?? make("div", "bars");
  bars.says = "bars";
  put(bars, drawn);
  put(at("run"), [back, make("h2", "", make("code", "", run.runId)), make("p", "", ...facts),
    drawn.length ? bars : make("p", "empty", "It has made no calls that the bridge remembers.")]);
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
      || (before?.state === "ready") !== (data.state === "ready");
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

async function readAll() {
  const [status, { calls }] = await Promise.all([get("/v1/status"), get("/v1/calls")]);
  at("version").textContent = status.version;
  if (status.uptimeSeconds < (state.status?.uptimeSeconds ?? 0)) {
    // The bridge was restarted, and numbers its calls from 0 again.
    known.clear();
    state.runs.clear();
  }
  state.backends = new Map(status.backends.map((one) => [one.name, one]));
  state.calls = new Map(calls.map((one) => [key(one), one]));
  calls.sort((a, b) => a.number - b.number).forEach(count);
  hour.sort((a, b) => a.at - b.at);
  since ??= calls.length && calls[0].number > 0 ? Date.parse(calls[0].startedAt) : Date.now() - 1000 * status.uptimeSeconds;
  state.status = status;
  drawStatus();
  show();
  await readApprovals();
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
// Redraws relative times and the durations of running calls.
setInterval(() => { if (state.status) drawSoon(drawView); }, 30000);
follow();
