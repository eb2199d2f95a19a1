// What has changed since it was accepted.

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

/** How many unchanged lines in a row, or characters in a changed line, are shown. */
const [UNFOLDED_LINES, UNFOLDED] = [3, 240];

/** Text that has not changed, behind a button that unfolds it. */
function folded(text, what) {
  const button = make("button", "quiet fold", `… ${what} unchanged …`);
  button.type = "button";
  button.onclick = () => button.replaceWith(text);
  return button;
}

/** The unchanged part of a changed line, with its middle folded. */
function unchanged(text) {
  if (text.length <= UNFOLDED) return [text];
  // Between words, if there are any.
  const begin = text.lastIndexOf(" ", 80) + 1 || 80;
  const after = text.indexOf(" ", text.length - 80);
  const end = after < 0 ? text.length - 80 : after;
  return [text.slice(0, begin), folded(text.slice(begin, end), `${(end - begin).toLocaleString()} characters`), text.slice(end)];
}

/** The lines of a difference; of a line that replaces another one, the changed words are marked. */
function diff(lines) {
  const marked = (tag, kind, line, parts) => parts === undefined || parts === null
    ? make("span", kind, `${line}\n`)
    : make("span", kind, line[0], ...parts.flatMap(({ text, isNew }) => isNew ? make(tag, "", text) : unchanged(text)), "\n");
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
    if (gone.length || come.length) continue;
    let end = at;
    while (end < lines.length && !/^[-+]/.test(lines[end])) end++;
    const same = `${lines.slice(at, end).join("\n")}\n`;
    made.push(end - at > UNFOLDED_LINES ? folded(same, counted(end - at, "line")) : same);
    if (end - at > UNFOLDED_LINES) made.push("\n");
    at = end;
  }
  return make("pre", "diff", ...made);
}

/** The differences from what was accepted. The operator accepts them here, or on the host. */
function drawTrust() {
  const drawn = state.trust.filter((one) => one.damaged || one.findings.some((found) => found.change !== "gone")).map((one) => {
    const word = make("span", "bad-word", "");
    word.setAttribute("role", "status");
    const found = one.findings.map((found) => {
      const becomes = found.withdrawn ? ", withdrawn" : found.change === "gone" ? "" : ", still offered";
      const unseen = found.hidden.length ? make("span", "soft", ` with invisible characters: ${found.hidden.join(" ")}`) : null;
      const name = found.tool === null ? make("span", "", `the ${found.subject}`) : make("code", "", found.tool);
      // What has no name is accepted as the empty text; a card is all that there is of an agent.
      const accepted = found.subject === "card" ? null : found.tool ?? "";
      const made = make("details", "", make("summary", "", name, make("span", "soft", found.change + becomes), unseen), diff(found.diff),
        accepted !== null && state.status?.operator ? make("p", "", acceptButton(`Accept ${found.tool ?? "the instructions"}`, word, one, [accepted])) : null);
      made.open = one.findings.length <= 20;
      return made;
    });
    const command = `mantyx-bridge trust accept ${one.name} --all --digest ${one.digest.slice(0, 16)}`;
    const acceptAll = acceptButton(`Accept all of ${one.name}`, word, one, "all");
    const section = make("section", "finding",
      make("h2", "", one.name, " ", make("small", "", `${counted(one.findings.length, "difference")} from what you accepted`)), make("p", "", one.damaged ? ` Its accepted tools cannot be read: ${one.damaged}` : null),
      make("div", "", ...found),
      state.status?.operator
        ? make("p", "", acceptAll, make("span", "soft", " What you do not accept stays as it is. "), word)
        : make("p", "soft", "As the user that the bridge runs as: ", commandLine(command)));
    section.says = JSON.stringify([one, state.status?.operator]);
    section.id = `trust-${one.name}`;
    return section;
  });
  put(at("findings"), drawn.length ? drawn : [make("p", "empty", "Everything that backends show a model is accepted.")]);
}

/** A button that accepts all tools of a backend, or those that it names. */
function acceptButton(title, word, one, tools) {
  const button = make("button", "accept", title);
  button.type = "button";
  button.setAttribute("aria-label", tools === "all" ? title : `${title} of ${one.name}`);
  button.onclick = () => accept(button, word, one, tools);
  return button;
}

/** Accepts differences that are drawn. If any of them has changed since, the bridge refuses. */
async function accept(button, word, one, tools) {
  button.disabled = true;
  try {
    const headers = { ...keyed(), "content-type": "application/json" };
    const body = JSON.stringify({ accept: tools, digest: one.digest });
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
  const [, named] = location.hash.split("/");
  if (view === "trust" && named) at(`trust-${named}`)?.scrollIntoView();
}
