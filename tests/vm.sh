#!/usr/bin/env bash
# Runs a command in virtual machines that have RDMA devices in software: the kernel's rdma_rxe, RoCE v2 over
# ordinary networks. Neither hardware, nor modules of this machine's kernel, nor /dev/kvm are needed: all is
# emulated, so this is for right and wrong, not for fast and slow.
#
#   tests/vm.sh [-n MACHINES] [-d DEVICES] [-p PROCESSORS] [-m MIB] [-t SECONDS] COMMAND [ARGUMENT ...]
#
# A machine sees the files of this one, and may write them: what it writes is gone with it. It has the devices
# rxe0, rxe1, ..., device D with the address 10.20.D.(M+1) in machine M; several machines share a network for each
# device. The command finds its machine's number in VM, their count in VMS, and the network cards below the devices
# in VM_CARDS. What it says comes out when it
# has ended, with `M| ` before each line where there are several machines. Ends as the first command that
# failed did, with 124 if the time was over, with 125 if the emulator crashed twice, with 77 if there can be no machine here, and why.
set -euo pipefail

given=("$@")
machines=1 devices=1 processors=8 memory=1536 limit=300
while getopts n:d:p:m:t: option; do
    case $option in
    n) machines=$OPTARG ;;
    d) devices=$OPTARG ;;
    p) processors=$OPTARG ;;
    m) memory=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

none() {
    echo "no virtual machine: $*" >&2
    exit 77
}

# --- what a machine boots from: Debian's kernel, and a first file system that mounts the rest ---

cache=${XDG_CACHE_HOME:-$HOME/.cache}/roundelay-ci/vm-1
wanted="virtio_pci virtio_net 9pnet_virtio 9p overlay dummy crc32_generic ib_uverbs rdma_rxe"

lists() {
    [ -n "$(find /var/lib/apt/lists -name '*Packages*' 2>/dev/null | head -n 1)" ] || apt-get update -qq >/dev/null 2>&1 ||
        none "apt-get has no lists of packages"
}

provide() {
    local missing=() tool
    for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio ip:iproute2 \
        ibv_devinfo:ibverbs-utils; do
        command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
    done
    [ -n "$(find /usr/lib -name 'librxe-rdmav*.so' 2>/dev/null)" ] || missing+=(ibverbs-providers)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || none "missing are ${missing[*]} (Debian's names)"
    [ "$(id -u)" = 0 ] || none "apt-get install ${missing[*]}"
    lists
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        none "apt-get install ${missing[*]} fails"
}

