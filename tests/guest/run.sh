#!/usr/bin/env bash
# usage: tests/guest/run.sh [--keep] [BUILD_DIR]
# Ranks over Soft-RoCE, the kernel's RDMA in software, in emulated machines: bring-up and collectives, the bundled
# model's answer, a rank that is killed or stopped, and two machines whose cable is cut. Prints one line a check and
# then their count. Status 77 and a line SKIP where it cannot run here.
#   --keep      leaves consoles and images in BUILD_DIR/guest-work
#   BUILD_DIR   build/guest: cmake --preset guest && cmake --build --preset guest
set -euo pipefail
cd "$(dirname "$0")/../.."

keep=no build=build/guest
for argument in "$@"; do
  case "$argument" in
    --keep) keep=yes ;;
    -*) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
    *) build=$argument ;;
  esac
done
readonly work=$(realpath -m "$build")/guest-work  # QEMU takes no relative socket
readonly verbs=rc,uc
readonly rounds=rc-cut,uc-cut,rc-freeze,uc-freeze
readonly one_seconds_max=230 two_seconds_max=65  # of each boot; together below five minutes

declare -A guests=()  # name to process
finish() {
  halt
  [ "$keep" = yes ] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# boot NAME MEMORY_MIB KERNEL_ARGUMENTS QEMU_ARGUMENT... : emulated (TCG), because KVM is not to be had in most containers
# and virtual machines. The clock counts instructions (8 ns each): on a busy host a guest is slow, but its deadlines hold
# and its clocks agree. One processor, because QEMU's counting clock did not boot two. The monitor is a pair of pipes.
boot() {
  local name=$1 memory=$2 append=$3
  shift 3
  mkfifo "$work/$name.monitor.in" "$work/$name.monitor.out"
  : >"$work/$name.console"
  qemu-system-x86_64 -machine q35 -accel tcg -icount shift=3 -cpu max -smp 1 -m "$memory" \
    -nodefaults -no-user-config -no-reboot -display none \
    -serial "file:$work/$name.console" -chardev "pipe,id=monitor,path=$work/$name.monitor" -mon chardev=monitor \
    -kernel "$work/vmlinuz" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr $patience $append" "$@" </dev/null &
  guests[$name]=$!
}
# On a busy host the emulated clock ticks late: the kernel must not take that for broken hardware or a stuck task.
readonly patience="no_timer_check tsc=reliable nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
said() { tr -d '\r' <"$work/$1.console" | grep -q "^$2"; }

# until_said SECONDS LINE NAME... : all these guests have said the line; fails when one has ended or the time is over.
until_said() {
  local end=$((SECONDS + $1)) line=$2 name
  shift 2
  for name in "$@"; do
    until said "$name" "$line"; do
      if [ "$SECONDS" -ge "$end" ] || ! kill -0 "${guests[$name]}" 2>/dev/null; then
        said "$name" "$line" || return 1
      fi
      sleep 0.2
    done
  done
}

# A stopped guest has to be killed as well; nothing of it must be kept.
halt() {
  local process
  for process in "${guests[@]}"; do
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  guests=()
}

passed=0 failed=0
# report NAME... : the checks of consoles that are complete.
report() {
  local name good bad
  for name in "$@"; do
    tr -d '\r' <"$work/$name.console" | awk '
      /^CHECK ok /     { sub(/^CHECK ok /, "  ok      "); print; shown = 0; next }
      /^CHECK FAILED / { sub(/^CHECK FAILED /, "  FAILED  "); print; shown = 1; next }
      /^  / && shown   { print "      " $0; next }
                       { shown = 0 }'
    good=$(grep -c '^CHECK ok ' "$work/$name.console" || true)
    bad=$(grep -c '^CHECK FAILED ' "$work/$name.console" || true)
    if ! said "$name" GUEST-END; then
      printf '  FAILED  guest %s did not come to its end; its console:\n' "$name"
      tail -n 20 "$work/$name.console" | sed 's/^/      | /'
      bad=$((bad + 1))
    fi
    passed=$((passed + good)) failed=$((failed + bad))
  done
}

one_guest() {
  boot one 1024 "jobs=links,model,faults verbs=$verbs"
  until_said "$one_seconds_max" GUEST-END one || true
  report one
  halt
}

# Monitor command to both guests.
both() { local name; for name in a b; do echo "$1" >"$work/$name.monitor.in"; done; }

two_guests() {
  local round card="virtio-net-pci,netdev=wire,id=card" end=$((SECONDS + two_seconds_max))
  local wire="stream,id=wire,addr.type=unix,addr.path=$work/cable"
  boot a 512 "jobs=cable role=a verbs=$verbs rounds=$rounds" -netdev "$wire,server=on" -device "$card,mac=52:54:00:00:00:01"
  for _ in $(seq 50); do [ ! -S "$work/cable" ] || break; sleep 0.1; done
  boot b 512 "jobs=cable role=b verbs=$verbs rounds=$rounds" -netdev "$wire,server=off" -device "$card,mac=52:54:00:00:00:02"
  for round in ${rounds//,/ }; do
    until_said $((end - SECONDS)) "RUNNING $round" a b || break
    case $round in
      *-cut) both "set_link card off" ;;
      *-freeze) kill -STOP "${guests[a]}" ;;
    esac
    # A frozen machine is let go once the other one has given it up.
    until_said $((end - SECONDS)) "ENDED $round" b || true
    case $round in
      *-cut) both "set_link card on" ;;
      *-freeze) kill -CONT "${guests[a]}" ;;
    esac
    until_said $((end - SECONDS)) "ENDED $round" a || true
  done
  until_said $((end - SECONDS)) GUEST-END a b || true
  report a b
}

rm -rf "$work"
mkdir -p "$work"
status=0
tests/guest/build.sh "$build" "$work" >"$work/build.log" || status=$?
if [ "$status" = 77 ]; then printf 'SKIP: %s\n' "$(tail -n 1 "$work/build.log")"; exit 77; fi
[ "$status" = 0 ] || { cat "$work/build.log" >&2; exit 1; }
tail -n 1 "$work/build.log"
start=$SECONDS
one_guest
two_guests
printf '%d s; %d passed, %d failed\n' $((SECONDS - start)) "$passed" "$failed"
[ "$failed" = 0 ]
