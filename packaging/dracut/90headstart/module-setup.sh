#!/bin/bash
# headstart from the initramfs on: see packaging/initramfs-tools, which does the same.

check() {
    [ -x "${dracutsysrootdir-}/usr/bin/headstart" ]
}

depends() {
    return 0
}

install() {
    local list
    # shellcheck disable=SC2154 # dracut's
    inst_multiple mkdir mkfifo ln cat readlink
    inst_hook pre-pivot 10 "$moddir/headstart.sh"
    for list in "${dracutsysrootdir-}"/usr/lib/headstart/ranges/*.ranges; do
        [ -f "$list" ] || return 0
        inst_simple "${list#"${dracutsysrootdir-}"}"
        # The same each time.
        inst_simple /usr/libexec/headstart/headstart-hydrate /usr/bin/headstart-hydrate
        inst_hook pre-mount 10 "$moddir/hydrate.sh"
    done
}
