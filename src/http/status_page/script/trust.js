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
