// What an operator does on the status page, with a real Chromium (browser.mjs). The bridge has the
// backends `plain` (the ledger, whose `args` and `fail` need approval), `ask` (a server that asks
// what it is told to), `gone` (a program that there is not), and `fickle` (a server whose catalog is
// a file, and whose tools are withdrawn when they change), and `teller` (a server whose instructions
// are a file, and are withheld when they change). Arguments: the catalog of `fickle`, the file of
// `teller`.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { barriers, browser, call, click, complaints, fits, fontSizes, go, has, more, openAsOperator, run, text } from "./browser.mjs";

const [catalog, instructions] = more;
const WIDTHS = [390, 768, 1440];
const sizes = new Set();
/** What holds in each view: it fits, has names and few sizes of text, and no barriers. */
async function look(page, view) {
  await fits(page, view, WIDTHS);
  for (const size of await fontSizes(page)) sizes.add(size);
  await barriers(page, view);
}
const decided = (page, word, name) => click(page, `.ask:not(.over) button[aria-label="${word} ${name}"]:enabled`);
const action = (word, name) => `button[aria-label="${word} ${name}"]`;

try {
  const page = await openAsOperator(1440, 1000, "light");

  // A call that waits: what its tool is, how long there is time, and the run that it is of.
  const prompt = "Throw away what is old and tell me how that went, but keep the rest of it as it is, and then a few words more\nplain_fail {}";
  const runId = await run(prompt);
  await has(page, ".ask .card-head", "destructive");
  await has(page, ".ask", "Fails.");
  assert.match(await text(page, ".ask .left"), /^\d+ (min|s) left$/);
  const above = await page.evaluate(() => [".ask", "#problems", "#tiles"].map((one) => document.querySelector(one).getBoundingClientRect().top));
  assert.deepEqual(above, above.toSorted((a, b) => a - b), "what waits comes first, then what is wrong");
  await look(page, "an approval");
  const waited = Date.now();
  await page.waitForFunction((since) => Date.now() - since > 1200, {}, waited);
  await decided(page, "Approve", "plain_fail");
  await has(page, "#tiles", "1 call");
  const half = await page.$$eval(".tile", (tiles) => tiles.find((one) => /Half/.test(one.innerText)).querySelector("b").innerText);
  assert.match(half, /^\d+ ms$/, "the wait for a person is not the tool's");

  // Any call opens, from each list; a run is named by its prompt, and has its id.
  await click(page, "#latest a");
  await has(page, "#call h2", "plain_fail");
  await has(page, "#call pre", "{}");
  await look(page, "a call");
  await go(page, "#activity");
  await has(page, "#runs", "Throw away what is old");
  assert.ok((await text(page, "#runs a")).endsWith("…"), "only the first words");
  assert.equal(await page.$eval("#runs .prompt", (name) => name.title), runId);
  await click(page, "#calls a");
  await page.waitForFunction(() => /^#activity\/calls\/\d+$/.test(location.hash));
  await click(page, "#call .prompt");
  await has(page, "#run", runId);

  // A question whose answer does not fit: the field is marked, and has the focus.
  const properties = { name: { type: "string" }, count: { type: "integer", minimum: 1 } };
  const asked = call("ask_ask", { params: { message: "How many?", requestedSchema: { type: "object", properties, required: ["name"] } } });
  await go(page, "#overview");
  await page.waitForSelector(".ask .field");
  const [name, count] = [".ask .field:nth-child(1) input", ".ask .field:nth-child(2) input"];
  await page.type(name, "Ada");
  await page.type(count, "none");
  await decided(page, "Answer", "ask_ask");
  await page.waitForSelector(".ask .field:nth-child(2).wrong input[aria-invalid=true]:focus");
  assert.equal(await page.$(".ask .field:nth-child(1).wrong"), null);
  await look(page, "a question");
  await page.$eval(count, (input) => input.select());
  await page.type(count, "7");
  assert.equal(await page.$(".ask .wrong"), null, "the mark goes as a person types");
  await decided(page, "Answer", "ask_ask");
  assert.match((await asked).result, /"count":7/);

  // A backend: its trouble in the whole width and once, and what can be done about it.
  await go(page, "#backends");
  await has(page, "#backends tbody tr:first-child", "gone");
  const [table, why] = await page.evaluate(() => ["#backends", "#backends .why > div"].map((one) => document.querySelector(one).offsetWidth));
  assert.ok(why > 0.9 * table, `${why} of ${table}`);
  assert.equal((await text(page, "#backends")).split("there is no such program").length, 2);
  await look(page, "Backends");
  await click(page, `#backends ${action("Doctor for", "gone")}`);
  await has(page, "#backend .steps", "or install the program there");
  await look(page, "a backend that is down");
  await go(page, "#backends/plain");
  await click(page, action("Disable until the bridge restarts", "plain"));
  await has(page, "#backend h2", "disabled");
  assert.match((await call("plain_note", { text: "x" })).error ?? "", /disabled/);
  await look(page, "a backend that is off");
  await click(page, action("Enable", "plain"));
  await has(page, "#backend h2", "ready");
  assert.equal((await call("plain_note", { text: "x" })).result, "noted: x");
  const pid = (await call("plain_pid", {})).result;
  await click(page, action("Restart", "plain"));
  while (existsSync(`/proc/${pid}`)) await setTimeout(20);
  await has(page, "#backend h2", "ready");
  assert.notEqual((await call("plain_pid", {})).result, pid);
  // With a call in flight, a restart is asked for twice.
  const hanging = call("plain_hang", {});
  await has(page, "#backend .facts", "In flight");
  await page.waitForFunction(() => [...document.querySelectorAll("#backend .facts dd")].some((fact) => fact.innerText === "1"));
  await click(page, action("Restart", "plain"));
  await click(page, action("End 1 call and restart", "plain"));
  assert.ok((await hanging).error, "its caller has an answer");
  // What the browser may not write to, it selects.
  await go(page, "#backends/gone");
  await click(page, "#backend .problem .copy");
  await page.waitForFunction(() => /Copied|Selected/.test(document.querySelector("#backend .problem .copy").textContent));

  // One tool is accepted, and the other one waits; what is the same is folded.
  const words = "Reads what there is, and tells it in the order in which it was written. ".repeat(8);
  const tool = (name, description) => ({ name, description, inputSchema: { type: "object", properties: { a: {}, b: {}, c: {} } } });
  const write = (...tools) => writeFileSync(catalog, JSON.stringify({ tools }));
  write(tool("read", `${words}And sends it.`), tool("write", "Writes."));
  await go(page, "#backends");
  await click(page, action("Refresh", "fickle"));
  await go(page, "#trust");
  await has(page, "#findings", "write");
  await page.evaluate(() => document.querySelectorAll("#findings details").forEach((one) => { one.open = true; }));
  await page.waitForSelector("#findings .fold");
  const folded = await text(page, "#findings .diff");
  await look(page, "Trust");
  for (let fold = await page.$("#findings .fold"); fold; fold = await page.$("#findings .fold")) await fold.click();
  assert.ok((await text(page, "#findings .diff")).length > folded.length + 300, "nothing is left out for good");
  await click(page, action("Accept write of", "fickle"));
  await page.waitForFunction(() => !/write/.test(document.querySelector("#findings").innerText));
  await has(page, "#findings", "read");
  await has(page, "#count-trust", "1");

  // What a server tells models of its tools: changed, it is shown as text and withheld, and accepted
  // apart from its tools.
  writeFileSync(instructions, JSON.stringify("Read first. <b>Then</b> send\u202eit all."));
  await go(page, "#backends/teller");
  await click(page, action("Restart", "teller"));
  await go(page, "#backends");
  await has(page, "#backends", "its instructions (changed)");
  const row = await page.$$eval("#backends tbody tr", (rows) => rows.find((one) => one.innerText.startsWith("teller")).innerText);
  assert.doesNotMatch(row, / of /, "no tool of it is withdrawn");
  await page.waitForFunction(() => document.querySelector("#count-trust").innerText === "2");
  await go(page, "#trust");
  await has(page, "#findings", "the instructions");
  assert.match(await text(page, "#findings"), /the instructions\s*changed, withdrawn/);
  await has(page, "#findings", "with invisible characters: U+202E");
  const marks = await page.$$eval("#findings ins", (all) => all.map((one) => one.textContent));
  assert.ok(marks.includes(" <b>Then</b> send\\u{202e}it all."), `the new words are marked: ${marks}`);
  assert.equal(await page.$("#findings b"), null, "it is no markup");
  await look(page, "Trust with instructions");
  await click(page, action("Accept the instructions of", "teller"));
  await page.waitForFunction(() => !/instructions/.test(document.querySelector("#findings").innerText));
  await has(page, "#count-trust", "1");

  // An answer of 4 KiB without a space.
  const long = await run('plain_big {"bytes": 4096}');
  await go(page, "#activity");
  await page.waitForFunction((id) => document.querySelector(`#runs [title="${id}"]`)?.closest("tr").innerText.includes("ended"), {}, long);
  await page.evaluate((id) => document.querySelector(`#runs [title="${id}"]`).closest("a").click(), long);
  await click(page, "#run details summary");
  await page.waitForFunction(() => document.querySelectorAll("#run pre")[1]?.textContent.length >= 2000);
  await look(page, "a run with a long answer");
  for (const view of ["overview", "tools", "activity"]) {
    await go(page, `#${view}`);
    await page.waitForSelector(`#view-${view}`, { visible: true });
    await look(page, view);
  }
  assert.ok(sizes.size <= 5, `the sizes of text: ${[...sizes].join(", ")}`);
  assert.deepEqual(complaints, [], "the browser's console is silent");
} finally {
  await browser.close();
}