prepare() {
    local new=$cache.$$ package version module file number=100
    lists
    rm -rf "$new" && mkdir -p "$new/kernel" "$new/tree/bin" "$new/tree/modules"
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    [ -n "$package" ] || none "apt-cache knows no linux-image-amd64"
    (cd "$new" && apt-get download -q "$package" >/dev/null 2>&1 && dpkg-deb -x ./*.deb kernel) ||
        none "$package cannot be downloaded"
    version=$(basename "$new"/kernel/boot/vmlinuz-*)
    version=${version#vmlinuz-}
    [ -d "$new/kernel/lib" ] || ln -s usr/lib "$new/kernel/lib"
    depmod -b "$new/kernel" "$version"
    # In the order in which they need each other, each once.
    for module in $wanted; do
        modprobe -d "$new/kernel" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' >"$new/list"
    while read -r file; do
        case $file in
        *.xz) xz -dc "$file" ;;
        *) cat "$file" ;;
        esac >"$new/tree/modules/$((number += 1)).ko"
    done <"$new/list"
    cp "$(command -v busybox)" "$new/tree/bin/busybox"
    first_program >"$new/tree/init"
    chmod +x "$new/tree/init"
    (cd "$new/tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$new/first"
    mv "$new/kernel/boot/vmlinuz-$version" "$new/vmlinuz"
    rm -rf "$new"/kernel "$new"/tree "$new"/*.deb "$cache" && mv "$new" "$cache"
}

# Process 1 of a machine: modules, this machine's files below a layer that takes what is written, and the job.
first_program() {
    cat <<'END'
#!/bin/busybox sh
b=/bin/busybox
stop() { $b echo "$*"; $b poweroff -f; }
$b mkdir -p /proc /sys /dev /below /above /all
$b mount -t proc none /proc; $b mount -t sysfs none /sys; $b mount -t devtmpfs none /dev
for module in /modules/*; do $b insmod $module; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro files /below || stop no files
$b mount -t tmpfs -o size=80% none /above
$b mkdir /above/new /above/work
$b mount -t overlay -o lowerdir=/below,upperdir=/above/new,workdir=/above/work none /all || stop no overlay
for kind in proc sys dev; do $b mkdir -p /all/$kind; $b mount --move /$kind /all/$kind; done
$b mkdir -p /all/dev/shm /all/run
$b mount -t tmpfs none /all/dev/shm; $b mount -t tmpfs none /all/run; $b mkdir /all/run/job
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=none job /all/run/job || stop no job
$b chroot /all /bin/bash /run/job/inside
$b poweroff -f
END
}

provide
[ -f "$cache/vmlinuz" ] || prepare

# --- the job: a folder that all machines write to ---

job=$(mktemp -d)
running=()
finish() {
    for process in "${running[@]}"; do kill "$process" 2>/dev/null || true; done
    rm -rf "$job"
}
trap finish EXIT
{
    printf 'cd %q\n' "$PWD"
    export -p | grep -E '^declare -x (PATH|HOME|RUST_BACKTRACE|ROUNDELAY_[A-Z_]*|TEST_[A-Z_]*)='
    printf 'command=('
    printf '%q ' "$@"
    printf ')\nVMS=%q devices=%q\n' "$machines" "$devices"
    cat <<'END'
VM=$(sed 's/.*machine=\([0-9]*\).*/\1/' /proc/cmdline)
export VM VMS VM_CARDS= PATH=$PATH:/usr/sbin:/sbin
exec >/run/job/said.$VM 2>&1 </dev/null
ip link set lo up
for ((d = 0; d < devices; d++)); do
    card=
    for path in /sys/class/net/*; do
        [ "$(<$path/address)" != "52:54:00:20:0$d:0$VM" ] || card=${path##*/}
    done
    # A machine that is alone needs no network, but its device needs something to stand on.
    [ -n "$card" ] || ip link add "${card:=alone$d}" type dummy
    ip link set "$card" mtu 4200 up && ip addr add "10.20.$d.$((VM + 1))/24" dev "$card"
    rdma link add rxe$d type rxe netdev "$card"
    VM_CARDS+="$card "
done
ulimit -l unlimited
"${command[@]}"
echo $? >/run/job/ended.$VM
END
} >"$job/inside"

network=$((RANDOM % 20000 + 20000))
for ((machine = 0; machine < machines; machine++)); do
    cards=()
    for ((d = 0; d < devices && machines > 1; d++)); do
        cards+=(-netdev "socket,id=net$d,mcast=230.20.0.1:$((network + d)),localaddr=127.0.0.1")
        cards+=(-device "virtio-net-pci,netdev=net$d,mac=52:54:00:20:0$d:0$machine,mq=off")
    done
    timeout -k 5 "$limit" qemu-system-x86_64 -M q35 -cpu max -accel tcg,thread=multi -smp "$processors" \
        -m "$memory" -nodefaults -no-user-config -display none -no-reboot -kernel "$cache/vmlinuz" \
        -initrd "$cache/first" -append "console=ttyS0 quiet panic=-1 mitigations=off machine=$machine" \
        -serial "file:$job/console.$machine" \
        -virtfs local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$job,mount_tag=job,security_model=none" "${cards[@]}" >"$job/qemu.$machine" 2>&1 &
    running+=($!)
done
result=0 crashed=
for ((machine = 0; machine < machines; machine++)); do
    rc=0
    wait "${running[machine]}" || rc=$?
    mark=
    [ "$machines" = 1 ] || mark="$machine| "
    [ ! -f "$job/said.$machine" ] || sed "s/^/$mark/" "$job/said.$machine"
    if [ -s "$job/ended.$machine" ]; then
        rc=$(<"$job/ended.$machine")
    else
        [ $rc != 139 ] || crashed=yes
        case $rc in 124 | 137) rc=124 ;; *) rc=125 ;; esac
        { echo "machine $machine did not end by itself:" && tail -n 20 "$job"/{console,qemu}."$machine"; } >&2
    fi
    [ $result != 0 ] || result=$rc
done
# A fault of the emulator says nothing of the command.
if [ -n "$crashed" ] && [ -z "${VM_AGAIN:-}" ]; then
    echo "the emulator crashed: once more" >&2
    VM_AGAIN=yes bash "$0" "${given[@]}" || exit $?
    exit 0
fi
exit $result
