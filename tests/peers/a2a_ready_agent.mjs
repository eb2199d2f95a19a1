// An A2A agent on @a2a-js/sdk 0.3 or 1.x, for the tests of what `status` and `doctor` say of it. The
// first argument is the directory of its modules, the second the binding that its card prefers. It
// has an extended card, and takes each message as the text of its answer.
//
// Prints one line `READY http://127.0.0.1:PORT` when it listens.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, binding] = process.argv.slice(2);
const { resolve } = createRequire(pathToFileURL(`${modules}/x.js`));
const load = async (name) => import(pathToFileURL(resolve(name)));
const { default: express } = await load("express");
const { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } = await load("@a2a-js/sdk/server");
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = await load("@a2a-js/sdk/server/express");
const old = AgentEvent === undefined;

const app = express();
const server = createServer(app);
server.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${server.address().port}`;
  const places = [["JSONRPC", `${base}/rpc`], ["HTTP+JSON", `${base}/rest`]];
  places.sort(([name]) => (name === binding ? -1 : 1));
  const skill = { id: "t", name: "T", description: "t", tags: ["t"], examples: [], inputModes: [], outputModes: [], securityRequirements: [] };
  const modes = ["text/plain"];
  const common = { name: "Agent", description: "Answers.", version: "1", defaultInputModes: modes, defaultOutputModes: modes, skills: [skill] };
  const [[transport, url], ...others] = places;
  const card = old
    ? {
        ...common, protocolVersion: "0.3.0", url, preferredTransport: transport, capabilities: { streaming: false },
        additionalInterfaces: others.map(([transport, url]) => ({ transport, url })), supportsAuthenticatedExtendedCard: true,
      }
    : {
        ...common, capabilities: { streaming: false, extendedAgentCard: true, extensions: [] }, securitySchemes: {}, securityRequirements: [], signatures: [],
        supportedInterfaces: places.map(([protocolBinding, url]) => ({ url, protocolBinding, protocolVersion: "1.0", tenant: "" })),
      };
  const executor = {
    async execute(context, bus) {
      const [first] = context.userMessage.parts;
      const ids = { messageId: "m", contextId: context.contextId };
      if (old) bus.publish({ kind: "message", role: "agent", parts: [{ kind: "text", text: first.text }], ...ids });
      else bus.publish(AgentEvent.message({ role: 2, parts: [first], extensions: [], referenceTaskIds: [], taskId: "", ...ids }));
      bus.finished();
    },
    async cancelTask() {},
  };
  const extended = { ...card, name: "Extended agent" };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor, undefined, undefined, undefined, async () => extended);
  const userBuilder = UserBuilder.noAuthentication;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder }));
  app.use("/rest", restHandler({ requestHandler, userBuilder }));
  console.log(`READY ${base}`);
});
