"""libcurl (ngtcp2, nghttp3) of the Python package curl_cffi as the client: `curl_client.py PORT`."""

import asyncio
import sys

from curl_cffi import CurlHttpVersion, requests

from exchanges import attempt, check, report
from origin import pattern

BASE = f"https://localhost:{sys.argv[1]}"
SETTINGS = {"http_version": CurlHttpVersion.V3ONLY, "verify": False}


def get(session, path, method="GET", **more):
    return session.request(method, BASE + path, timeout=300, **SETTINGS, **more)


def of_length(session, length):
    response = get(session, f"/bytes/{length}")
    check(response.status_code == 200 and response.content == pattern(length))


def post(session):
    body = pattern(300_000)
    response = get(session, "/echo", "POST", data=body)
    check(response.content == body and response.headers["x-framing"] == "length")


def head(session):
    response = get(session, "/bytes/1000", "HEAD")
    check(response.content == b"" and response.headers["content-length"] == "1000")


def not_modified(session):
    response = get(session, "/etag", headers={"If-None-Match": '"one"'})
    check(response.status_code == 304 and response.content == b"")


def interim(session):
    check(get(session, "/interim").content == b"final")


def resets(session):
    response = get(session, "/bytes/10000000", stream=True)
    next(response.iter_content())
    response.close()
    try:
        get(session, "/cut")
    except requests.exceptions.RequestException:
        return of_length(session, 100)
    raise AssertionError("a response that is cut looks complete")


def parallel(_):
    async def all():
        async with requests.AsyncSession(max_clients=100) as session:
            asking = (
                session.get(f"{BASE}/bytes/{number * 97}", timeout=60, **SETTINGS) for number in range(100)
            )
            for number, response in enumerate(await asyncio.gather(*asking)):
                check(response.content == pattern(number * 97))

    asyncio.run(all())


def row(session):
    for _ in range(10_000):
        of_length(session, 100)


EXCHANGES = {
    0: lambda session: of_length(session, 0),
    1: lambda session: of_length(session, 100),
    2: lambda session: of_length(session, 1 << 20),
    3: lambda session: of_length(session, 100 << 20),
    4: post,
    7: interim,
    8: head,
    9: not_modified,
    10: resets,
    11: parallel,
    12: row,
}

for number in range(14):
    exchange = EXCHANGES.get(number)
    if exchange is None:
        report(number, "-")
        continue
    with requests.Session() as session:
        attempt(number, lambda: exchange(session))
