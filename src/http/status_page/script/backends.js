// The backends.

/** The states of the last hour as a strip, the latest at the right. */
function strip(name) {
  const states = state.details.get(name)?.states ?? [];
  if (!states.length) return "";
  const from = Math.max(Date.now() - HOUR, Math.min(Date.parse(states[0].since), Date.now() - 60000));
  const parts = states.map((one, at) => {
    const [begins, ends] = [one.since, states[at + 1]?.since ?? Date.now()].map((time) => Math.max(from, new Date(time).getTime()));
    const part = make("span", { bad: "bad-bar", warn: "warn-bar" }[tone(one.state)] ?? (one.state === "disabled" ? "off-bar" : ""));
    part.style.flexGrow = ends - begins;
    part.title = `${one.state} since ${new Date(one.since).toLocaleString()}`;
    return ends > begins ? part : null;
  });
  const made = make("span", "strip", ...parts);
  const last = states.at(-1);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", `${last.state} since ${new Date(last.since).toLocaleString()}; ${counted(states.length - 1, "change")} before`);
  return made;
}

/** For how long a backend is in a state that is not the usual one, and what its program has printed last while it starts. */
const age = (one) => one.since && one.state !== "ready"
  ? make("span", "soft", ` for ${lasting(one.since)}${one.queued ? ", waits for its turn" : ""}${one.lastOutput ? `: ${one.lastOutput}` : ""}`) : null;

const backendLink = (name) => link(`#backends/${encodeURIComponent(name)}`, name);

/** The steps of a doctor's run. */
function steps(report) {
  const errors = (report.errors ?? []).map((one) => ({ verdict: "fail", step: "file", finding: one.message ?? String(one) }));
  const all = [...errors, ...(report.examined ?? []).flatMap((one) => one.steps)];
  return make("ul", "steps", ...all.map((one) => make("li", "",
    make("strong", `state ${tone(one.verdict)}`, one.step), " ", prose(plain(one.finding)),
    one.cure ? make("p", "soft", "To do: ", cure(plain(one.cure))) : null)));
}

/** The part of a backend's page that has the doctor examine it. */
function doctor(name) {
  const button = make("button", "", "Run the doctor");
  button.type = "button";
  const result = make("div", "", make("p", "soft", "It reads bridge.yaml as it is now, and tries each step by a connection of its own."));
  result.setAttribute("aria-live", "polite");
  button.onclick = async () => {
    button.disabled = true;
    result.replaceChildren(make("p", "soft", "It looks …"));
    try {
      const response = await fetch(`/v1/backends/${name}/doctor`, { method: "POST", headers: keyed() });
      const report = await response.json();
      result.replaceChildren(response.ok ? steps(report) : make("p", "bad-word", report.message));
    } catch {
      result.replaceChildren(make("p", "bad-word", "The bridge was not reached."));
    } finally {
      button.disabled = false;
    }
  };
  const made = make("section", "", make("h2", "", "Doctor"), make("p", "", button), result);
  made.says = `doctor ${name}`;
  return made;
}

/** Runs the doctor on the page that is drawn, if a person has come here for that. */
function examineIfAsked(name) {
  if (examinedNext !== name) return;
  const button = [...at("backend").querySelectorAll("section button")].find((one) => one.textContent === "Run the doctor");
  if (!button) return;
  examinedNext = null;
  button.scrollIntoView({ block: "center" });
  button.click();
}

/** What is wrong or odd, and what to do; its buttons stay while it does. */
function withCure(kind, { message, cure: whatToDo }) {
  const made = make("div", kind, make("p", "", prose(message)), make("p", "soft", cure(whatToDo)));
  made.says = JSON.stringify([kind, message, whatToDo]);
  return made;
}

/** The last lines of a backend's program. Where a problem is told above, a person opens them. */
function lastLines(name, stderr, hasProblem) {
  const lines = make("pre", "", stderr.map(plain).join("\n"));
  const made = make("details", "", make("summary", "", "stderr ", make("small", "soft", `the last ${counted(stderr.length, "line")} of its program`)), lines);
  made.open = !hasProblem;
  made.says = JSON.stringify([name, stderr, hasProblem]);
  return made;
}

