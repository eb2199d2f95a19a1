// The tools, and what each app's runs are given.

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
  const isAsked = [...state.details.values()].some((one) => one.approve.includes(tool.name));
  const chip = (text, kind) => make("span", `chip ${kind}`, text);
  const made = make("details", "tool", make("summary", "", make("code", "", tool.name), make("span", "soft", brief),
    hints.readOnlyHint || tool.more.readOnly ? chip("reads only", "") : null,
    hints.destructiveHint === true ? chip("destructive", "warn-chip") : null,
    isAsked ? chip("needs approval", "warn-chip") : null));
  // Schemas are written only when a person opens the entry.
  made.addEventListener("toggle", () => made.append(
    brief === tool.text ? "" : make("p", "text", tool.text),
    tool.more.inputSchema || tool.more.parameters ? schema(tool.more.inputSchema ?? tool.more.parameters) : "",
    make("details", "", make("summary", "soft", "Try it"), attempt(tool)),
    make("details", "", make("summary", "soft", "JSON"), make("pre", "", JSON.stringify(tool.more, null, 2)))), { once: true });
  made.says = JSON.stringify([tool, isAsked]);
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

let tools = 0;
async function readTools() {
  const mine = ++tools;
  const refs = await get("/v1/tool-refs");
  if (mine !== tools) return;
  state.tools = refs.tools.flatMap(toolsOf);
  drawTools();
}
