// Elements of the page, and how they get into the document.

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
  ok: "good", warn: "warn", ready: "good", answered: "good", result: "good", driven: "good", live: "good", ended: "",
  disabled: "", degraded: "warn", connecting: "warn", starting: "warn", idle: "good", running: "warn", waiting: "warn", pending: "warn", attaching: "warn",
  cancelled: "warn", not_approved: "warn", left: "warn", down: "bad", given_up: "bad",
};
/** The tone of a state, or of how a call has ended. */
const tone = (word) => TONES[word] ?? "bad";
const dot = (word) => make("span", `state ${tone(word)}`, word.replaceAll("_", " "));
/** Text with its commands and names, which stand between backticks, as such. */
const prose = (text) => make("span", "", ...text.split("`").map((part, at) => at % 2 ? make("code", "", part) : part));
/** Programs whose commands a person can run as they stand. */
const COMMAND = /^(mantyx-bridge|sudo|systemctl|npm|npx|uv|uvx|pip|rm|chmod|chown|curl|docker|export) /;

/** A button that copies a command. */
function copier(command, name = command) {
  const button = make("button", "quiet copy", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy ${name}`);
  button.onclick = async () => {
    // Without TLS, browsers give the clipboard to pages of this host alone.
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  return button;
}

/** A command, with a button that copies it. */
const commandLine = (command) => make("span", "command", make("code", "", command), " ", copier(command));

/** What to do: prose whose commands can be copied. */
const cure = (text) => make("span", "", ...text.split("`").map((part, at) =>
  at % 2 === 0 ? part : COMMAND.test(part) ? commandLine(part) : make("code", "", part)));

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

/** For how long something lasts. */
function lasting(time) {
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time)) / 1000));
  return seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

/** How much of the time until then is left, in words. */
function remaining(time) {
  const seconds = Math.max(0, Math.ceil((Date.parse(time) - Date.now()) / 1000));
  if (seconds >= 7200) return `${Math.floor(seconds / 3600)} h left`;
  return seconds >= 60 ? `${Math.ceil(seconds / 60)} min left` : `${seconds} s left`;
}

/** The shortest end of an id, of six characters at least, that no other id of `all` has. */
function shortId(id, all) {
  const isShared = (end) => all.some((other) => other !== id && other.endsWith(end));
  let length = 6;
  while (length < id.length && isShared(id.slice(-length))) length++;
  return id.slice(-length);
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

/** Text with invisible characters written out, as they can hide what it says. */
const plain = (text) => String(text).replace(/[^\P{C}\n]/gu, (odd) => `\\u{${odd.codePointAt(0).toString(16)}}`);
