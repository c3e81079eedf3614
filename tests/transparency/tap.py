"""Copies everything that passes between a client and a server, and logs every JSON message.

    tap.py stdio LOG -- COMMAND...          runs COMMAND and sits on its standard streams
    tap.py http LOG PORT UPSTREAM_PORT      listens on PORT and forwards to UPSTREAM_PORT

A log is a sequence of records: a line "host LENGTH" or "server LENGTH" that names the sender, then LENGTH bytes, then a newline. A message is
logged before it is forwarded, so a reply never stands before its request.
"""

import http.client
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Log:
    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)
        self.lock = threading.Lock()

    def write(self, sender, message):
        if message.strip():
            with self.lock:
                self.file.write(b"%s %d\n%s\n" % (sender.encode(), len(message), message))


def copy(source, sink, log, sender):
    """Forwards lines until the source ends. Keeps reading when nobody takes them, so that the writer never blocks."""
    is_open = True
    while line := source.readline():
        log.write(sender, line.rstrip(b"\r\n"))
        try:
            if is_open:
                sink.write(line)
                sink.flush()
        except OSError:
            is_open = False
    try:
        sink.close()
    except OSError:
        pass


def tap_stdio(log, command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=copy, args=(sys.stdin.buffer, child.stdin, log, "host"), daemon=True).start()
    copy(child.stdout, sys.stdout.buffer, log, "server")
    os._exit(child.wait() & 0xFF)


# Fields that describe one connection. The tap has two connections, each with its own.
PER_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def forwarded(fields):
    return [(name, value) for name, value in fields if name.lower() not in PER_CONNECTION]


def tap_http(log, port, upstream_port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            body = self.body()
            log.write("host", body)
            upstream = http.client.HTTPConnection("127.0.0.1", upstream_port)
            fields = dict(forwarded(self.headers.items()))
            # The server sees the host name that it would see without a tap.
            fields["Host"] = f"127.0.0.1:{upstream_port}"
            try:
                upstream.request(self.command, self.path, body or None, fields)
                self.reply(upstream.getresponse())
            except OSError:
                self.close_connection = True
            finally:
                upstream.close()

        do_GET = do_POST = do_DELETE = forward

        def body(self):
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def reply(self, response):
            is_stream = response.headers.get_content_type() == "text/event-stream"
            self.send_response_only(response.status)
            for name, value in forwarded(response.getheaders()):
                self.send_header(name, value)
            if is_stream:
                # The end of the connection is the end of the stream.
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                self.stream(response)
            else:
                body = response.read()
                log.write("server", body)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def stream(self, response):
            data = []
            self.wfile.flush()
            while line := response.readline():
                text = line.rstrip(b"\r\n")
                if text.startswith(b"data:"):
                    data.append(text[5:].removeprefix(b" "))
                elif not text:
                    log.write("server", b"\n".join(data))
                    data = []
                self.wfile.write(line)
                self.wfile.flush()

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request, client_address):
            """A connection that one end closed early is not worth a traceback."""

    Server(("127.0.0.1", port), Handler).serve_forever()


def main():
    kind, path, *rest = sys.argv[1:]
    log = Log(path)
    if kind == "stdio":
        tap_stdio(log, rest[1:])
    else:
        tap_http(log, int(rest[0]), int(rest[1]))


main()
