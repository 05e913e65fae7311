#!/bin/sh
# Builds the guest: build.sh [OUT]. RUSTC is the compiler, 1.63 or newer, if the one on PATH is not to be taken.
cd "$(dirname "$0")" || exit 1
exec "${RUSTC:-rustc}" --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib --crate-name loan \
  -C opt-level=3 -C lto -C panic=abort -C strip=symbols -o "${1:-guest.wasm}" src/lib.rs
