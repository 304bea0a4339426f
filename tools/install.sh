#!/bin/sh
# Make .venv and install the locked requirements named as arguments. Usage: tools/install.sh FILE...
# Uses uv when it is there, else pip. PYTHON names another interpreter, INSTALL_INTO another folder than .venv.
set -eu
VENV=${INSTALL_INTO:-.venv}

say() { printf '%s\n' "$*" >&2; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if is_new_enough "$PYTHON"; then printf '%s\n' "$PYTHON"; return; fi
        say "PYTHON=$PYTHON is not a Python of version 3.11 or newer. Nothing was installed."
        say "Name another one: make install PYTHON=/path/to/python3.11"
        exit 1
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if is_new_enough "$candidate"; then printf '%s\n' "$candidate"; return; fi
    done
    say "STREAM needs Python 3.11 or newer, and none was found (python3 is: $(python3 --version 2>&1 || true))."
    say "Nothing was installed. On Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv"
    say "If it is elsewhere: make install PYTHON=/path/to/python3.11"
    exit 1
}

has_uv() { uv --version >/dev/null 2>&1; }

make_venv() {
    python=$(find_python)
    if has_uv; then
        uv venv --quiet --clear --python "$("$python" -c 'import sys; print(sys.executable)')" "$VENV"
    elif "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        "$python" -m venv --clear "$VENV"
    else
        say "$python has no venv module. Nothing was installed."
        say "On Debian or Ubuntu: apt-get install python3-venv. Or install uv, which needs no such module."
        exit 1
    fi
}

install_locked() {
    files=""
    for file in "$@"; do files="$files -r $file"; done
    # The lock files are complete: --no-deps keeps what a package merely declares out.
    # shellcheck disable=SC2086 # one word per option
    if has_uv; then
        uv pip install --quiet --python "$VENV"/bin/python --compile-bytecode --no-deps --require-hashes $files
    else
        "$VENV"/bin/python -m pip --version >/dev/null 2>&1 || "$VENV"/bin/python -m ensurepip >/dev/null
        "$VENV"/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes $files
    fi
}

if ! is_new_enough "$VENV"/bin/python; then
    say "Making $VENV ..."
    make_venv
fi
say "Installing $* with $(if has_uv; then echo uv; else echo pip; fi) ..."
install_locked "$@" || {
    say "The installation did not finish. Check the network and run the same command again: it goes on where it stopped."
    exit 1
}
