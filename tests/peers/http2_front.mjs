// TLS with HTTP/2 and HTTP/1.1 before a server that has neither, for the integration tests.
//
//     http2_front.mjs HOST:PORT
//
// Its certificate is tls.pem. It prints a line for each HTTP/2 connection, and one for each request:
// the version, the method and the path. Must not: need anything but Node.

import { readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";

const [host, port] = process.argv[2].split(":");
const pem = readFileSync(new URL("tls.pem", import.meta.url));

// What belongs to one connection, and what HTTP/2 alone has.
const own = (name) => name.startsWith(":") || /^(connection|keep-alive|transfer-encoding)$/.test(name);
const passedOn = (headers) => Object.fromEntries(Object.entries(headers).filter(([name]) => !own(name)));

const server = http2.createSecureServer({ key: pem, cert: pem, allowHTTP1: true }, (request, response) => {
    const { httpVersion, method, url } = request;
    console.log(`${httpVersion} ${method} ${url}`);
    const headers = passedOn(request.headers);
    const onward = http.request({ host, port, method, path: url, headers }, (answer) => {
        response.writeHead(answer.statusCode, passedOn(answer.headers));
        // Before the first event of a stream.
        response.flushHeaders?.();
        answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
});
server.on("session", () => console.log("session"));
server.listen(Number(process.env.PORT), "127.0.0.1", () => {
    console.log(`READY http://127.0.0.1:${server.address().port}`);
});
