#!/usr/bin/env node
// The example server of MCP's TypeScript SDK behind a login, for the integration tests.
//
//     sdk_login.mjs MODULE ISSUERS_PORT
//
// MODULE is the example; the server's port is in the variable PORT. Its issuer lets everyone in at once.

const [module, issuersPort] = process.argv.slice(2);
process.env.MCP_PORT = process.env.PORT;
process.env.MCP_AUTH_PORT = issuersPort;
process.argv.push("--oauth", "--oauth-strict");
await import(module);
