"""A server over TLS that lets nobody in, for the integration tests.

    tls_server.py --port N

Its certificate, tls.pem, is its own issuer and good for 127.0.0.1; its key is public. Every POST is
answered 401, with the request's headers in the body, as careless servers do. Must not: need
anything but the standard library.
"""

import argparse
import http.server
import pathlib
import ssl


class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.reply(200, b"")

    def do_GET(self):
        self.reply(401, str(self.headers).encode())

    do_POST = do_GET

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pathlib.Path(__file__).with_name("tls.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"READY https://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
