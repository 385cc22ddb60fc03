#!/usr/bin/env bash
# Makes the packages of a binary: .deb, .rpm, a container image, debug information, an SBOM and checksums.
#
#   tools/packages.sh WEIR [FOLDER]    WEIR is a binary with debug information, such as that of `make release`; the packages are
#                                      written to FOLDER, target/packages unless it is given
#   GATEWAY=FILE                       the binary of weir-gateway, for the image of the Kubernetes controller
#
# The same binary, sources and tools give the same bytes: times are those of the last commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
weir=$(realpath "$1") gateway=${GATEWAY:+$(realpath "$GATEWAY")}
cd "$(dirname "$0")/.."
out=$(realpath -m "${2:-target/packages}")
stage=$PWD/target/packages/stage debug=$PWD/target/packages/stage-debug
version=$(sed -n '/workspace.package/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

rm -rf "$stage" "$debug"
mkdir -p "$out" "$stage"/{usr/sbin,usr/share/man/man5,usr/share/man/man8,usr/share/doc/weir/examples,completions}

# Removes the debug information from the program and writes it to a file that debuggers find by the build ID.
id=$(readelf -n "$weir" | sed -n 's/.*Build ID: //p')
if [ -z "$id" ]; then
    echo "$weir has no build ID: link it with -Wl,--build-id" >&2
    exit 1
fi
symbols=$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
mkdir -p "$(dirname "$symbols")"
objcopy --only-keep-debug --compress-debug-sections=zlib "$weir" "$symbols"
strip --strip-all --remove-section=.comment -o "$stage/usr/sbin/weir" "$weir"

cargo run -q -p xtask -- manual "$stage/completions"
for page in weir.8 weir-api.8 weir-load.8 weir.cfg.5; do
    gzip -9n <"$stage/completions/$page" >"$stage/usr/share/man/man${page##*.}/$page.gz"
    rm "$stage/completions/$page"
done
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$stage/usr/share/doc/weir/"
(cd docs && find . -name '*.md' -o -path './recipes/*' -type f) |
    while read -r page; do
        mkdir -p "$stage/usr/share/doc/weir/docs/$(dirname "$page")"
        cp "docs/$page" "$stage/usr/share/doc/weir/docs/$page"
    done
cp -r examples/. "$stage/usr/share/doc/weir/examples/"
cp packaging/Dockerfile "$stage/usr/share/doc/weir/examples/"
find "$stage" "$debug" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

cargo cyclonedx --quiet --format json --spec-version 1.5 --manifest-path weir/Cargo.toml --override-filename weir-sbom
mv weir/weir-sbom.json "$out/weir-$version.cdx.json"
find . -path ./target -prune -o -name weir-sbom.json -exec rm {} +

cargo deb --quiet --no-build --no-strip -p weir -o "$out/"
cargo deb --quiet --no-build --no-strip -p weir --variant dbgsym -o "$out/"
cargo generate-rpm -p weir --source-date "$SOURCE_DATE_EPOCH" --payload-compress xz -o "$out/"
tools/image.sh "$stage/usr/sbin/weir" "$out/weir-$version-oci.tar"
if [ -n "$gateway" ]; then
    strip --strip-all --remove-section=.comment -o "$stage/weir-gateway" "$gateway"
    tools/image.sh "$stage/usr/sbin/weir" "$out/weir-gateway-$version-oci.tar" "$stage/weir-gateway"
fi
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS)
(cd "$out" && ls -l --block-size=1 $(cut -d' ' -f3 SHA256SUMS) | awk '{printf "%12d  %s\n", $5, $9}')
