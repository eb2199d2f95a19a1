"use strict";
// Where a link leads that a browser has followed which is not signed in: the page goes there after that.
const WANTED = "mantyx-bridge-wanted";
if (location.hash && !location.hash.startsWith("#key=")) {
  sessionStorage.setItem(WANTED, location.hash);
  // From another site, a browser does not send the session's cookie, and is asked to sign in though it is.
  if (!location.search) fetch("/v1/status").then((answer) => { if (answer.ok) location.replace(`/?here${location.hash}`); });
} else if (location.pathname === "/") sessionStorage.removeItem(WANTED);
