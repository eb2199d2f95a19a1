// An A2A agent on @a2a-js/sdk 0.3 or 1.x, for the integration tests. The first argument is the
// directory of its modules, the second its version: 0.3 or 1.0.
//
// What it does is decided by the message:
//
//     msg X     replies with the message X
//     task X    completes a task whose artifact is X
//     words     says its answer while it works, and completes the task without a word
//     break     fails with an exception in the middle of a task
//     chunks    completes a task whose artifact comes in three pieces
//     end       completes a task after 1 s
//
// Prints one line `READY http://127.0.0.1:PORT` when it listens.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const [modules, version] = process.argv.slice(2);
const { resolve } = createRequire(pathToFileURL(`${modules}/x.js`));
const load = async (name) => import(pathToFileURL(resolve(name)));
const { default: express } = await load("express");
const { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } = await load("@a2a-js/sdk/server");
const { agentCardHandler, jsonRpcHandler, UserBuilder } = await load("@a2a-js/sdk/server/express");

const old = version === "0.3";
const STATES = { submitted: 1, working: 2, completed: 3 };
const part = (text) => (old ? { kind: "text", text } : { content: { $case: "text", value: text }, filename: "", mediaType: "", metadata: undefined });
const said = (text, ids) => ({
  kind: "message", messageId: randomUUID(), role: old ? "agent" : 2, parts: [part(text)], extensions: [], referenceTaskIds: [], ...ids,
});

class Executor {
  async execute(context, bus) {
    const ids = { taskId: context.taskId, contextId: context.contextId };
    const first = context.userMessage.parts[0];
    const [verb, ...rest] = (first.text ?? first.content.value).split(" ");
    const text = rest.join(" ");
    const event = (kind, name, data) => bus.publish(old ? { kind, ...data } : AgentEvent[name](data));
    const state = (state, words, final = false) => ({
      state: old ? state : STATES[state], message: words && said(words, ids), timestamp: new Date().toISOString(), final,
    });
    const status = (name, words, final = false) => event("status-update", "statusUpdate", { ...ids, status: state(name, words), final });
    const made = (text, append = false, lastChunk = true) => event("artifact-update", "artifactUpdate", {
      ...ids, append, lastChunk, artifact: { artifactId: "a", name: "", description: "", parts: [part(text)], extensions: [] },
    });
    if (verb === "msg") {
      event("message", "message", said(text, { contextId: context.contextId, taskId: old ? undefined : "" }));
      return bus.finished();
    }
    event("task", "task", { id: ids.taskId, contextId: ids.contextId, status: state("submitted"), artifacts: [], history: [context.userMessage] });
    status("working", verb === "words" ? "the answer is 42" : undefined);
    if (verb === "break") throw new Error("the executor fails");
    if (verb === "end") await sleep(1000);
    if (verb === "chunks") for (const [place, piece] of ["one ", "two ", "three"].entries()) made(piece, place > 0, place === 2);
    else if (verb !== "words") made(text || verb);
    status("completed", undefined, true);
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    bus.finished();
  }
}

const app = express();
const server = createServer(app);
server.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  const url = `${base}/a2a/jsonrpc`;
  const skills = [{ id: "test", name: "Test", description: "Tests.", tags: ["test"], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }];
  const shared = { name: "Test agent", description: "Does what a test says.", version: "1", skills, defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"] };
  const card = old
    ? { ...shared, protocolVersion: "0.3.0", url, capabilities: { streaming: true } }
    : { ...shared, supportedInterfaces: [{ url, protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" }], capabilities: { streaming: true, pushNotifications: false, extensions: [] }, securitySchemes: {}, securityRequirements: [], signatures: [] };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/a2a/jsonrpc", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.log(`READY ${base}`);
});
