// The official JavaScript client of A2A, of 0.3 or 1.x, against an agent, for the integration tests.
//
//     a2a_client.mjs MODULES VERSION CARD_URL BINDING [TOKEN]
//
// MODULES is the directory of its modules, VERSION is 0.3 or 1.0, BINDING is `JSONRPC` or
// `HTTP+JSON`. The agent is a2a_v03_agent.py or a2a_v1_agent.py, directly or behind the bridge.
// Prints what came of it as one JSON object, in which ids have names by their order and times are
// left out: what is the same prints the same.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, version, cardUrl, binding, token] = process.argv.slice(2);
const { resolve } = createRequire(pathToFileURL(`${modules}/x.js`));
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } =
  await import(pathToFileURL(resolve("@a2a-js/sdk/client")));

const old = version === "0.3";
const IDS = ["id", "taskId", "contextId", "messageId", "artifactId"];

const fetchImpl = (url, options = {}) => {
  const headers = new Headers(options.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return fetch(url, { ...options, headers });
};

const known = new Map();
function withoutIds(value) {
  if (Array.isArray(value)) return value.map(withoutIds);
  if (value === null || typeof value !== "object") return value;
  const named = {};
  for (const key of Object.keys(value).sort()) {
    const one = value[key];
    if (key === "timestamp" || one === undefined) continue;
    if (IDS.includes(key) && typeof one === "string" && one) {
      if (!known.has(one)) known.set(one, `id ${known.size}`);
      named[key] = known.get(one);
    } else named[key] = withoutIds(one);
  }
  return named;
}

// The SDK of 1.x fills a card in with empty members if it has converted it.
const withoutEmpty = (value) => {
  if (Array.isArray(value)) return value.map(withoutEmpty);
  if (value === null || typeof value !== "object") return value;
  const isEmpty = (one) => one === "" || one === undefined || (Array.isArray(one) && one.length === 0);
  return Object.fromEntries(Object.entries(value).filter(([, one]) => !isEmpty(one)).map(([key, one]) => [key, withoutEmpty(one)]));
};

const part = (text) => (old ? { kind: "text", text } : { content: { $case: "text", value: text }, filename: "", mediaType: "", metadata: undefined });

function request(text, ids = {}) {
  const message = { messageId: randomUUID(), role: old ? "user" : 1, parts: [part(text)], ...ids };
  if (old) return { message: { kind: "message", ...message } };
  return { tenant: "", message: { contextId: "", taskId: "", metadata: undefined, extensions: [], referenceTaskIds: [], ...message }, configuration: undefined, metadata: undefined };
}

const error = (failure) => ({ error: failure.name, code: failure.code ?? failure.errorResponse?.error?.code });

async function all(stream) {
  const events = [];
  try {
    for await (const event of stream) events.push(event);
  } catch (failure) {
    events.push(error(failure));
  }
  return events;
}

const tried = async (work) => {
  try {
    return await work();
  } catch (failure) {
    return error(failure);
  }
};

// What an event of either version says.
const inner = (event) => event.payload?.value ?? event;
const idsOf = (event) => ({ taskId: inner(event).taskId || inner(event).id, contextId: inner(event).contextId });
const about = (id) => (old ? { id } : { tenant: "", id, metadata: undefined });

const transports = [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })];
const cardResolver = new DefaultAgentCardResolver({ fetchImpl });
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports, cardResolver, preferredTransports: [binding] }));
const card = await cardResolver.resolve(cardUrl, "");
const client = await factory.createFromAgentCard(card);

const told = {};
for (const text of ["msg hi", "task report", "chunks", "fail"]) told[text] = await all(client.sendMessageStream(request(text)));
told.waits = await tried(() => client.sendMessage(request("task report")));
told.asked = await all(client.sendMessageStream(request("input")));
const ids = idsOf(told.asked.at(-1));
told.answered = await all(client.sendMessageStream(request("Friday", ids)));
told.task = await tried(() => client.getTask(about(ids.taskId)));
told.noTask = await tried(() => client.getTask(about("nowhere")));

const stream = client.sendMessageStream(request("long 100"));
const { value: first } = await stream.next();
const { taskId } = idsOf(first);
const cancelled = await tried(() => client.cancelTask(about(taskId)));
told.cancelled = cancelled.status?.state ?? cancelled;
await stream.return();

const begun = client.sendMessageStream(request("long 15"));
const { value: begin } = await begun.next();
await begun.return();
const resubscribed = await all(client.resubscribeTask(about(idsOf(begin).taskId)));
told.takenUp = resubscribed.at(-1);
// Streams that were left would keep the process.
process.stdout.write(JSON.stringify(withoutIds({ card: withoutEmpty(card), told })), () => process.exit(0));
