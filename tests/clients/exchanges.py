"""The exchanges that every client tries, and the output format of the clients: a line `number<TAB>result` for each exchange."""

import sys
import traceback

NAMES = [
    "GET of 0 bytes",
    "GET of 100 bytes",
    "GET of 1 MiB",
    "GET of 100 MiB",
    "POST with a length",
    "POST without a length",
    "trailers in both directions",
    "interim response",
    "HEAD",
    "304",
    "reset by either side",
    "100 requests in parallel",
    "10,000 requests in a row",
    "WebSocket",
]


def report(number, result):
    """Reports `ok`, a failure, or `-` if the client cannot do this."""
    text = " ".join(str(result).split())
    print(f"{number}\t{text}", flush=True)


def attempt(number, work):
    """Runs an exchange."""
    try:
        work()
        report(number, "ok")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        report(number, f"failed: {type(error).__name__} {error}"[:200])


def check(condition, text="wrong response"):
    if not condition:
        raise AssertionError(text)
