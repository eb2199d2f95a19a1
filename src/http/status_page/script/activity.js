// Calls and runs.

/** How many rows a list has at first, and how many more a person gets at once. */
const SHOWN = 25;

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
    call: (one) => (!app || one.app === app) && (!backend || one.backend === backend) && (!how || stateOf(one) === how)
      && has(one.name, one.runId, one.runId && runOf(one.runId)?.prompt),
    run: (one) => (!app || one.app === app) && (!backend || one.backends.includes(backend)) && has(one.runId, one.prompt),
  };
}

/** The cells that every list of calls has. The tool leads to the call's own page. */
const ofCall = (call) => [
  cell("", clock(call.startedAt)), cell("App", call.app), cell("", callLink(call), "lead"), cell("Backend", call.backend),
  cell("", dot(stateOf(call))), cell("Took", took(call.ms), "number"),
];

const callLink = (call) => link(`#activity/calls/${call.number}`, make("code", "", call.name));

const runOf = (id) => [...state.runs.values()].find((run) => run.runId === id);

/** A run by what its prompt begins with or, if the bridge does not know that, by the end of its id. */
function runName(run) {
  const name = run.prompt ? make("span", "prompt", plain(run.prompt))
    : make("code", "", `…${shortId(run.runId, [...state.runs.values()].map((other) => other.runId))}`);
  name.title = run.runId;
  return name;
}

/** A link to a run's page; its name alone if this page does not know the run. */
const runLink = (run) => run.workspace === undefined ? runName(run) : link(`#activity/${encodeURIComponent(key(run))}`, runName(run));

function drawActivity() {
  const [, one, number] = location.hash.split("/");
  const isCall = one === "calls";
  at("run").hidden = !one || isCall;
  at("call").hidden = !isCall;
  at("lists").hidden = !!one;
  if (isCall) return drawCall(state.calls.get(Number(number)));
  if (one) return drawRun(state.runs.get(decodeURIComponent(one)));
  const matches = filtered();
  const runs = latest("runs", (a, b) => a.startedAt < b.startedAt ? 1 : -1, matches.run).map((run) => make("tr", "",
    cell("", make("span", "", runLink(run), run.kind === "eval" ? make("span", "soft", " eval") : null), "lead"),
    cell("App", run.app),
    cell("", dot(run.state)),
    cell("Started", clock(run.startedAt)),
    cell("Calls", String(run.calls), "number"),
    cell("In flight", String(run.callsInFlight), "number"),
    cell("Backends", run.backends.join(", "))));
  fill("runs", runs, state.runs.size ? "No run is like that." : "No runs since the bridge was started.");
  const calls = latest("calls", (a, b) => b.number - a.number, matches.call).map((call) =>
    make("tr", "", ...ofCall(call), cell("Run", ofRun(call))));
  fill("calls", calls, state.calls.size ? "No call is like that." : "No calls since the bridge was started.");
}

/** The run of a call. */
const ofRun = (call) => call.runId ? runLink(runOf(call.runId) ?? { runId: call.runId }) : "by hand";

/** One call: what it is, and its stages and texts, which are read once for each of its states. */
function drawCall(call) {
  const back = make("p", "", link("#activity", "All activity"));
  if (!call) return put(at("call"), [back, make("p", "empty", "The bridge does not know this call any more.")]);
  const facts = [["Started", clock(call.startedAt)], ["App", call.app], ["Backend", backendLink(call.backend)], ["Run", ofRun(call)],
    ["Id of the tool use", make("code", "", call.toolUseId)], ["Took", took(call.ms)]];
  const texts = make("div", "");
  texts.says = JSON.stringify([call.number, stateOf(call), call.postedMs]);
  if (at("call").lastElementChild?.says !== texts.says) opened(texts, call);
  put(at("call"), [back, make("h2", "named", make("code", "", call.name), dot(stateOf(call))),
    make("dl", "facts", ...facts.flatMap(([word, fact]) => [make("dt", "soft", word), make("dd", "", fact)])), texts]);
}

/** Shows a call's stages and, for the operator, what it was made with and its answer. */
async function opened(place, call) {
  const told = stages(call).filter(([, ms]) => ms > 0).map(([kind, ms]) => `${STAGES[kind] ?? STAGES.done} ${took(ms)}`);
  place.append(make("div", "track whole", staged(call)), make("p", "soft", told.join(", ")));
  if (!state.status.operator) return;
  const texts = make("div", "");
  place.append(texts);
  await readTexts(place, call, texts);
}

/** Shows the texts of an open call, and again every second as long as it runs: its agent may say how far it is. */
async function readTexts(place, call, texts) {
  const response = await fetch(`/v1/calls/${call.number}`, { headers: keyed() }).catch(() => null);
  if (!response) return texts.replaceChildren(make("p", "bad-word", "The bridge was not reached."));
  const { arguments: given, answer, progress, message } = await response.json();
  const part = (title, text) => [make("p", "soft", title), make("pre", "", plain(text))];
  texts.replaceChildren(...(message ? [make("p", "soft", message)] : [...part("Arguments", given),
    ...(progress && !answer ? part("Progress", progress) : []), ...part("Answer", answer || "none yet")]));
  const runs = !message && !answer && !state.calls.get(key(call))?.outcome;
  if (runs && place.open !== false && place.isConnected) setTimeout(() => readTexts(place, call, texts), 1000);
}

const STAGES = { waited: "for a person", queued: "queued", done: "at the backend", posting: "posted to MANTYX" };

/** The stages of a call, and how many ms each took, in their order. */
function stages(call) {
  const sent = call.sentMs ?? call.ms;
  // What its server asks comes after it was sent.
  const [before, after] = [Math.min(call.waitedMs, sent), Math.max(0, call.waitedMs - sent)];
  const kind = { bad: "failed", warn: "running" }[tone(stateOf(call))] ?? "done";
  return [["waited", before], ["queued", sent - before], [kind, call.ms - sent - after], ["waited", after], ["posting", (call.postedMs ?? call.ms) - call.ms]];
}

/** The bar of a call, with its stages. */
function staged(call) {
  return make("span", "", ...stages(call).map(([kind, ms]) => {
    const stage = make("i", kind);
    stage.style.flexGrow = ms;
    return ms > 0 ? stage : null;
  }));
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
    const bar = staged(call);
    bar.style.left = place(started);
    bar.style.width = `calc(${place(started + (call.postedMs ?? call.ms))} - ${place(started)})`;
    const line = make("div", "bar", make("code", "", call.name), make("div", "track", bar), make("span", "number", `${took(call.ms)} `, dot(stateOf(call))));
    const made = make("details", "", make("summary", "", line));
    made.addEventListener("toggle", () => opened(made, call), { once: true });
    made.says = JSON.stringify([call.number, stateOf(call), call.postedMs]);
    return made;
  });
  const facts = [dot(run.state), `, app ${run.app}, started `, clock(run.startedAt), run.endedAt ? `, took ${took(ends - begins)}` : "",
    `, ${counted(run.calls, "call")}`];
  // The bars stay, so that what a person has opened stays open.
  const bars = at("run").querySelector(".bars") ?? make("div", "bars");
  bars.says = "bars";
  put(bars, drawn);
  put(at("run"), [back, make("h2", "", runName(run)), make("p", "", ...facts), make("p", "soft", "Run ", make("code", "", run.runId)),
    drawn.length ? bars : make("p", "empty", "It has made no calls that the bridge remembers."),
    make("p", "legend soft", ...Object.entries(STAGES).map(([kind, word]) => make("span", "", make("i", kind), ` ${word}`)))]);
}

// Requests.
