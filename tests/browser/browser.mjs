// A real Chromium for the scripts that look at the status page, and what they all do with it. The
// variable CHROMIUM names the browser, OPERATOR has the operator's secret. Arguments: puppeteer's
// module, the bridge's address, its token, then those of the script.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [module, url, token] = process.argv.slice(2);
export { token, url };
export const more = process.argv.slice(5);
export const operator = process.env.OPERATOR;

const { default: puppeteer } = await import(pathToFileURL(module));
const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
export const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args });
/** What the browser's console said, but for refusals and for a bridge that is gone. */
export const complaints = [];

export async function open(width, height, scheme) {
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  page.on("console", (line) => {
    const isMeant = / 40[0-9] |ERR_CONNECTION_|ERR_INCOMPLETE_|ERR_EMPTY_RESPONSE/.test(line.text());
    if (["error", "warn"].includes(line.type()) && !isMeant) complaints.push(line.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  return page;
}

/** A page that is signed in as the operator, and live. */
export async function openAsOperator(width, height, scheme) {
  const page = await open(width, height, scheme);
  await page.goto(url);
  await page.type("#token", operator);
  await Promise.all([page.waitForNavigation(), page.click("form button")]);
  await has(page, "#live", "live");
  return page;
}

export const text = (page, selector) => page.$eval(selector, (element) => element.innerText);
export const has = (page, selector, words) => page.waitForFunction(
  (selector, words) => document.querySelector(selector)?.innerText.includes(words), {}, selector, words);

/**
 * Clicks what is there, or comes. By the element's own method: the page draws itself after each answer of the bridge, and
 * a press and a release of a mouse may meet two elements.
 */
export async function click(page, selector) {
  await page.locator(selector).wait();
  await page.$eval(selector, (element) => element.click());
}

/** Goes where the address leads. */
export const go = (page, hash) => page.evaluate((hash) => { location.hash = hash; }, hash);

/** Calls a tool as the app, and returns its result. */
export async function call(name, input) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const body = JSON.stringify({ toolUseId: `tu_${name}_${Math.random()}`, name, args: input });
  const answer = await fetch(`${url}/v1/tool-calls`, { method: "POST", headers, body });
  assert.equal(answer.status, 200);
  return answer.json();
}

/** Has a run made with this prompt, and returns its id. */
export async function run(prompt) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const body = JSON.stringify({ systemPrompt: "Be brief.", prompt });
  const answer = await fetch(`${url}/v1/runs`, { method: "POST", headers, body });
  assert.equal(answer.status, 202);
  return (await answer.json()).runId;
}

const axe = readFileSync(join(module.split("node_modules")[0], "node_modules/axe-core/axe.min.js"), "utf8");
/** Fails where a person could not use the page: by WCAG 2.1 AA, as far as axe-core can tell. */
export async function barriers(page, section) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  const told = violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).slice(0, 3).join("  ")}`);
  assert.deepEqual(told, [], `barriers in ${section}`);
}

/** Fails if the page is wider than its window, or a button has no name. */
export async function fits(page, view, widths) {
  for (const width of widths) {
    await page.setViewport({ width, height: 900 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${view} is ${wide} pixels too wide for ${width}`);
  }
  const nameless = await page.$$eval("button", (all) => all.filter((one) => one.checkVisibility() && !(one.getAttribute("aria-label") ?? one.textContent).trim()).length);
  assert.equal(nameless, 0, `buttons without a name in ${view}`);
}

/** The sizes of the text that can be seen, in pixels. */
export const fontSizes = (page) => page.evaluate(() => {
  const sizes = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    if (texts.currentNode.data.trim() && parent.checkVisibility()) sizes.add(getComputedStyle(parent).fontSize);
  }
  return [...sizes];
});
