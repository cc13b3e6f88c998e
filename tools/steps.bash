# Sourced by ./setup and ./test: named steps with a time limit, one line each on the screen, their output in
# a log file. Works with the bash 3.2 of macOS, so it uses neither `timeout` nor associative arrays.

steps_log_dir=build/logs
steps_child=""

# Ctrl-C must reach the step that runs, which has a process group of its own.
steps_interrupted() {
  [ -z "$steps_child" ] || kill -TERM -- "-$steps_child" 2>/dev/null || true
  printf '\ninterrupted\n'
  exit 130
}
trap steps_interrupted INT TERM

# run_limited SECONDS COMMAND... : the command's status, or 124 when the limit passed.
run_limited() {
  local limit=$1 end status=0
  shift
  end=$((SECONDS + limit))
  set -m
  (set -e; "$@") </dev/null &
  steps_child=$!
  set +m
  while kill -0 "$steps_child" 2>/dev/null; do
    if [ "$SECONDS" -ge "$end" ]; then
      kill -TERM -- "-$steps_child" 2>/dev/null || true
      sleep 2
      kill -KILL -- "-$steps_child" 2>/dev/null || true
      wait "$steps_child" 2>/dev/null || true
      steps_child=""
      return 124
    fi
    sleep 0.1
  done
  wait "$steps_child" || status=$?
  steps_child=""
  return "$status"
}

# run_step NAME SECONDS REMEDY COMMAND... : one line on the screen; on failure the log's end and the remedy.
run_step() {
  local name=$1 limit=$2 remedy=$3 status=0 start=$SECONDS
  shift 3
  mkdir -p "$steps_log_dir"
  steps_log="$steps_log_dir/$name.log"
  printf '  %-14s ' "$name"
  run_limited "$limit" "$@" >"$steps_log" 2>&1 || status=$?
  if [ "$status" = 0 ]; then
    printf 'ok      %4d s\n' $((SECONDS - start))
    return 0
  fi
  [ "$status" != 124 ] || printf 'the time limit of %d s passed\n' "$limit" >>"$steps_log"
  printf 'FAILED  %4d s   (status %d; all of its output: %s)\n' $((SECONDS - start)) "$status" "$steps_log"
  tail -n 25 "$steps_log" | sed 's/^/    | /'
  [ -z "$remedy" ] || printf '    remedy: %s\n' "$remedy"
  return "$status"
}

# Compiled objects are kept outside the checkout and shared between checkouts; nothing relies on them.
use_ccache() {
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
}
