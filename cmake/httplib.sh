#!/bin/sh
# httplib.sh FOLDER: copies httplib.h from Debian's source package cpp-httplib to FOLDER.
#
# apt fetches it from the package archives of this host, and verifies it like other packages. The host is not changed:
# lists and settings are in a temporary folder. Root is not needed.
set -eu
folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lists" "$work/sources"

# Only Debian's own archives have it. apt has two file formats: .list and .sources.
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
# Copied last and renamed, so that httplib.h is complete whenever it exists.
cp cpp-httplib-*/httplib.h "$folder/httplib.h.new"
mv "$folder/httplib.h.new" "$folder/httplib.h"
