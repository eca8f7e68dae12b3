#!/bin/bash
# headstart from the initramfs on: see packaging/initramfs-tools, which does the same.

check() {
    [ -x "${dracutsysrootdir-}/usr/bin/headstart" ]
}

depends() {
    return 0
}

install() {
    # shellcheck disable=SC2154 # dracut's
    inst_multiple mkdir mkfifo ln cat
    inst_hook pre-pivot 10 "$moddir/headstart.sh"
}
