#!/bin/sh
# usage: bench/churn.sh [PROGRAM_FOLDER [GENERATIONS [SEED [LINK]]]]
# Streamed generations of the bundled model over four ranks while a random one is killed again and again: hung clients, lost
# streams, texts that differ from the undisturbed ones, seconds until all ranks serve again. Default: build/dev, 1000.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/dev}
[ $# = 0 ] || shift
exec "$build/tests/cluster/churn" "$build/sinew" models/tiny/sinew-tiny-q8_0.gguf "$@"
