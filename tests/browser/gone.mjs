// The status page of an empty bridge that goes away and comes back, with a real Chromium
// (browser.mjs). Arguments: the bridge's file, its process, and a file that this script writes when
// the bridge may come back.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { barriers, browser, complaints, fits, go, has, more, openAsOperator, text } from "./browser.mjs";

const [file, process_id, signal] = more;
const WIDTHS = [390, 768, 1440];

try {
  const page = await openAsOperator(1440, 1000, "light");
  // Empty: where the file is, an entry to paste, and how a client connects.
  await has(page, "#guide", file);
  await has(page, "#guide pre", "mcp:");
  await has(page, "#guide", "mantyx-bridge add files -- npx");
  await has(page, "#guide", "mantyx-bridge connect claude-code");
  await fits(page, "an empty bridge", WIDTHS);
  await barriers(page, "an empty bridge");
  await go(page, "#activity");
  await page.waitForSelector("#by-text");
  assert.ok(await page.$eval("#gone", (banner) => banner.hidden));

  process.kill(Number(process_id), "SIGKILL");
  await has(page, "#gone", "has not answered since");
  await has(page, "#gone time", ":");
  await has(page, "#gone", "ago");
  assert.match(await page.$eval("main", (main) => getComputedStyle(main).filter), /grayscale/);
  const enabled = () => page.$$eval("main button, main input, main select, header button", (all) => all.filter((one) => !one.matches(":disabled")).length);
  assert.equal(await enabled(), 0, "no button works");
  await fits(page, "a bridge that is gone", WIDTHS);
  await barriers(page, "a bridge that is gone");

  writeFileSync(signal, "");
  await has(page, "#gone", "was restarted");
  await has(page, "#gone", "mantyx-bridge open");
  assert.equal(await enabled(), 0, "nor does it without a session");
  await fits(page, "a bridge that was restarted", WIDTHS);
  await barriers(page, "a bridge that was restarted");
  assert.equal(await text(page, "#live"), "signed out");
  await Promise.all([page.waitForNavigation(), page.click("#gone button:not(.copy)")]);
  assert.ok(await page.$("#token"), "the form");
  assert.deepEqual(complaints, [], "the browser's console is silent");
} finally {
  await browser.close();
}
