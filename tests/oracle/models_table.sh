#!/usr/bin/env bash
# Runs the comparison of every family, type and layout with llama.cpp and writes what it measured
# into docs/models.md, below the line that begins "## Measured":
#   tests/oracle/models_table.sh build/dev
# With --from FILE the measurements of an earlier run (SINEW_MODELS_TABLE) are taken instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --from ]; then
  table=$2
else
  build=${1:?usage: tests/oracle/models_table.sh BUILD_DIR | --from FILE}
  table=$(mktemp)
  trap 'rm -f "$table"' EXIT
  # Two processes, each with its share of the tests; 5000 tokens for every type, which ctest leaves out.
  export SINEW_MODELS_TABLE=$table SINEW_MODELS_ALL=1 GTEST_TOTAL_SHARDS=2
  GTEST_SHARD_INDEX=0 "$build/tests/oracle/families_oracle_test" >&2 & first=$!
  GTEST_SHARD_INDEX=1 "$build/tests/oracle/families_oracle_test" >&2 & second=$!
  status=0
  wait $first || status=$?
  wait $second || status=$?
  [ "$status" = 0 ] || { echo "a comparison failed: the page stays as it is" >&2; exit 1; }
fi

page=$(mktemp)
sed '/^## Measured/q' docs/models.md >"$page"
sort -t "$(printf '\t')" -k1,1 -k2,2 -k4,4n -k3,3 "$table" | awk -F '\t' '
  function flush_row(   i) {
    if (row == "") return
    printf "%s", row
    for (i = 1; i <= columns; i++) printf " %s |", (name[i] in cell) ? cell[name[i]] : ""
    printf " %.2g | %s |\n", worst, noise
    split("", cell); row = ""; worst = 0
  }
  BEGIN {
    columns = split("1;2;3;4;5;shares 3,1;stages 1,2;3, whole experts", name, ";")
  }
  {
    if ($1 != kind) {
      flush_row()
      kind = $1
      printf "\n### %s\n\n| type | tokens |", kind
      for (i = 1; i <= columns; i++) printf " %s |", name[i]
      printf " largest logit error | oracle against itself |\n|---|---|"
      for (i = 1; i <= columns + 2; i++) printf "---|"
      printf "\n"
    }
    if ($2 "\t" $4 != key || row == "") { flush_row(); key = $2 "\t" $4; row = "| " $2 " | " $4 " |" }
    cell[$3] = sprintf("%.1e%s", $5, $9 == "equal" ? "" : $9 == "tie" ? " ~" : " ~e")
    if ($6 > worst) worst = $6
    noise = sprintf("%.1e", $8)
  }
  END { flush_row() }' >>"$page"
cat "$page" >docs/models.md
rm -f "$page"
