// What a person sees while the bridge is gone, and once its session is over.

/** Since when the bridge has not answered, and whether its last answer ended the session. */
const connection = { goneSince: null, isOver: false };

/** Data that may be old is grey, and no button pretends to work. */
function freeze(isFrozen) {
  document.body.classList.toggle("gone", isFrozen);
  at("controls").disabled = isFrozen;
  document.querySelector("header button").disabled = isFrozen;
  at("gone").hidden = !isFrozen;
}

function live(word, kind) {
  at("live").textContent = word;
  at("live").className = `state push ${kind}`;
}

function lost() {
  if (connection.isOver) return;
  live("no connection; trying again", "bad");
  const isNew = connection.goneSince === null;
  connection.goneSince ??= new Date().toISOString();
  freeze(true);
  if (isNew) {
    const ago = make("span", "soft", "");
    // It changes every second, and a screen reader would read that out.
    ago.setAttribute("aria-hidden", "true");
    at("gone").replaceChildren(make("p", "", make("strong", "", "The bridge has not answered since "), clock(connection.goneSince), ago),
      make("p", "", "What stands here is from then. The page tries again by itself; ", commandLine("mantyx-bridge status"), " on the bridge's host says more."));
  }
  drawGone();
}

/** For how long it has been gone. */
function drawGone() {
  const ago = at("gone").querySelector("[aria-hidden]");
  if (connection.goneSince && ago) ago.textContent = `, ${lasting(connection.goneSince)} ago`;
}

function reached() {
  if (connection.isOver) return;
  connection.goneSince = null;
  live("live", "good");
  freeze(false);
}

/** The bridge lets this page no longer in: it was restarted, or the session has run out. */
function sessionOver() {
  if (connection.isOver) return;
  connection.isOver = true;
  live("signed out", "bad");
  freeze(true);
  document.querySelector("header form").hidden = true;
  const signIn = make("button", "", "Sign in");
  signIn.onclick = () => location.reload();
  const why = connection.goneSince
    ? "The bridge was restarted, and your session ended with it."
    : "Your session is over. It lasts 12 hours, or until the bridge restarts or you sign out.";
  at("gone").replaceChildren(make("p", "", make("strong", "", why)),
    make("p", "", "Run ", commandLine("mantyx-bridge open"), " on the bridge's host, or ", signIn, " with a token."));
}

/** Whether the bridge answers: a connection to one that hangs stays open, and says nothing. */
async function lookForBridge() {
  try {
    const isSuspect = connection.isOver || connection.goneSince;
    const response = await fetch(isSuspect ? "/v1/status" : "/healthz", { signal: AbortSignal.timeout(5000) });
    // Another page has signed in.
    if (response.ok && connection.isOver) location.reload();
    else if (response.ok && connection.goneSince && isFollowing()) await readAll();
    else if (response.status === 401) sessionOver();
  } catch {
    lost();
  }
}
