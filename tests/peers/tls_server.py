"""A server over TLS that lets nobody in, or leads to one that is not on TLS, for the integration
tests.

    tls_server.py --port N [--before HOST:PORT] [--client-ca FILE]

Its certificate, tls.pem, is its own issuer and good for 127.0.0.1; its key is public. Every POST is
answered 401, with the request's headers in the body, as careless servers do; with --before,
connections are passed on as they are. With --client-ca, clients have to show a certificate of that
authority, and client.pem is one. Must not: need anything but the standard library.
"""

import argparse
import http.server
import pathlib
import select
import socket
import socketserver
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


class Passing(socketserver.BaseRequestHandler):
    def handle(self):
        host, port = self.server.before.split(":")
        with socket.create_connection((host, int(port))) as behind:
            other = {self.request: behind, behind: self.request}
            while True:
                # What is decrypted already makes no socket readable.
                waits = [self.request] if self.request.pending() else list(other)
                for ready in select.select(waits, [], [])[0]:
                    piece = ready.recv(65536)
                    if not piece:
                        return
                    other[ready].sendall(piece)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def finish_request(self, request, address):
        # In the connection's own thread, so that a client that hangs there stops no other.
        request.do_handshake()
        super().finish_request(request, address)

    def handle_error(self, request, address):
        """Clients hang up, and those without a certificate are refused."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--before")
    parser.add_argument("--client-ca")
    args = parser.parse_args()
    server = Server(("127.0.0.1", args.port), Passing if args.before else Handler)
    server.before = args.before
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pathlib.Path(__file__).with_name("tls.pem"))
    if args.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(args.client_ca)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    print(f"READY https://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
