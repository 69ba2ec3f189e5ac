#!/bin/sh
# httplib.sh FOLDER: puts httplib.h there, from Debian's source package cpp-httplib.
#
# From where this host's packages come, and checked by apt as these are. Nothing of the host is changed: lists and
# settings are in a folder of their own, and nobody needs to be root.
set -eu
folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lists" "$work/sources"

# Only Debian's own archives have it. Both forms of apt's files.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && sed -n 's/^deb \(.*debian.*\)/deb-src \1/p' "$file" >>"$work/sources/debian.list"
done
for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && grep -q '^URIs:.*debian' "$file" &&
        sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/sources/$(basename "$file")"
done

cd "$work"
set -- -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/sources" \
    -o "Dir::State::Lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root
apt-get "$@" update
apt-get "$@" source cpp-httplib >/dev/null
mkdir -p "$folder"
cp cpp-httplib-*/LICENSE "$folder"
# Last, and at once: who finds it finds all of it.
cp cpp-httplib-*/httplib.h "$folder/httplib.h.new"
mv "$folder/httplib.h.new" "$folder/httplib.h"
