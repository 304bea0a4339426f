#!/bin/sh
# Check the types of the browser code with TypeScript, from the pinned package.json.
set -eu

if ! command -v npm >/dev/null 2>&1; then
    echo "Node is not installed: the browser code's types were not checked. Nothing else needs Node." >&2
    case "${CI:-}" in 1 | true) echo "In CI that is a failure: install nodejs and npm." >&2; exit 1 ;; esac
    exit 0
fi
if [ ! -e node_modules/.installed ] || [ package-lock.json -nt node_modules/.installed ]; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    touch node_modules/.installed
fi
node_modules/.bin/tsc --project tsconfig.json
