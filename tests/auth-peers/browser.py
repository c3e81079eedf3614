"""A browser without a screen: follows redirects, keeps cookies, and submits every form with its defaults, like a person who agrees to all.

It is started through $BROWSER with the URL. It appends what it was given (arguments and environment) to the file that AUTH_PEERS_BROWSER_LOG names. With
AUTH_PEERS_BROWSER_DELAY it waits for that many seconds first.
"""

import json
import os
import sys
import time
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar

# What is typed into fields that have no default.
TYPED = {"login": "alice", "username": "demo_user", "password": "demo_password"}


class Form(HTMLParser):
    """The first form of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.is_inside = False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form" and self.action is None:
            self.action, self.is_inside = values.get("action") or "", True
        name = values.get("name")
        if not self.is_inside or not name:
            return
        if tag == "input":
            self.fields[name] = values.get("value") or TYPED.get(name, "")
        elif tag == "button" and name not in self.fields:
            self.fields[name] = values.get("value") or ""

    def handle_endtag(self, tag):
        if tag == "form":
            self.is_inside = False


def visit(url: str) -> str:
    """Opens a page, and submits forms until a page has none. Returns the last page."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    response = opener.open(url, timeout=30)
    for _ in range(8):
        page = response.read().decode()
        form = Form(page)
        if form.action is None:
            return page
        target = urllib.parse.urljoin(response.url, form.action)
        response = opener.open(target, urllib.parse.urlencode(form.fields).encode(), timeout=30)
    raise SystemExit(f"too many forms, the last at {response.url}")


def main() -> None:
    log = os.environ.get("AUTH_PEERS_BROWSER_LOG")
    if log:
        with open(log, "a") as file:
            file.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}) + "\n")
    time.sleep(float(os.environ.get("AUTH_PEERS_BROWSER_DELAY", "0")))
    page = visit(sys.argv[1])
    if log:
        with open(log + ".pages", "a") as file:
            file.write(page + "\n")


if __name__ == "__main__":
    main()
