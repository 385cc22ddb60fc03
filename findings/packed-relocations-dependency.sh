#!/usr/bin/env bash
# A program linked with `-z pack-relative-relocs` has its relative relocations in a DT_RELR section. It also requires the version
# GLIBC_ABI_DT_RELR of libc.so.6, which glibc provides since 2.36, so that older loaders refuse the program.
#
# With gcc 12.2.0, binutils 2.40 and glibc 2.36 of Debian 12:
#   dpkg-shlibdeps 1.21.22 computes `libc6 (>= 2.34)`, with and without the option. It considers the versions of used symbols,
#   none of which is GLIBC_ABI_DT_RELR, although the symbols file of libc6 maps that to 2.36.
#   elfdeps of rpm 4.18.0 lists `libc.so.6(GLIBC_ABI_DT_RELR)`.
# The Debian package of such a program can thus be installed with glibc 2.34 or 2.35, but then the program does not start.
#
# Needs Debian 12 with gcc, dpkg-dev and rpm. Exits with 1 if any of this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >program.c <<'C'
#include <stdio.h>
static const char *words[] = {"a", "b", "c", "d"};
int main(int argc, char **argv) { return puts(words[argc % 4]) < 0; }
C
mkdir debian
printf 'Source: a\nMaintainer: a <a@example.com>\n\nPackage: a\nArchitecture: any\nDescription: a\n' >debian/control
seen() {
    echo "$1: dpkg-shlibdeps: $(dpkg-shlibdeps -O "./$1" 2>/dev/null)"
    echo "$1: elfdeps: $(echo "$folder/$1" | /usr/lib/rpm/elfdeps --requires | grep -c '(GLIBC_ABI_DT_RELR)')"
    echo "$1: readelf: $(readelf -V "$1" | grep -c 'Name: GLIBC_ABI_DT_RELR')"
}
gcc -pie -fPIE -o plain program.c
gcc -pie -fPIE -Wl,-z,pack-relative-relocs -o packed program.c
{
    for package in gcc-12 binutils libc6 dpkg-dev rpm; do
        echo "$package $(dpkg-query -W -f '${Version}\n' "$package" | sed 's/[-+].*//')"
    done
    seen plain
    seen packed
    echo "libc6 symbols: $(cat /var/lib/dpkg/info/libc6*.symbols | grep '^ GLIBC_ABI_DT_RELR@')"
} | tee seen
diff seen - <<'EXPECTED'
gcc-12 12.2.0
binutils 2.40
libc6 2.36
dpkg-dev 1.21.22
rpm 4.18.0
plain: dpkg-shlibdeps: shlibs:Depends=libc6 (>= 2.34)
plain: elfdeps: 0
plain: readelf: 0
packed: dpkg-shlibdeps: shlibs:Depends=libc6 (>= 2.34)
packed: elfdeps: 1
packed: readelf: 1
libc6 symbols:  GLIBC_ABI_DT_RELR@GLIBC_ABI_DT_RELR 2.36
EXPECTED
