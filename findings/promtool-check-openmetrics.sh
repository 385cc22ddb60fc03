#!/usr/bin/env bash
# Prometheus scrapes OpenMetrics text, and asks for it first. `promtool check metrics`, the tool to check a target's output, does
# not read that format: it always uses the parser of the older text format.
#
# Observed with promtool 2.42.0 (Debian 12), on texts that the reference parser of prometheus_client 0.21.1 accepts:
#   a histogram without exemplars    passes, because both formats agree on it
#   the same with an exemplar        fails to parse: the `#` before the exemplar is read as a timestamp
#   a counter                        is reported to lack help text: its metadata names the family `a`, its sample `a_total`
# An exporter with OpenMetrics output therefore has to be checked in both formats: the older text with promtool, OpenMetrics with
# another parser.
#
# Needs apt-get of Debian 12, and python3 with venv. Exits with 1 if any of this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
version=$(apt-cache madison prometheus | awk '$3 ~ /^2\.42\.0/ && !found { print $3; found = 1 }')
apt-get download -qq "prometheus=$version" 2>/dev/null
dpkg -x prometheus_*.deb root
python3 -m venv venv
venv/bin/pip install -q prometheus_client==0.21.1

histogram() {
    printf '# HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n'
    printf 'a_seconds_bucket{le="1.0"} 1%s\n' "$1"
    printf 'a_seconds_bucket{le="+Inf"} 1\na_seconds_count 1\na_seconds_sum 0.5\n# EOF\n'
}
histogram '' >plain.txt
histogram ' # {trace_id="0af7651916cd43dd8448eb211c80319c"} 0.5 1700000000.0' >exemplar.txt
printf '# HELP a Requests.\n# TYPE a counter\na_total 1\n# EOF\n' >counter.txt

fails() {
    echo "changed: $1" >&2
    exit 1
}
for text in plain exemplar counter; do
    venv/bin/python - "$text.txt" <<'PYTHON' || fails "the reference parser refuses $text"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families

assert len(list(text_string_to_metric_families(open(sys.argv[1]).read()))) == 1
PYTHON
    code=0
    root/usr/bin/promtool check metrics <$text.txt >$text.out 2>&1 || code=$?
    echo "$text: exit code $code: $(cat $text.out)"
    echo "$code" >$text.code
done
[ "$(cat plain.code)" = 0 ] || fails "a histogram without exemplars does not pass"
grep -q 'expected integer as timestamp, got "#"' exemplar.out || fails "the exemplar is not taken for a timestamp"
[ "$(cat exemplar.code)" = 1 ] || fails "another exit code for a parse error"
grep -q 'a_total no help text' counter.out || fails "the counter's help is found"
[ "$(cat counter.code)" = 3 ] || fails "another exit code for a lint"
