// What a person can do about a backend.

/** The backend that the doctor examines once its page is drawn. */
let examinedNext = null;

/** A button that asks the bridge for something about a backend; `word` says how that went wrong. */
function actionButton(one, { title, verb, cutsOff }, word) {
  const button = make("button", "", title);
  button.type = "button";
  const label = (text) => {
    button.textContent = text;
    button.setAttribute("aria-label", `${text} ${one.name}`);
  };
  label(title);
  let isConfirmed = !cutsOff || !one.callsInFlight;
  button.onclick = async () => {
    if (!isConfirmed) {
      isConfirmed = true;
      return label(`End ${counted(one.callsInFlight, "call")} and ${title.toLowerCase()}`);
    }
    button.disabled = true;
    say(word, "");
    try {
      const response = await fetch(`/v1/backends/${one.name}/${verb}`, { method: "POST", headers: keyed() });
      const answer = await response.json();
      if (response.ok) take("backend", answer);
      else if (response.status === 401 && verb === "refresh") sessionOver();
      else say(word, answer.message);
    } catch {
      say(word, "The bridge was not reached.");
    } finally {
      button.disabled = false;
    }
  };
  return button;
}

/** Begins a login at the issuer of a backend's tokens, and goes there. The bridge's page comes back at its end. */
function loginButton(one, word) {
  const button = make("button", "chip warn-chip", "Log in");
  button.type = "button";
  button.setAttribute("aria-label", `Log in ${one.name}`);
  button.onclick = async () => {
    button.disabled = true;
    say(word, "");
    try {
      const response = await fetch(`/v1/logins/${one.name}`, { method: "POST", headers: keyed() });
      const answer = await response.json();
      if (response.ok) location.assign(answer.url);
      else say(word, answer.message);
    } catch {
      say(word, "The bridge was not reached.");
    } finally {
      button.disabled = false;
    }
  };
  return button;
}

const needsLogin = (one) => one.needs === "login";

const TRY = { title: "Try now", verb: "refresh" };
const REFRESH = { title: "Refresh", verb: "refresh" };
const ENABLE = { title: "Enable", verb: "enable" };
const RESTART = { title: "Restart", verb: "restart", cutsOff: true };
const DISABLE = { title: "Disable until the bridge restarts", verb: "disable", cutsOff: true };

const isWell = (one) => ["ready", "idle", "disabled"].includes(one.state) && one.breaker.state === "closed";

/** Opens the backend's page, and runs the doctor there. */
function doctorButton(name) {
  const button = make("button", "", "Doctor");
  button.type = "button";
  button.setAttribute("aria-label", `Doctor for ${name}`);
  button.onclick = () => {
    examinedNext = name;
    location.hash = `#backends/${encodeURIComponent(name)}`;
  };
  return button;
}

/** Buttons, with room for what went wrong. */
function toolbar(one, actions, ...others) {
  const word = make("span", "bad-word", "");
  word.setAttribute("role", "status");
  const login = needsLogin(one) && state.status.operator ? loginButton(one, word) : "";
  return make("p", "actions", login, ...actions.map((action) => actionButton(one, action, word)), ...others, word);
}

/** What may cure a backend's problem: the actions, and another look where that is of use. */
function remedies(one, problem, actions) {
  if (/\bmantyx-bridge trust\b/.test(problem.cure)) return toolbar(one, actions, link("#trust", "Look at what changed"));
  return toolbar(one, actions, state.status.operator ? doctorButton(one.name) : "");
}

/** All that can be done about a backend, on its page. */
function allActions(one) {
  const isOff = one.state === "disabled";
  const operators = state.status.operator ? [RESTART, DISABLE] : [];
  const made = toolbar(one, isOff ? (state.status.operator ? [ENABLE] : []) : [isWell(one) ? REFRESH : TRY, ...operators]);
  made.says = JSON.stringify(["actions", one.name, isOff, isWell(one), one.needs, one.callsInFlight, state.status.operator]);
  return made;
}
