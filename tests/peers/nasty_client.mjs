/**
 * The official TypeScript clients of MCP, which read all lists and call all tools of nasty_mcp.py:
 * what nasty_client.py does, with the same result.
 *
 *     nasty_client.mjs MODULES SDK ERA COMMAND [ARGUMENT]...
 */

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, sdk, era, command, ...args] = process.argv.slice(2);
const { resolve } = createRequire(`${modules}/any.js`);
const load = (module) => import(pathToFileURL(resolve(module)));

const parts = sdk === "v2"
  ? { ...(await load("@modelcontextprotocol/client")), ...(await load("@modelcontextprotocol/client/stdio")) }
  : {
      ...(await load("@modelcontextprotocol/sdk/client/index.js")),
      ...(await load("@modelcontextprotocol/sdk/client/stdio.js")),
    };

const options = {};
if (sdk === "v2") {
  options.versionNegotiation = { mode: era === "stateless" ? { pin: "2026-07-28" } : "legacy" };
}
const client = new parts.Client({ name: "tests", version: "1" }, options);
await client.connect(new parts.StdioClientTransport({ command, args }));
const { tools } = await client.listTools();
const results = {};
for (const { name } of tools) {
  results[name] = await client.callTool({ name, arguments: {} });
}
const all = {
  tools,
  results,
  resources: (await client.listResources()).resources,
  templates: (await client.listResourceTemplates()).resourceTemplates,
  prompts: (await client.listPrompts()).prompts,
  contents: (await client.readResource({ uri: "nasty://a" })).contents,
  messages: (await client.getPrompt({ name: "it_ask", arguments: { x: "y" } })).messages,
};
console.log(JSON.stringify(all));
await client.close();
