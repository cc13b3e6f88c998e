# Sourced by tests/netns/run.sh and bench/delays.sh: network namespaces on cables of sinew-wire.

# lay_cables WIRE FOLDER TAG COUNT FLAG... : namespaces TAG-0, TAG-1, .. with the addresses 10.88.0.1, .2, .. Leaves the wire's process in
# $wire_process and its commands on descriptor 9; fails, with the reason in $wire_reason, where cables cannot be had.
lay_cables() {
  local binary=$1 home=$2 name=$3 count=$4 i places=()
  shift 4
  for ((i = 0; i < count; ++i)); do
    ip netns add "$name-$i"
    ip -n "$name-$i" link set lo up
    places+=("$name-$i=10.88.0.$((i + 1))")
  done
  mkfifo "$home/commands"
  "$binary" "$@" "${places[@]}" <"$home/commands" >"$home/wire" 2>&1 &
  wire_process=$!
  wire_log=$home/wire
  exec 9>"$home/commands"
  for _ in $(seq 50); do grep -q ready "$wire_log" && return 0; sleep 0.1; done
  wire_reason=$(cat "$wire_log")
  return 1
}

# tell_wire COMMAND : fails if the wire refuses it.
tell_wire() { echo "$1" >&9; sleep 0.2; ! grep -q error "$wire_log"; }

# remove_cables TAG COUNT : what is left of them, also after a failure.
remove_cables() {
  local i
  exec 9>&- || true
  for ((i = 0; i < $2; ++i)); do ip netns del "$1-$i" 2>/dev/null || true; done
}
