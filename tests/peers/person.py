#!/usr/bin/env python3
"""A person with a browser, for the integration tests: follows an address, and fills in the forms of
npm oidc-provider's `devInteractions`.

    person.py ADDRESS [--decline] [--stop-at PREFIX]
    person.py --reads

Prints the last address and, behind it, the last page. With --stop-at, an address that begins so is
printed and not opened, as by a browser that does not reach it. With --reads, the address is in what
comes on stdin, which is printed on.
"""

import argparse
import html
import http.cookiejar
import re
import sys
import urllib.error
import urllib.parse
import urllib.request


class Stay(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the loop below."""

    def redirect_request(self, *_):
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address", nargs="?")
    parser.add_argument("--reads", action="store_true")
    parser.add_argument("--decline", action="store_true")
    parser.add_argument("--stop-at")
    options = parser.parse_args()
    if options.reads:
        for line in sys.stdin:
            print(line, end="")
            address = re.search(r"http\S*/oauth/start/\S+", line)
            if address:
                follow(argparse.Namespace(address=address.group(), decline=False, stop_at=None))
        return
    follow(options)


def follow(options):
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar), Stay)
    address, form = options.address, None
    for _ in range(20):
        if options.stop_at and address.startswith(options.stop_at):
            print(address)
            return
        status, headers, page = get(opener, address, form)
        form = None
        if "location" in headers:
            address = urllib.parse.urljoin(address, headers["location"])
            continue
        action = re.search(r'<form[^>]*action="([^"]+)"', page)
        if not action:
            print(address)
            print(status, page)
            return
        if options.decline:
            abort = re.search(r'href="([^"]+/abort)"', page)
            address = urllib.parse.urljoin(address, html.unescape(abort.group(1)))
            continue
        fields = dict(re.findall(r'name="([^"]+)"[^>]*value="([^"]*)"', page))
        if 'name="login"' in page:
            fields |= {"login": "anna", "password": "x"}
        address = urllib.parse.urljoin(address, html.unescape(action.group(1)))
        form = urllib.parse.urlencode(fields).encode()
    sys.exit(f"no end of redirects at {address}")


def get(opener, address, form):
    request = urllib.request.Request(address, form)
    # As Chromium sends them for a way from one site to another.
    request.add_header("Sec-Fetch-Mode", "navigate")
    request.add_header("Sec-Fetch-Dest", "document")
    request.add_header("Sec-Fetch-Site", "cross-site")
    try:
        response = opener.open(request, timeout=20)
    except urllib.error.HTTPError as error:
        response = error
    return response.status, response.headers, response.read().decode()


main()
