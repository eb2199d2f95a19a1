#!/usr/bin/env node
// An MCP server behind a person's login, and the issuer of its tokens (npm oidc-provider), for the
// integration tests: one process, one origin.
//
//     issuer.mjs MODULE ACCESS_TOKEN_SECONDS
//
// MODULE is the library; the port is in the variable PORT.
//
// Below /admin, a test reads what has happened, and changes what comes next.

import { createServer } from "node:http";

const { Provider, errors } = await import(process.argv[2]);

const [port, seconds] = [process.env.PORT, process.argv[3]].map(Number);
const issuer = `http://127.0.0.1:${port}`;
const resource = `${issuer}/mcp`;

/** What a test reads and changes. */
const world = {
  seconds,
  calls: 0,
  refusals: 0,
  refreshes: 0,
  // The refresh tokens that were exchanged.
  exchanged: [],
  revocations: 0,
  reuses: 0,
  registrations: 0,
  refresh: true,
  // Another issuer than this one in the server's metadata.
  names: issuer,
  // The scope without which a call is refused.
  needs: null,
  // How long the answer to a refresh takes, in milliseconds.
  slow: 0,
};

/** The adapter of the library's own default, of which a test removes clients. */
const stores = new Map();
class Adapter {
  constructor(name) {
    this.name = name;
    stores.set(name, stores.get(name) ?? new Map());
    this.map = stores.get(name);
  }
  async upsert(id, payload) {
    this.map.set(id, payload);
  }
  async find(id) {
    return this.map.get(id);
  }
  async findByUid(uid) {
    return [...this.map.values()].find((entry) => entry.uid === uid);
  }
  async consume(id) {
    const entry = this.map.get(id);
    if (entry) entry.consumed = Math.floor(Date.now() / 1000);
  }
  async destroy(id) {
    this.map.delete(id);
  }
  async revokeByGrantId(grant) {
    for (const map of stores.values())
      for (const [id, entry] of map) if (entry.grantId === grant) map.delete(id);
  }
}

const provider = new Provider(issuer, {
  adapter: Adapter,
  clients: [
    {
      client_id: "configured",
      client_secret: "canary-client-secret-0123456789",
      redirect_uris: [process.env.REDIRECT_URI ?? "http://127.0.0.1:7717/oauth/callback"],
      grant_types: ["authorization_code", "refresh_token"],
      application_type: "native",
    },
  ],
  cookies: { keys: ["for tests"] },
  scopes: ["openid", "offline_access", "read", "write"],
  rotateRefreshToken: true,
  pkce: { required: () => true },
  ttl: { AccessToken: () => world.seconds },
  issueRefreshToken: async (_ctx, client, code) =>
    world.refresh && client.grantTypeAllowed("refresh_token") && code.scopes.has("offline_access"),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => resource,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_ctx, indicator) => {
        if (indicator !== resource) throw new errors.InvalidTarget();
        return { scope: "read write", accessTokenFormat: "opaque", accessTokenTTL: world.seconds };
      },
    },
  },
});
provider.on("registration_create.success", () => world.registrations++);
provider.on("grant.success", (ctx) => {
  if (ctx.oidc.params.grant_type !== "refresh_token") return;
  world.refreshes++;
  world.exchanged.push(ctx.oidc.params.refresh_token);
});
provider.on("grant.error", (ctx, error) => {
  if (/already used/.test(error.error_detail ?? "")) world.reuses++;
});
provider.use(async (ctx, next) => {
  await next();
  if (ctx.path === "/token/revocation") world.revocations++;
  // After the tokens are made, and before the client has them.
  if (ctx.path === "/token" && world.slow) await new Promise((done) => setTimeout(done, world.slow));
});

const tools = [
  {
    name: "whoami",
    description: "Says whose token the call had.",
    inputSchema: { type: "object", properties: {} },
  },
];

async function body(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

function answer(response, status, value, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(value === undefined ? "" : JSON.stringify(value));
}

/** The server's refusal. */
function refuse(response, status, error, scope) {
  world.refusals++;
  const metadata = `${issuer}/.well-known/oauth-protected-resource/mcp`;
  const said = error ? `, error="${error}"` : "";
  answer(response, status, { error: "refused" }, {
    "www-authenticate": `Bearer resource_metadata="${metadata}", scope="${scope}"${said}`,
  });
}

async function mcp(request, response) {
  const shown = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const token = shown && (await provider.AccessToken.find(shown));
  if (!token || token.isExpired) return refuse(response, 401, shown && "invalid_token", "read");
  if (request.method !== "POST") return answer(response, 405, { error: "no stream" });
  const { id, method, params } = JSON.parse(await body(request));
  if (id === undefined) return answer(response, 202);
  const result = (value) => answer(response, 200, { jsonrpc: "2.0", id, result: value });
  const serverInfo = { name: "behind-a-login", version: "1" };
  switch (method) {
    case "initialize":
      return result({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo,
      });
    case "tools/list":
      return result({ tools });
    case "tools/call":
      if (world.needs && !(token.scope ?? "").split(" ").includes(world.needs))
        return refuse(response, 403, "insufficient_scope", world.needs);
      world.calls++;
      return result({ content: [{ type: "text", text: `called by ${token.accountId}` }] });
    default:
      return answer(response, 200, {
        jsonrpc: "2.0",
        id,
        error: { code: -32601, message: "unknown method" },
      });
  }
}

async function admin(request, response) {
  if (request.method === "POST") {
    const change = JSON.parse(await body(request));
    if (change.purge) for (const id of [...stores.get("Client").keys()]) stores.get("Client").delete(id);
    if (change.expire) stores.get("AccessToken")?.clear();
    if (change.end) stores.get("RefreshToken")?.clear();
    Object.assign(world, change);
  }
  answer(response, 200, world);
}

const handle = provider.callback();
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, issuer);
  const fail = (error) => {
    console.error(error);
    answer(response, 500, { error: "broken" });
  };
  if (pathname === "/mcp") return mcp(request, response).catch(fail);
  if (pathname === "/admin") return admin(request, response).catch(fail);
  if (pathname.startsWith("/.well-known/oauth-protected-resource")) {
    return answer(response, 200, {
      resource,
      authorization_servers: [world.names],
      scopes_supported: ["read", "write"],
    });
  }
  return handle(request, response);
});
server.listen(port, "127.0.0.1", () => console.log("listening"));
