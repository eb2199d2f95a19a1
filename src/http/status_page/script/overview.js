// Whether all is well, and the numbers of the last hour.

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
    tile("Half of the calls take", p50, calls ? `95 % take at most ${p95}, without waits for a person` : "no calls", bars(slow, "", `calls of a second or more, by minute`)),
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
  put(at("problems"), problems.length ? [make("h2", "", "Problems"), ...problems.map(drawProblem)] : []);
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
  drawGuide(!all.length);
  at("verdict").textContent = isNew ? "No backends yet"
    : told.length ? told.join(", ") : `All is well: ${counted(all.length, "backend")}, nothing waits for you`;
  at("verdict").className = `state ${problems.length ? "bad" : approvals.waiting || isNew ? "warn" : "good"}`;
}

/** What is wrong, and what a person can do about it here. */
function drawProblem(problem) {
  const one = state.backends.get(problem.subject);
  const made = make("div", "problem",
    make("p", "", make("strong", "", one ? backendLink(problem.subject) : problem.subject), ": ", prose(problem.message)),
    make("p", "soft", cure(problem.cure)), one ? remedies(one, problem, isWell(one) ? [] : [TRY]) : null);
  made.says = JSON.stringify([problem, one?.state, one?.needs, state.status.operator]);
  return made;
}

/** What an empty bridge needs: an entry in its file, and a client. */
function drawGuide(isEmpty) {
  at("guide").hidden = !isEmpty;
  at("tiles").hidden = isEmpty;
  at("latest-calls").hidden = isEmpty;
  if (!isEmpty || at("guide").children.length) return;
  const file = state.status.config.file;
  const entry = "mcp:\n  files:\n    command: npx\n    args: [-y, \"@modelcontextprotocol/server-filesystem\", /tmp]\n";
  const added = "mantyx-bridge add files -- npx -y @modelcontextprotocol/server-filesystem /tmp";
  const step = (title, ...content) => make("li", "", make("strong", "", title), ...content);
  at("guide").append(make("h2", "", "Begin here"), make("ol", "",
    step("Name a server",
      make("p", "", "One command adds it: ", commandLine(added)),
      make("p", "", "Or paste this into ", make("code", "", file ?? "bridge.yaml"), ". The bridge reads the file again as soon as it changes."),
      make("div", "", make("pre", "", entry), copier(entry, "the entry"))),
    step("See that it works", make("p", "", "It appears on this page within seconds. If it does not, ", commandLine("mantyx-bridge check"), " shows the mistake and its line.")),
    step("Connect a client",
      make("p", "", "An app of MANTYX uses ", make("code", "", location.origin), " as its base URL, with the token that ", commandLine("mantyx-bridge token"), " prints."),
      make("p", "", "An MCP client gets it from ", commandLine("mantyx-bridge connect claude-code"), "; ", make("code", "", "claude"), ", ", make("code", "", "cursor"), ", ", make("code", "", "vscode"), ", ", make("code", "", "codex"), " and ", make("code", "", "gemini"), " are others."))));
}

function drawLatest() {
  const rows = [...state.calls.values()].sort((a, b) => b.number - a.number).slice(0, 5).map((call) => make("tr", "", ...ofCall(call)));
  fill("latest", rows, "No calls since the bridge was started.");
}
