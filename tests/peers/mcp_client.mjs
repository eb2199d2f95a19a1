/**
 * The official TypeScript clients of MCP against the bridge, for the integration tests: what
 * mcp_client.py does, with the same result.
 *
 *     mcp_client.mjs MODULES SDK ERA URL TOKEN
 *     mcp_client.mjs MODULES SDK ERA stdio COMMAND [ARGUMENT]...
 *
 * MODULES is the node_modules that has the SDK: `v1` (@modelcontextprotocol/sdk) or `v2`
 * (@modelcontextprotocol/client). ERA is `sessions` (2025-11-25) or `stateless` (2026-07-28), which
 * v1 does not speak.
 */

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, sdk, era, place, ...rest] = process.argv.slice(2);
const { resolve } = createRequire(`${modules}/any.js`);
const load = (module) => import(pathToFileURL(resolve(module)));

/** The parts of the SDK, and how an answer to `elicitation/create` is given to it. */
async function load_sdk() {
  if (sdk === "v2") {
    const module = await load("@modelcontextprotocol/client");
    const stdio = await load("@modelcontextprotocol/client/stdio");
    return { ...module, ...stdio, question: "elicitation/create" };
  }
  const at = (path) => load(`@modelcontextprotocol/sdk/${path}.js`);
  const parts = ["client/index", "client/streamableHttp", "client/stdio", "types"];
  const [client, http, stdio, types] = await Promise.all(parts.map(at));
  return { ...client, ...http, ...stdio, question: types.ElicitRequestSchema };
}

const parts = await load_sdk();

function transport() {
  if (place === "stdio") {
    const [command, ...args] = rest;
    return new parts.StdioClientTransport({ command, args });
  }
  const requestInit = { headers: { authorization: `Bearer ${rest[0]}` } };
  return new parts.StreamableHTTPClientTransport(new URL(place), { requestInit });
}

/** Answers every question of a server for the user. */
function answer({ params }) {
  const known = { "Which name?": { value: "Ada" }, "Which colour?": { value: "red" } };
  return { action: "accept", content: known[params.message] ?? { name: "Ada" } };
}

async function code(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return error.code;
  }
}

async function use(client) {
  const call = (name, args = {}, options = undefined) =>
    sdk === "v2"
      ? client.callTool({ name, arguments: args }, options)
      : client.callTool({ name, arguments: args }, undefined, options);
  const texts = (result) => result.content.map((block) => block.text);
  const progress = [];
  const onprogress = ({ progress: done, total }) => progress.push([done, total]);
  const listed = await client.listTools();
  const steps = { duration: 0.4, steps: 4 };
  const long = await call("all_trigger_long_running_operation", steps, { onprogress });
  const image = await call("all_get_tiny_image");
  const failed = await call("plain_fail");
  const invalid = await call("all_get_sum", { a: "x" });
  const structured = await call("all_get_structured_content", { location: "New York" });
  const prompt = { name: "all_args_prompt", arguments: { city: "Rome" } };
  const completed = await client.complete({
    ref: { type: "ref/prompt", name: "all_completable_prompt" },
    argument: { name: "department", value: "E" },
  });
  const text = await client.readResource({ uri: "demo://resource/dynamic/text/7" });
  return {
    tools: listed.tools.map((tool) => tool.name),
    echo: texts(await call("all_echo", { message: "hi" }))[0],
    long: texts(long)[0],
    progress,
    structured: structured.structuredContent,
    image: image.content.map((block) => block.type),
    failed: [failed.isError, texts(failed)[0]],
    invalid: [invalid.isError, texts(invalid)[0]],
    unknown: await code(call("nope")),
    asked: texts(await call("all_trigger_elicitation_request")).slice(0, 2),
    greeted: texts(await call("ask_greet"))[0],
    resources: (await client.listResources()).resources.length,
    templates: (await client.listResourceTemplates()).resourceTemplates.map((it) => it.uriTemplate),
    prompts: (await client.listPrompts()).prompts.map((it) => it.name),
    text: text.contents[0].text.slice(0, 11),
    prompt: (await client.getPrompt(prompt)).messages[0].content.text,
    completion: completed.completion.values,
    missing: await code(client.readResource({ uri: "demo://nope" })),
  };
}

const options = { capabilities: { elicitation: {} } };
if (sdk === "v2") {
  const mode = era === "stateless" ? { pin: "2026-07-28" } : "legacy";
  options.versionNegotiation = { mode };
}
const client = new parts.Client({ name: "tests", version: "1" }, options);
client.setRequestHandler(parts.question, answer);
const connection = transport();
let negotiated;
const keep = connection.setProtocolVersion?.bind(connection);
connection.setProtocolVersion = (version) => {
  negotiated = version;
  keep?.(version);
};
await client.connect(connection);
// v1 tells its transport alone.
const revision = client.getNegotiatedProtocolVersion?.() ?? negotiated;
console.log(JSON.stringify({ revision, ...(await use(client)) }));
await client.close();
