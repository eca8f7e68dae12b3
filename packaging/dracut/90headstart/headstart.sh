#!/bin/sh
# Sourced by dracut before it leaves the initramfs.
case " $(cat /proc/cmdline) " in
*" headstart=off "*) ;;
*)
    if [ -L "$NEWROOT/etc/systemd/system/sysinit.target.wants/headstart-boot.service" ]; then
        (PATH=/usr/sbin @headstart boot run --next-root "$NEWROOT" </dev/null >/dev/null 2>&1 &)
    fi
    ;;
esac
