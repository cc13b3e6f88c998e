#!/usr/bin/env bash
# usage: tests/guest/build.sh BUILD_DIR OUT_DIR
# Packs OUT_DIR/vmlinuz and OUT_DIR/initramfs: Debian's kernel, Soft-RoCE, a shell, the programs of BUILD_DIR and the
# bundled model. Debian's kernel package is unpacked, never installed. Status 77 and a reason on the last line where
# something cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly build=${1:?usage: tests/guest/build.sh BUILD_DIR OUT_DIR} out=${2:?usage: tests/guest/build.sh BUILD_DIR OUT_DIR}
readonly cache="${SINEW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sinew}"
readonly packages="qemu-system-x86 ibverbs-providers busybox-static iproute2 cpio kmod"
# virtio_net for the cable between guests, dummy for ranks of one guest. Soft-RoCE asks the kernel for a checksum that
# nothing loads by itself in so small a system.
readonly modules="crc32_generic dummy virtio_pci virtio_net ib_uverbs rdma_rxe"
readonly provider=/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
PATH=$PATH:/usr/sbin:/sbin

skip() { echo "$*"; exit 77; }

needs() {
  [ "$(uname -sm)" = "Linux x86_64" ] || skip "the guest is made for Linux on x86-64 only"
  local program
  for program in qemu-system-x86_64 busybox ip rdma cpio depmod modprobe; do
    command -v "$program" >/dev/null || skip "$program is missing: apt-get install --no-install-recommends $packages"
  done
  [ -e "$provider" ] || skip "$provider is missing: apt-get install --no-install-recommends $packages"
  command -v apt-get >/dev/null || skip "no apt-get, and so no way to Debian's kernel"
}

# The folder with vmlinuz and the modules, from the cache or apt.
kernel() {
  local package version folder work
  # The cloud kernel, which some machines prefer, has no Soft-RoCE.
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { name = $2 } END { print name }')
  [ -n "$package" ] || skip "apt knows no linux-image-amd64: run apt-get update"
  version=$(apt-cache show --no-all-versions "$package" | awk '$1 == "Version:" { print $2 }')
  folder=$cache/guest-kernel-${package#linux-image-}-$version
  if [ ! -e "$folder/.complete" ]; then
    echo "fetching $package $version (70 MB, once)" >&2
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/kernel.XXXXXX")
    if ! (cd "$work" && timeout 300 apt-get download "$package" && dpkg-deb -x ./*.deb tree) >"$work/log" 2>&1; then
      tail -n 3 "$work/log" >&2
      rm -rf "$work"
      skip "apt cannot download $package"
    fi
    keep_modules "$work/tree" "$work/kept" || { rm -rf "$work"; skip "$package has not all of these modules: $modules"; }
    cp "$work"/tree/boot/vmlinuz-* "$work/kept/vmlinuz"
    touch "$work/kept/.complete"
    rm -rf "$folder"
    mv "$work/kept" "$folder"
    rm -rf "$work"
  fi
  echo "$folder"
}

# keep_modules FROM TO : the modules and what they depend on, with an index of their own.
keep_modules() {
  local from=$1 to=$2 release name file
  release=$(ls "$from/lib/modules")
  depmod -b "$from" "$release"
  for name in $modules; do
    modprobe -d "$from" -S "$release" --show-depends "$name" >>"$to.list" || return 1
  done
  awk '$1 == "insmod" { print $2 }' "$to.list" | sort -u | while read -r file; do
    install -D -m 644 "$file" "$to${file#"$from"}"
  done
  cp "$from/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} "$to/lib/modules/$release/"
  depmod -b "$to" "$release"
}

# add PROGRAM : into /bin of the guest, stripped, with the shared libraries that it names.
add() {
  local program=$1
  install -m 755 "$program" "$root/bin/"
  strip "$root/bin/$(basename "$program")"
  libraries "$program"
}
libraries() {
  local library
  ldd "$1" | grep -o '/[^ ]*\.so[^ ]*' | while read -r library; do
    [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
  done
}

needs
grep -q '^SINEW_VERBS_HEADER:INTERNAL=1$' "$build/CMakeCache.txt" 2>/dev/null ||
  skip "$build has no verbs: apt-get install libibverbs-dev; cmake --preset guest --fresh && cmake --build --preset guest"
readonly programs="sinew tests/transport_test tests/guest/link_peer"
for program in $programs; do
  [ -x "$build/$program" ] || { echo "$build/$program is not built: cmake --preset guest && cmake --build --preset guest"; exit 1; }
done
kernel_folder=$(kernel) || { status=$?; echo "$kernel_folder"; exit "$status"; }

mkdir -p "$out"
readonly root=$out/root
rm -rf "$root"
mkdir -p "$root"/{bin,sbin,etc/libibverbs.d,proc,sys,dev,tmp,models}
cp -r "$kernel_folder/lib" "$root/"
cp "$kernel_folder/vmlinuz" "$out/vmlinuz"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
for program in $(busybox --list); do ln -s busybox "$root/bin/$program" 2>/dev/null || true; done
rm "$root/bin/ip"  # busybox's knows too little
ln -s ../bin/busybox "$root/sbin/modprobe"  # where the kernel looks for it
for program in $(command -v ip rdma) $(printf "$build/%s " $programs); do add "$program"; done
# Opened by name at run time, so that no program lists them.
install -D -m 755 "$provider" "$root$provider"
library=$(ldconfig -p | awk '$1 == "libibverbs.so.1" && /x86-64/ { print $NF }')
[ -n "$library" ] || skip "libibverbs.so.1 is missing: apt-get install --no-install-recommends $packages"
install -D -m 755 "$library" "$root$library"
libraries "$library"
libraries "$provider"
echo "driver rxe" >"$root/etc/libibverbs.d/rxe.driver"
cp models/tiny/sinew-tiny-q8_0.gguf "$root/models/"
install -m 755 tests/guest/init "$root/init"
# Not compressed: the emulated processor would take longer to unpack it than to read it.
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet --owner=0:0) >"$out/initramfs"
rm -rf "$root"
echo "guest: $(du -m "$out/initramfs" | cut -f1) MB, kernel $(basename "$kernel_folder")"
