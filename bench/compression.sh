#!/usr/bin/env bash
# Compression compared with haproxy: gzip at level 1, one thread pinned to core 0, load (`weir load`) and origin (nginx) on core 1, in
# turn, medians of the rounds. Prints a table in Markdown: CPU time per MiB of content, and the compressed size.
#
#     bench/compression.sh WEIR WEIR-BENCH
#
# HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
docs=$(dirname "$0")/../docs

# HTML and JSON are generated from this project's documentation, JavaScript from node's own functions.
python3 - "$docs" "$dir" <<'PY'
import html, json, pathlib, sys
docs, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
page = ["<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Documentation</title></head><body>\n"]
for file in sorted(docs.glob("*.md")):
    for line in file.read_text().splitlines():
        text = html.escape(line.strip())
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            name = "-".join(text.strip("# ").lower().split())
            page.append(f"<h{level} id=\"{name}\" class=\"title\">{text.strip('# ')}</h{level}>\n")
        elif line.startswith("|"):
            cells = "".join(f"<td>{cell.strip()}</td>" for cell in text.strip("|").split("|"))
            page.append(f"  <tr class=\"row\">{cells}</tr>\n")
        elif text:
            page.append(f"<p>{text}</p>\n")
(out / "page.html").write_text("".join(page) + "</body></html>\n")
rows = [line.split("\t") for line in (docs / "surface.tsv").read_text().splitlines()]
keys = ["kind", "place", "name", "signature"]
data = [dict(zip(keys, row), id=number, words=len(" ".join(row).split())) for number, row in enumerate(rows)]
(out / "data.json").write_text(json.dumps(data))
PY
node -e '
for (const name of [...require("module").builtinModules].sort()) {
    let own = {};
    try { own = require(name); } catch { continue; }
    for (const key of Object.keys(own)) {
        const value = Object.getOwnPropertyDescriptor(own, key)?.value;
        if (typeof value === "function") console.log(`exports.${key} = ${value};`);
    }
}' >"$dir/script.js" 2>/dev/null

serve_files "$dir" "sendfile on; types { text/html html; application/json json; text/javascript js; }"

config() {
    one_thread
    printf '    default_backend be\nbackend be\n    compression algo %s\n    compression type text/html application/json text/javascript\n    server s1 127.0.0.1:%s\n' "$1" "$FILES"
}

declare -A pid ports
spent() { ticks "${pid[$1]}" | awk -v hz="$hz" '{print ($1 + $2) * 1e3 / hz}'; }
requests() { # port, path, seconds: the number of good responses
    answered -u 8 -d "$3" -H "accept-encoding: $coding" "http://127.0.0.1:$1/$2"
}
left() { # port, path: bytes of the compressed body
    curl -s -H "accept-encoding: $coding" -o /dev/null -w '%{size_download}' "http://127.0.0.1:$1/$2"
}

row() { # title, file, proxies
    local size name before count ratio=–
    declare -A median_of left_of
    size=$(stat -c %s "$dir/$2")
    for name in $3; do
        start "$name" "$(config "$coding")"
        pid[$name]=$PID ports[$name]=$PORT
        requests "$PORT" "$2" 1 >/dev/null
        left_of[$name]=$(left "$PORT" "$2")
        : >"$dir/$name.result"
    done
    for _ in $(seq "$rounds"); do
        for name in $3; do
            before=$(spent "$name")
            count=$(requests "${ports[$name]}" "$2" "$seconds")
            echo "$before $(spent "$name") ${count:-0} $size" |
                awk '$3 > 0 {printf "%.3f\n", ($2 - $1) / ($3 * $4 / 1048576)}' >>"$dir/$name.result"
        done
    done
    for name in $3; do
        PID=${pid[$name]}
        stop
        median_of[$name]=$(median <"$dir/$name.result")
    done
    if [ -n "${median_of[haproxy]:-}" ]; then
        ratio=$(quotient "$dir/weir.result" "$dir/haproxy.result")
    fi
    printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$size" "${median_of[weir]}" "${median_of[haproxy]:-–}" "$ratio" \
        "${left_of[weir]}" "${left_of[haproxy]:-–}"
}

echo "| content | bytes | weir, ms/MiB | haproxy, ms/MiB | weir ÷ haproxy | weir, bytes left | haproxy, bytes left |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
coding=gzip
row "HTML, gzip" page.html "weir haproxy"
row "JSON, gzip" data.json "weir haproxy"
row "JavaScript, gzip" script.js "weir haproxy"
for coding in zstd br; do
    row "HTML, $coding" page.html weir
    row "JavaScript, $coding" script.js weir
done
