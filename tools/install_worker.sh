#!/bin/sh
# Install hpc_worker into another Python, without a network and without leaving build files here.
# Usage: tools/install_worker.sh PYTHON. That Python has setuptools and what hpc_worker needs.
set -eu

python=$1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R hpc_worker "$copy/hpc_worker"
if uv --version >/dev/null 2>&1; then
    uv pip install --quiet --python "$python" --no-deps --no-build-isolation --reinstall "$copy/hpc_worker"
else
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall "$copy/hpc_worker"
fi
