// A person logs in from the status page, with a real Chromium (browser.mjs), at the issuer of
// tests/peers/issuer.mjs. The bridge has the backend `notion`, which needs a login.
import { barriers, browser, click, fits, go, has, openAsOperator, url } from "./browser.mjs";

const WIDTHS = [390, 768, 1440];

try {
  const page = await openAsOperator(1440, 1000, "light");
  await has(page, "#problems", "Log in");
  await go(page, "#backends");
  await has(page, "#backends .chip", "needs a login");
  await fits(page, "a backend that needs a login", WIDTHS);
  await barriers(page, "a backend that needs a login");
  await click(page, '#backends button[aria-label="Log in notion"]');
  // The issuer asks who it is, and whether the bridge may.
  await page.waitForSelector('input[name="login"]');
  await page.type('input[name="login"]', "anna");
  await page.type('input[name="password"]', "x");
  await page.click("button[type=submit]");
  await page.waitForFunction(() => !document.querySelector('input[name="login"]') && document.querySelector("button[type=submit]"));
  await page.click("button[type=submit]");
  await has(page, "h1", "Logged in: notion");
  await barriers(page, "the end of a login");
  await Promise.all([page.waitForNavigation(), click(page, "a")]);
  if (page.url() !== `${url}/`) throw new Error(`not the page: ${page.url()}`);
  await has(page, "#live", "live");
  await go(page, "#backends");
  await has(page, "#backends", "ready");
  await page.waitForFunction(() => !document.querySelector('button[aria-label="Log in notion"]'));
} finally {
  await browser.close();
}
