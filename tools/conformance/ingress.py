#!/usr/bin/env python3
"""Checks the annotations of Ingresses about authentication and canaries on a real API server.

    INSTEAD=tools/conformance/ingress.py tools/conformance.sh
"""
import base64
import http.client
import http.server
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pods import Api  # noqa: E402

SPACE, HOST, NGINX = "ingress", "10.200.0.1", "nginx.ingress.kubernetes.io/"
# `openssl passwd -6 -salt abcdefgh secret`
USERS = "ann:$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.\n"
api = Api(os.environ["SERVER"], "admin-token")


def meta(name, **more):
    return {"metadata": {"namespace": SPACE, "name": name, **more}}


def server(port, answer):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer((HOST, port), Handler)
    listener.handle_error = lambda *_: None  # clients that leave
    threading.Thread(target=listener.serve_forever, daemon=True).start()


def service(name, port):
    api.send("POST", f"/api/v1/namespaces/{SPACE}/services",
             {"apiVersion": "v1", "kind": "Service", **meta(name), "spec": {"ports": [{"name": "p", "port": 80}]}})
    api.send("POST", f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices",
             {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
              **meta(name, labels={"kubernetes.io/service-name": name}), "ports": [{"name": "p", "port": port}],
              "endpoints": [{"addresses": [HOST], "conditions": {"ready": True}}]})


def external_name(name, host, port):
    spec = {"type": "ExternalName", "externalName": host, "ports": [{"name": "p", "port": 80, "targetPort": port}]}
    api.send("POST", f"/api/v1/namespaces/{SPACE}/services", {"apiVersion": "v1", "kind": "Service", **meta(name), "spec": spec})


INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/ingresses"


def ingress(name, host, backend, at="/", **annotations):
    own = {NGINX + key.replace("_", "-"): value for key, value in annotations.items()}
    path = {"path": at, "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"number": 80}}}}
    api.send("POST", INGRESSES, {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", **meta(name, annotations=own),
                                 "spec": {"ingressClassName": "weir", "rules": [{"host": host, "http": {"paths": [path]}}]}})


def get(address, host, headers={}, path="/"):
    connection = http.client.HTTPConnection(address, 80, timeout=10)
    connection.request("GET", path, headers={"Host": host, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def expect(name, found, wanted):
    if found != wanted:
        sys.exit(f"{name}: {found} instead of {wanted}")
    print(f"{name}: {found}")


def main():
    api.send("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    secret = {"auth": base64.b64encode(USERS.encode()).decode()}
    api.send("POST", f"/api/v1/namespaces/{SPACE}/secrets",
             {"apiVersion": "v1", "kind": "Secret", **meta("users"), "type": "Opaque", "data": secret})
    server(3000, lambda request: (200, {}, f"stable user={request.headers.get('x-user')}"))
    server(3100, lambda request: (200, {}, "canary"))
    server(3200, lambda request: (200, {"X-User": "ann"}, "") if request.headers.get("cookie") == "session=1" else (401, {}, "who"))
    for name, port in (("stable", 3000), ("canary", 3100), ("judge", 3200)):
        service(name, port)
    ingress("basic", "basic.test", "stable", auth_type="basic", auth_secret="users", auth_realm="staff")
    url = f"http://judge.{SPACE}.svc.cluster.local/check"
    ingress("asked", "asked.test", "stable", auth_url=url, auth_response_headers="X-User")
    ingress("signed", "signed.test", "stable", auth_url=url, auth_signin="https://sign.test/in")
    ingress("closed", "closed.test", "stable", auth_tls_secret=f"{SPACE}/ca")
    external_name("elsewhere", f"{HOST}.", 3200)
    ingress("by-host", "portal.test", "stable", auth_url="https://$host/oauth2/auth", auth_response_headers="X-User")
    ingress("oauth2", "portal.test", "elsewhere", at="/oauth2")
    ingress("outside", "outside.test", "stable", auth_url=f"http://{HOST}:3200/check", auth_response_headers="X-User")
    ingress("web", "web.test", "stable")
    ingress("web-canary", "web.test", "canary", canary="true", canary_weight="30", canary_by_header="X-Canary", canary_by_cookie="canary")
    address = None
    while not address:
        found = api.send("GET", f"{INGRESSES}/web-canary").get("status", {}).get("loadBalancer", {}).get("ingress")
        address = found and found[0].get("ip")
        time.sleep(0.1)
    while get(address, "web.test")[0] != 200:
        time.sleep(0.1)
    basic = lambda text: {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}
    status, _, headers = get(address, "basic.test")
    expect("basic auth without a password", (status, headers["www-authenticate"]), (401, 'Basic realm="staff"'))
    expect("basic auth with a wrong password", get(address, "basic.test", basic("ann:no"))[0], 401)
    expect("basic auth", get(address, "basic.test", basic("ann:secret"))[0], 200)
    expect("auth-url without a session", get(address, "asked.test", {"X-User": "forged"})[:2], (401, "who"))
    expect("auth-url", get(address, "asked.test", {"Cookie": "session=1", "X-User": "forged"})[:2], (200, "stable user=ann"))
    for host in "portal.test", "outside.test":
        expect(f"auth-url of {host} without a session", get(address, host)[0], 401)
        expect(f"auth-url of {host}", get(address, host, {"Cookie": "session=1"})[:2], (200, "stable user=ann"))
    expect("a Service with an external name", get(address, "portal.test", {"Cookie": "session=1"}, "/oauth2/auth")[0], 200)
    status, _, headers = get(address, "signed.test", path="/a?b=c")
    expect("auth-signin", (status, headers["location"]), (302, "https://sign.test/in?rd=http://signed.test%2Fa%3Fb%3Dc"))
    expect("auth-tls-secret, which is not supported", get(address, "closed.test")[0], 503)
    expect("canary by header", get(address, "web.test", {"X-Canary": "always"})[1], "canary")
    expect("canary by cookie", get(address, "web.test", {"Cookie": "a=b; canary=always"})[1], "canary")
    never = {get(address, "web.test", {"X-Canary": "never", "Cookie": "canary=always"})[1] for _ in range(30)}
    expect("no canary by header", never, {"stable user=None"})
    share = sum(get(address, "web.test")[1] == "canary" for _ in range(1000))
    print(f"canary of 30 %: {share} of 1000 requests")
    assert 240 < share < 360, share
    events = api.send("GET", f"/api/v1/namespaces/{SPACE}/events")["items"]
    for event in events:
        print(f"event of {event['involvedObject']['name']}: {event['reason']}: {event['message']}")


main()