/** One backend. */
function drawBackend(name) {
  const one = state.backends.get(name);
  const back = make("p", "", link("#backends", "All backends"));
  if (!one) return put(at("backend"), [back, make("p", "empty", "The bridge has no such backend.")]);
  const { states = [], approve = [], stderr = [] } = state.details.get(name) ?? {};
  const problem = (state.status.problems ?? []).find((problem) => problem.subject === name);
  const { calls, errors, p50, p95 } = measured(name);
  const facts = [
    ["Kind", [one.kind, one.transport, one.protocolVersion].filter(Boolean).join(" · ")],
    ["State since", states.length ? ago(states.at(-1).since) : ""],
    ["Tools", `${one.tools}${approve.length ? `, ${approve.length} of them by approval` : ""}`],
    ["Refreshed", ago(one.lastRefresh)],
    ["In the last hour", calls ? `${counted(calls, "call")}, ${counted(errors, "error")}; half take ${p50}, 95 % at most ${p95}` : "no calls"],
    ["In flight", String(one.callsInFlight)],
    ["Circuit breaker", one.breaker.retryAt ? `${one.breaker.state} until ${new Date(one.breaker.retryAt).toLocaleTimeString()}` : one.breaker.state],
    ...(one.signature ? [["Card", one.signature.valid ? `signed${one.signature.key ? ` by ${one.signature.key}` : ""}` : `not signed: ${one.signature.error}`]] : []),
  ];
  const its = [...state.calls.values()].filter((call) => call.backend === name).sort((a, b) => b.number - a.number).slice(0, 10);
  put(at("backend"), [
    back,
    make("h2", "named", name, dot(one.state), age(one)),
    allActions(one),
    one.state === "disabled" ? make("p", "note", "The operator has disabled it: it has no connection, and its tools are not available, until it is enabled or the bridge restarts.") : make("div", ""),
    problem ? withCure("problem", problem) : make("div", ""),
    one.remark ? withCure("note", one.remark) : make("div", ""),
    make("div", "", make("p", "soft", "The last hour"), strip(name)),
    make("dl", "facts", ...facts.flatMap(([word, fact]) => [make("dt", "soft", word), make("dd", "", fact)])),
    stderr.length ? lastLines(name, stderr, !!problem) : make("div", ""),
    state.status.operator ? doctor(name) : make("div", ""),
    make("div", "", make("h2", "", "Latest calls ", make("small", "", link("#activity", "all of them"))),
      its.length ? make("table", "", make("tbody", "", ...its.map((call) => make("tr", "", ...ofCall(call))))) : make("p", "empty", "None that the bridge remembers.")),
  ]);
  examineIfAsked(name);
}

function drawBackends() {
  const [, named] = location.hash.split("/");
  at("backend").hidden = !named;
  at("backends").hidden = !!named;
  if (named) return drawBackend(decodeURIComponent(named));
  // An app's own setting may differ: the dearest counts.
  const tokens = new Map();
  for (const one of (state.status?.injected ?? []).flatMap((one) => one.backends)) {
    tokens.set(one.name, Math.max(one.tokens, tokens.get(one.name) ?? 0));
  }
  const problems = new Map((state.status?.problems ?? []).map((one) => [one.subject, one]));
  // Backends that need something stand first, then those that are off, then all others.
  const rank = (one) => one.state === "down" ? 0 : problems.has(one.name) || !isWell(one) ? 1 : one.state === "disabled" ? 2 : 3;
  const rows = [...state.backends.values()].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1)).flatMap((one) => {
    const word = make("span", "bad-word", "");
    const isOff = one.state === "disabled";
    const action = isOff && !state.status.operator ? "" : actionButton(one, isOff ? ENABLE : isWell(one) ? REFRESH : TRY, word);
    const how = [one.kind, one.transport, one.protocolVersion].filter(Boolean).join(" · ");
    const stale = one.stale && !isOff ? make("span", "soft", " stale tools") : null;
    const needs = needsLogin(one) && !isOff ? make("span", "chip warn-chip", "needs a login") : null;
    const breaker = one.breaker.state === "closed" ? null : make("span", "soft", " calls rejected");
    const problem = problems.get(one.name);
    const last = one.lastCall
      ? make("span", "", ago(one.lastCall.at), one.lastCall.answered ? null : make("span", "soft", " no answer"))
      : "none yet";
    const { calls, errors, p95 } = measured(one.name);
    const row = make("tr", "",
      cell("", make("span", "", make("strong", "", backendLink(one.name)), make("br"), make("small", "soft how", how))),
      cell("", make("span", "", dot(one.state), age(one), needs, stale, breaker, strip(one.name))),
      cell("Tools", one.pin?.withdrawn ? `${Math.max(0, one.tools - one.pin.withdrawn)} of ${one.tools}` : String(one.tools), "number"),
      cell("Tokens", tokens.has(one.name) ? tokens.get(one.name).toLocaleString() : "", "number"),
      cell("In flight", String(one.callsInFlight), `number ${one.callsInFlight ? "" : "none"}`),
      cell("Calls in the last hour", calls.toLocaleString(), "number"),
      cell("Errors", errors.toLocaleString(), `number ${errors ? "bad-word" : "none"}`),
      cell("p95", p95, `number ${calls ? "" : "none"}`),
      cell("Last call", last),
      cell("Refreshed", ago(one.lastRefresh)),
      cell("", make("span", "", action, word), "act"));
    row.dataset.backend = one.name;
    return problem ? [row, whyRow(one, problem)] : [row];
  });
  fill("backends", rows, "No backends yet. The overview shows how to add one.");
}

/** The row below a backend's own: what is wrong, in the whole width. */
function whyRow(one, problem) {
  const content = make("div", "", make("p", "bad-word", prose(problem.message)), make("p", "soft", cure(problem.cure)), remedies(one, problem, []));
  const why = cell("", content, "why");
  why.colSpan = at("backends").tHead.rows[0].cells.length;
  const row = make("tr", "why-row", why);
  row.says = JSON.stringify([one.name, problem, one.needs, state.status.operator]);
  return row;
}

let details = 0;
async function readDetails() {
  const mine = ++details;
  const response = await fetch("/v1/backends", { headers: keyed() });
  // Without the key of the session, there are no details.
  if (mine !== details || !response.ok) return;
  state.details = new Map((await response.json()).backends.map((one) => [one.name, one]));
  drawView();
}
