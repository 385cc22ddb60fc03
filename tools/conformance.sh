#!/usr/bin/env bash
# Runs the conformance suite of the Gateway API against weir-gateway, with a real API server in a separate network namespace.
#
#     tools/conformance.sh [PROFILE…]        all profiles without a name: HTTP GRPC TLS TCP UDP
#
# Needs root, Go 1.26, Python, curl, openssl and iproute2. The first run builds etcd, the API server, the suite and its backends
# from their Go modules, which takes about an hour on two cores and 5 GB of disk: 2.3 GB in Go's module cache, 2 GB in its build
# cache, and 300 MB of programs in CACHE. Nothing else is installed, and nothing is left running.
#
#     CACHE=DIR         the programs; default ~/.cache/weir-conformance
#     WEIR, GATEWAY     the binaries to test; default those of `cargo build`
#     RUN=REGEX         only tests with matching names (`-run-test`)
#     REPORTS=DIR       the suite's report and the logs; default target/conformance
#     INSTEAD=COMMAND   run this instead of the suite, for example tools/conformance/figures.py
#     KEEP=1            leave the cluster running until Enter is pressed
set -euo pipefail
cd "$(dirname "$0")/.."
kubernetes=1.37.2 gateway_api=1.6.3 etcd=3.7.0 coredns=1.12.2
CACHE=${CACHE:-$HOME/.cache/weir-conformance}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
REPORTS=$(realpath -m "${REPORTS:-target/conformance}")
profiles=("$@")
[ ${#profiles[@]} -gt 0 ] || profiles=(HTTP GRPC TLS TCP UDP)
[ "$(id -u)" -eq 0 ] || { echo "network namespaces need root" >&2; exit 1; }
for tool in go python3 curl openssl ip; do
    command -v "$tool" >/dev/null || { echo "$tool is missing; Debian's packages are golang (1.26), python3, curl, openssl and iproute2" >&2; exit 1; }
done

# One module for all programs, so that they share compiled packages.
prepare_module() {
    local module=$CACHE/src mod
    mkdir -p "$module/etcd" "$module/apiserver" "$CACHE/bin"
    cat >"$module/etcd/main.go" <<'GO'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
GO
    cat >"$module/apiserver/main.go" <<'GO'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
GO
    mod=$(cd / && go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
    {
        printf 'module conformance\n\ngo 1.26.0\n\nrequire (\n'
        printf '\tk8s.io/kubernetes v%s\n\tk8s.io/component-base v0.%s\n' "$kubernetes" "${kubernetes#1.}"
        printf '\tgo.etcd.io/etcd/server/v3 v%s\n' "$etcd"
        printf '\tsigs.k8s.io/gateway-api v%s\n\tsigs.k8s.io/gateway-api/conformance v%s\n)\n\nreplace (\n' "$gateway_api" "$gateway_api"
        sed -n "s|^\t*\(k8s.io/[a-z0-9-]*\) => ./staging.*|\t\1 => \1 v0.${kubernetes#1.}|p" "$mod"
        printf ')\n'
    } >"$module/go.mod"
}

# CoreDNS with the plugins that the suite's configuration names.
prepare_coredns() {
    mkdir -p "$CACHE/src/coredns"
    cat >"$CACHE/src/coredns/main.go" <<'GO'
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() {
	dnsserver.Directives = []string{"errors", "log", "whoami", "forward"}
	coremain.Run()
}
GO
    printf 'module coredns\n\ngo 1.26.0\n\nrequire github.com/coredns/coredns v%s\n' "$coredns" >"$CACHE/src/coredns/go.mod"
}

build() { # program, folder, command
    [ -x "$CACHE/bin/$1" ] && return
    echo "building $1 …"
    (cd "$2" && shift 2 && GOFLAGS="-buildvcs=false -mod=mod" GOTOOLCHAIN=local nice "$@")
}

build_all() {
    local program
    for program in etcd kube-apiserver echo-basic conformance.test coredns; do
        [ -x "$CACHE/bin/$program" ] || {
            echo "building from Go modules into $CACHE: etcd $etcd, kube-apiserver $kubernetes, conformance suite $gateway_api, CoreDNS $coredns"
            break
        }
    done
    [ -f "$CACHE/src/go.mod" ] || prepare_module
    [ -f "$CACHE/src/coredns/go.mod" ] || prepare_coredns
    local options=(-trimpath -ldflags="-s -w" -o)
    build echo-basic "$CACHE/src" go build "${options[@]}" ../bin/echo-basic sigs.k8s.io/gateway-api/conformance/echo-basic
    build etcd "$CACHE/src" go build "${options[@]}" ../bin/etcd ./etcd
    build kube-apiserver "$CACHE/src" go build "${options[@]}" ../bin/kube-apiserver ./apiserver
    build conformance.test "$CACHE/src" go test -c "${options[@]}" ../bin/conformance.test sigs.k8s.io/gateway-api/conformance
    build coredns "$CACHE/src/coredns" go build "${options[@]}" ../../bin/coredns .
    if [ -z "${WEIR:-}" ] || [ -z "${GATEWAY:-}" ]; then
        cargo build --locked -p weir -p weir-gateway
    fi
}

network=weir-conformance
server=https://127.0.0.1:26010
inside() { ip netns exec "$network" "$@"; }
started=()
start() { # name, command
    local name=$1
    shift
    # Not by a function, so that the process ID is the program's.
    ip netns exec "$network" "$@" >"$work/$name.log" 2>&1 &
    started+=($!)
}
api() { # method, path, options of curl
    local method=$1 path=$2
    shift 2
    inside curl -ksS -X "$method" -H "Authorization: Bearer admin-token" "$@" "$server$path"
}
# Creates the objects of a YAML file: for each document its path and the document itself.
create() {
    python3 - "$1" <<'PYTHON' | while IFS=$'\t' read -r path file; do
import re, sys, tempfile
PLURALS = {"NetworkPolicy": "networkpolicies", "IngressClass": "ingressclasses", "GatewayClass": "gatewayclasses",
           "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}
for document in re.split(r"^---\s*$", open(sys.argv[1]).read(), flags=re.M):
    field = lambda name: (re.search(rf"^{name}: *(\S+)", document, re.M) or [None, ""])[1].strip("\"'")
    kind, version = field("kind"), field("apiVersion")
    if not kind:
        continue
    metadata = (re.search(r"^metadata:\n((?: .*\n|\n)*)", document, re.M) or [None, ""])[1]
    namespace = (re.search(r"^  namespace: *(\S+)", metadata, re.M) or [None, ""])[1]
    root = "/api/v1" if version == "v1" else "/apis/" + version
    plural = PLURALS.get(kind, kind.lower() + "s")
    scope = f"/namespaces/{namespace}" if namespace else ""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(document)
    print(f"{root}{scope}/{plural}", file.name, sep="\t")
PYTHON
        answer=$(api POST "$path" -H "Content-Type: application/yaml" --data-binary "@$file" </dev/null)
        rm -f "$file"
        grep -q '"code": 4' <<<"$answer" && { echo "$1: $answer" >&2; exit 1; }
        true
    done
}

finish() {
    local process
    # The last ones need the first ones.
    for process in $(printf '%s\n' ${started[@]+"${started[@]}"} | tac); do
        kill "$process" 2>/dev/null || continue
        for _ in $(seq 50); do
            kill -0 "$process" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$process" 2>/dev/null || true
    done
    ip netns list 2>/dev/null | sed -n "s/^\(pod-[0-9a-f]*\).*/\1/p" | while read -r pod; do ip netns del "$pod"; done
    ip netns del "$network" 2>/dev/null || true
    rm -rf "$work"
}

up() {
    work=$(mktemp -d)
    trap finish EXIT
    ip netns add "$network"
    ip -n "$network" link set lo up
    ip -n "$network" link add pods type bridge
    ip -n "$network" addr add 10.200.0.1/16 dev pods
    ip -n "$network" link set pods up
    # The addresses of Gateways.
    pool=()
    for number in $(seq 1 80); do
        ip -n "$network" addr add "10.201.0.$number/32" dev lo
        pool+=("10.201.0.$number")
    done
    openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
    openssl rsa -in "$work/sa.key" -pubout -out "$work/sa.pub" 2>/dev/null
    printf 'admin-token,admin,1,"system:masters"\ngateway-token,system:serviceaccount:weir-gateway:weir-gateway,2,"system:serviceaccounts,system:authenticated"\n' >"$work/tokens.csv"
    start etcd "$CACHE/bin/etcd" --data-dir "$work/etcd" --unsafe-no-fsync --log-level warn
    start apiserver "$CACHE/bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=26010 \
        --bind-address=127.0.0.1 --cert-dir="$work/apiserver" --service-account-issuer=https://conformance \
        --service-account-key-file="$work/sa.pub" --service-account-signing-key-file="$work/sa.key" \
        --token-auth-file="$work/tokens.csv" --authorization-mode=RBAC --service-cluster-ip-range=10.96.0.0/16 \
        --disable-admission-plugins=ServiceAccount,TaintNodesByCondition --endpoint-reconciler-type=none \
        --advertise-address=10.200.0.1
    for _ in $(seq 240); do
        [ "$(api GET /readyz 2>/dev/null)" = ok ] && break
        sleep 0.5
    done
    local crds
    crds=$(cd "$CACHE/src" && GOFLAGS=-mod=mod go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/experimental
    for file in "$crds"/gateway.networking.k8s.io_*.yaml; do
        case $file in *vap*) ;; *) create "$file" ;; esac
    done
    for _ in $(seq 60); do
        api GET /apis/gateway.networking.k8s.io/v1 | grep -q '"httproutes"' && break
        sleep 0.5
    done
    create packaging/kubernetes/rbac.yaml
    create packaging/kubernetes/classes.yaml
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=node -keyout "$work/node.key" -out "$work/node.crt" 2>/dev/null
    cat "$work/node.key" "$work/node.crt" >"$work/node.pem"
    start pods python3 tools/conformance/pods.py "$server" admin-token "$work/pods" "$work/node.pem" \
        "echo-basic=$CACHE/bin/echo-basic" "coredns=$CACHE/bin/coredns"
    echo gateway-token >"$work/token"
    start gateway "${GATEWAY:-$target/debug/weir-gateway}" --run "${WEIR:-$target/debug/weir}" --directory "$work/gateway" \
        --server "$server" --insecure --token-file "$work/token" --namespace weir-gateway --http 127.0.0.1:9902 \
        --address-pool "$(IFS=,; echo "${pool[*]}")"
    for _ in $(seq 100); do
        inside curl -fs http://127.0.0.1:9902/readyz >/dev/null && break
        sleep 0.2
    done
    cat >"$work/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "$server", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: admin-token}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
YAML
}

# The suite chooses its tests by the features that the GatewayClass lists, and the profiles of the report by name.
run_suite() { # profiles, separated by commas
    local report=$REPORTS/report.yaml version
    version=$(sed -n '/workspace.package/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    echo "== $1, report $report"
    KUBECONFIG=$work/kubeconfig inside "$CACHE/bin/conformance.test" -test.run '^TestConformance$' -test.timeout 60m -test.v \
        -gateway-class weir -conformance-profiles "$1" -cleanup-base-resources=false \
        ${RUN:+-run-test "$RUN"} ${SKIP:+-skip-tests "$SKIP"} \
        -usable-address 10.201.0.80 -unusable-address 192.0.2.200 \
        -organization weir-proxy -project weir -url https://github.com/weir-proxy/weir -version "v$version" \
        -contact https://github.com/weir-proxy/weir/issues -report-output "$report" >"$REPORTS/suite.log" 2>&1 || true
    sed -n 's/^    --- \(FAIL\|PASS\|SKIP\): TestConformance.*/\1/p' "$REPORTS/suite.log" | sort | uniq -c
    sed -n 's/^ *--- FAIL: \(.*\)/failed: \1/p' "$REPORTS/suite.log"
}

build_all
mkdir -p "$REPORTS"
up
if [ -n "${INSTEAD:-}" ]; then
    KUBECONFIG=$work/kubeconfig SERVER=$server WORK=$work ECHO=$CACHE/bin/echo-basic WEIR=${WEIR:-$target/debug/weir} \
        GATEWAY=${GATEWAY:-$target/debug/weir-gateway} inside $INSTEAD || true
else
    run_suite "$(printf ',GATEWAY-%s' "${profiles[@]}" | cut -c2-)"
fi
cp "$work"/*.log "$REPORTS/"
cp "$work/gateway/weir.cfg" "$REPORTS/"
if [ -n "${KEEP:-}" ]; then
    echo "the cluster runs: KUBECONFIG=$work/kubeconfig ip netns exec $network kubectl …; Enter ends it"
    read -r _
fi
