// A page of another origin, in a real Chromium whose user has signed in at the status page, tries
// all that such a page can try. The variable CHROMIUM names the browser. Arguments: puppeteer's
// module, the bridge's address, its token. Prints what the page could read, which must be nothing;
// whether anything was changed is for the test to see.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [module, url, token] = process.argv.slice(2);
const { default: puppeteer } = await import(pathToFileURL(module));
const executablePath = process.env.CHROMIUM;
const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];

// Another port of the same host: the browser sends it the bridge's cookie, and the bridge its own.
const server = createServer((_, answer) => {
  answer.writeHead(200, { "content-type": "text/html" });
  answer.end("<!doctype html><title>foreign</title><body></body>");
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const foreign = `http://127.0.0.1:${server.address().port}/`;
const browser = await puppeteer.launch({ executablePath, args });

try {
  const page = await browser.newPage();
  await page.goto(url);
  await page.type("#token", token);
  await Promise.all([page.waitForNavigation(), page.click("form button")]);
  assert.match(await page.title(), /mantyx/i, "somebody is signed in");

  await page.goto(foreign);
  const read = await page.evaluate(async (url, token) => {
    const got = [];
    const call = JSON.stringify({ toolUseId: "tu_1", name: "plain_note", args: { text: "foreign" } });
    const tryFetch = async (path, options) => {
      try {
        const answer = await fetch(url + path, { credentials: "include", ...options });
        const text = await answer.text();
        if (answer.type !== "opaque" || text) got.push(`${path}: ${answer.status} ${text}`);
      } catch { /* The browser kept it from the page. */ }
    };
    const posts = ["/v1/tool-calls", "/v1/runs", "/v1/specs/inject", "/v1/backends/plain/refresh",
      "/api/v1/workspaces/acme/agent-runs", "/sign-out", "/sign-in"];
    for (const path of posts) {
      await tryFetch(path, { method: "POST", mode: "no-cors", body: call });
      await tryFetch(path, { method: "POST", mode: "no-cors", body: new URLSearchParams({ a: call }) });
      await tryFetch(path, { method: "POST", body: call });
      // These are asked about beforehand.
      const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
      await tryFetch(path, { method: "POST", headers, body: call });
    }
    for (const path of ["/", "/v1/status", "/v1/calls", "/metrics", "/healthz", "/readyz", "/openapi.json"]) {
      await tryFetch(path, {});
      await tryFetch(path, { mode: "no-cors" });
    }
    // A form goes where it wants, into a frame that the page cannot read.
    const frame = document.createElement("iframe");
    frame.name = "into";
    document.body.append(frame);
    for (const [path, enctype] of [["/v1/tool-calls", "text/plain"], ["/v1/backends/plain/refresh", "multipart/form-data"]]) {
      const form = document.createElement("form");
      Object.assign(form, { method: "POST", action: url + path, enctype, target: "into" });
      form.append(Object.assign(document.createElement("input"), { name: call, value: "" }));
      document.body.append(form);
      const loaded = new Promise((done) => { frame.onload = done; });
      form.submit();
      await loaded;
      try {
        const text = frame.contentDocument?.body?.innerText;
        if (text) got.push(`frame: ${text}`);
      } catch { /* Of another origin. */ }
    }
    const ends = (name, element, good, bad) => new Promise((done) => {
      element[good] = () => { got.push(name); done(); };
      element[bad] = () => done();
    });
    const image = document.createElement("img");
    const shown = ends("img", image, "onload", "onerror");
    image.src = `${url}/v1/status`;
    const script = document.createElement("script");
    const run = ends("script", script, "onload", "onerror");
    script.src = `${url}/v1/status`;
    document.body.append(image, script);
    const source = new EventSource(`${url}/v1/events`, { withCredentials: true });
    const events = ends("EventSource", source, "onopen", "onerror");
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/events`);
    const frames = ends("WebSocket", socket, "onopen", "onerror");
    await Promise.all([shown, run, events, frames]);
    source.close();
    return got;
  }, url, token);
  assert.deepEqual(read, [], "the page read something");

  // Whoever has signed in still is.
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#live")?.innerText.includes("live"));
} finally {
  await browser.close();
  server.close();
}
