#!/usr/bin/env bash
# Two agents find each other through the real avahi-daemon, with no address given. In a network and a
# /run of their own, so the machine's daemon is left alone. Skips (77) where that cannot be made.
set -euo pipefail
program=$1
if [ "${2:-}" != inside ]; then
  for tool in avahi-daemon dbus-daemon unshare ip; do
    command -v "$tool" >/dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
  done
  unshare -nm true 2>/dev/null || { echo "SKIP: no right to make namespaces"; exit 77; }
  exec timeout 60 unshare -nm --kill-child bash "$0" "$program" inside
fi

folder=$(mktemp -d)
pids=""
trap 'kill $pids 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
mount -t tmpfs none /run && mkdir -p /run/avahi-daemon
ip link set lo up
ip link add d0 type veth peer name d1 || { echo "SKIP: no veth"; exit 77; }
ip addr add 10.9.9.1/24 dev d0 && ip link set d0 up && ip link set d1 up
cat >"$folder/bus.conf" <<XML
<busconfig><type>system</type><listen>unix:path=$folder/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>
XML
export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$folder/bus
dbus-daemon --config-file="$folder/bus.conf" --nofork --nopidfile 2>"$folder/bus.log" &
pids="$!"
for _ in $(seq 50); do [ -S "$folder/bus" ] && break; sleep 0.1; done
avahi-daemon --no-drop-root --no-chroot --no-rlimits -f /dev/null 2>"$folder/avahi.log" &
pids="$pids $!"

"$program" cluster create --state "$folder/1" >"$folder/token" 2>/dev/null
chmod 600 "$folder/token"
sleep 1
SINEW_MACHINE=one "$program" node --state "$folder/1" 2>"$folder/log1" &
pids="$pids $!"
SINEW_MACHINE=two "$program" node --state "$folder/2" --port 7464 --secret-file "$folder/token" 2>"$folder/log2" &
pids="$pids $!"
for _ in $(seq 100); do
  if [ "$("$program" nodes --state "$folder/2" 2>/dev/null | grep -c alive)" = 2 ]; then
    echo "found each other"
    exit 0
  fi
  sleep 0.2
done
echo "they did not find each other"
tail -n 20 "$folder"/*.log "$folder"/log?
exit 1
