// What waits for a person.

/** The cards of questions to a person, by their ids. */
const asks = new Map();
/** How long new buttons are disabled, in ms: a card may appear under the pointer just before a click. */
const UNTOUCHED = 700;

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
  const { element, read, mark } = fields(id, question.requestedSchema);
  return { elements: [title, element], read, mark };
}

/** What its server says of the tool: the first lines, and the rest for a person who wants it. */
function described(text) {
  const [first, ...others] = plain(text).split("\n");
  const brief = first.length > 240 ? `${first.slice(0, 240)}…` : first;
  const whole = others.some((line) => line.trim()) || brief !== first
    ? make("details", "", make("summary", "soft", "The whole description"), make("p", "text", plain(text))) : null;
  return make("div", "", make("p", "text", brief), whole);
}

/** Who asks, for what, and how long that can be answered. */
function cardHead(one) {
  // The name under which the bridge shows a confirmation of a tool that it does not have.
  const of = one.backend === "bridge_confirmation" ? ": a confirmation" : ` of ${one.backend}`;
  const left = make("time", "left push", remaining(one.deadline));
  [left.dateTime, left.title] = [one.deadline, `Counts as denied at ${new Date(one.deadline).toLocaleString()}`];
  const run = one.runId ? make("span", "", "run ", runLink(runOf(one.runId) ?? { runId: one.runId })) : "called by hand";
  return [
    make("p", "card-head", make("span", "", make("code", "", one.name), one.destructive ? make("span", "chip bad-chip", "destructive") : null), left),
    make("p", "soft", `${one.kind === "question" ? "A question" : "A call"}${of}, app ${one.app}, `, run, ", asked at ", clock(one.since)),
  ];
}

/** A card. It keeps its position, so that a click hits the right one; only its text changes. */
function ask(one) {
  const reason = make("input");
  const isQuestion = one.kind === "question";
  reason.placeholder = isQuestion ? "Reason, if you decline" : "Reason; the model gets it if you deny";
  reason.maxLength = 1000;
  reason.setAttribute("aria-label", `Reason, ${one.name}`);
  const button = (word, decision, content) => {
    const made = make("button", decision === "deny" ? "deny" : "allow", word);
    made.setAttribute("aria-label", `${word} ${one.name}`);
    made.disabled = true;
    made.onclick = () => decide(one.id, { decision, content: content?.(), reason: reason.value || undefined });
    made.type = "button";
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
  const card = make("article", "ask", ...cardHead(one),
    ...(one.description ? [described(one.description)] : []),
    ...(one.askedAgain ? [make("p", "", plain(one.askedAgain))] : []),
    make("pre", "", one.argumentsText), ...(asked?.elements ?? flaw), answer, word);
  card.setAttribute("aria-label", `${isQuestion ? "Question of" : "Approval of"} ${one.name}`);
  return { card, answer, buttons, word, mark: asked?.mark };
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
      at("news").textContent = `${one.name} waits for you.`;
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
  leadToAsk(all);
}

/** The question that the address names: a notice's link has led here. */
const namedAsk = () => location.hash.startsWith("#overview/") ? location.hash.slice(10) : "";
/** The one that a person was led to, so that later news moves nothing. */
let ledTo = "";

/** Leads to the question that the address names, or says what has become of it. */
function leadToAsk(all) {
  const id = namedAsk();
  if (id === ledTo) return;
  ledTo = id;
  const one = all.find((one) => one.id === id);
  const waits = one?.state === "waiting";
  at("led").hidden = !id || waits;
  at("led").textContent = one ? `The link leads to ${one.name}, which is ${one.state}.` : "The link leads to something that waits no longer.";
  if (!waits) return;
  const { card } = asks.get(id);
  card.classList.add("named");
  card.tabIndex = -1;
  card.scrollIntoView({ block: "center" });
  card.focus({ preventScroll: true });
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

/** Counts down. A text changes only when its words do, so that nothing is drawn in vain. */
function tick() {
  for (const left of document.querySelectorAll(".ask:not(.over) .left")) {
    const words = remaining(left.dateTime);
    if (left.textContent !== words) left.textContent = words;
    left.classList.toggle("bad-word", words.endsWith("s left"));
  }
}

let approvals = 0;
async function readApprovals() {
  const mine = ++approvals;
  const response = await fetch("/v1/approvals", { headers: keyed() });
  if (mine !== approvals) return;
  at("keyless").hidden = response.status !== 401 || !state.status?.approvals.waiting;
  if (response.ok) {
    const { approvals: all, mayDecide } = await response.json();
    state.mayDecide = mayDecide;
    // A card is written once, with what its run is about.
    if (all.some((one) => one.state === "waiting" && one.runId && runOf(one.runId)?.prompt === undefined)) await readRuns();
    if (mine === approvals) drawApprovals(all);
  } else sweep();
}

async function decide(id, decision) {
  const { buttons, word, mark } = asks.get(id);
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const headers = { ...keyed(), "content-type": "application/json" };
    const body = JSON.stringify(decision);
    const response = await fetch(`/v1/approvals/${id}`, { method: "POST", headers, body });
    if (response.status === 401) sessionOver();
    if (response.ok) say(word, "");
    else {
      const { message } = await response.json();
      const isMarked = response.status === 400 && mark?.(message);
      say(word, isMarked ? "" : message);
    }
    await readApprovals();
  } catch {
    say(word, "The bridge was not reached.");
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}
