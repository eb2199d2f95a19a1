// A person follows the link of a notice, with a real Chromium (browser.mjs): past the sign-in, signed in,
// and once the call is decided. The argument is the link, to a call of `plain_note` that waits.
import assert from "node:assert/strict";
import { browser, complaints, has, more, open, operator, text } from "./browser.mjs";

const [link] = more;
const NAMED = ".ask.named";

try {
  const page = await open(390, 844, "light");
  await page.goto(link);
  await page.type("#token", operator);
  await Promise.all([page.waitForNavigation(), page.click("form button")]);
  await has(page, NAMED, "plain_note");
  assert.equal(page.url(), link, "the address is the link's again");
  assert.equal(await page.evaluate(() => document.activeElement.matches(".ask.named")), true, "a screen reader is there");

  // A browser sends the session's cookie with no request of another site.
  const elsewhere = await open(1440, 900, "dark");
  await elsewhere.goto(`data:text/html,${encodeURIComponent(`<a id="link" href="${link}">a chat</a>`)}`);
  await elsewhere.click("#link");
  await has(elsewhere, NAMED, "plain_note");
  assert.equal(elsewhere.url(), link, "nothing is left of the detour");
  const allow = `${NAMED} button.allow:not([disabled])`;
  await elsewhere.waitForSelector(allow);
  await elsewhere.$eval(allow, (button) => button.click());
  await elsewhere.waitForFunction((named) => !document.querySelector(named) || document.querySelector(named).matches(".over"), {}, NAMED);

  const late = await open(390, 844, "light");
  await late.goto(link);
  await has(late, "#led", "approved");
  assert.match(await text(late, "#led"), /plain_note, which is approved/);
  assert.deepEqual(complaints, []);
} finally {
  await browser.close();
}
