# shellcheck shell=bash
# Programs of another processor, run by qemu's user mode: the kernel starts it for them while a command runs.

# has_emulator ARCH
has_emulator() {
    [ "$1" = aarch64 ] && command -v qemu-aarch64-static >/dev/null && [ -d /proc/sys/fs/binfmt_misc ]
}

# emulating ARCH COMMAND …: runs a command whose children may be programs of that processor.
emulating() (
    local arch=$1 formats=$work/formats magic mask
    shift
    # The head of an ELF file: 64 bits, little-endian, a program or a shared object, for AArch64 (183).
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    mkdir -p "$formats"
    mount -t binfmt_misc none "$formats"
    trap 'umount "$formats"' EXIT
    # Of two entries that fit, the kernel takes the later one: this one, if the machine has one of its own.
    printf '%s' ":roundelay-$arch:M::$magic:$mask:$(command -v "qemu-$arch-static"):F" >"$formats/register"
    trap 'echo -1 >"$formats/roundelay-$arch"; umount "$formats"' EXIT
    "$@"
)
