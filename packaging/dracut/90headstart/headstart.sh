#!/bin/sh
# Sourced by dracut before it leaves the initramfs: headstart, read from the root, waits in the background until that is the root, and begins. The
# reasons are in packaging/initramfs-tools. systemd ends what is left of the initramfs, but for processes whose names begin with @
# (https://systemd.io/ROOT_STORAGE_DAEMONS).
(
    umask 077
    words=" $(cat /proc/cmdline) "
    case "$words" in *" headstart=off "* | *" elfcorehdr="*) exit ;; esac
    [ ! -e /proc/vmcore ] || exit
    cd "${NEWROOT:?}" || exit
    [ -L ./etc/systemd/system/sysinit.target.wants/headstart-boot.service ] || exit
    [ ! -e /run/headstart/hydrate ] || sh "${hookdir-}/pre-mount/10-hydrate.sh" plan
    case "$words" in *" init=/usr/sbin/headstart-init "*)
        mkdir -p /run/headstart && mkfifo /run/headstart/init && exec 3<>/run/headstart/init && export HEADSTART_INITRAMFS=3 ;;
    esac
    say_so() {
        units=$1/systemd/system
        [ -d "$units" ] || return 0
        umask 022
        mkdir -p "$units/headstart-boot.service.d" &&
            printf '[Unit]\nDescription=headstart bypasses this boot (headstart boot status)\nConditionPathExists=\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecCondition=\nExecStart=\nExecStop=/bin/true\n' >"$units/headstart-boot.service.d/this-boot.conf" &&
            ln -sf /dev/null "$units/headstart-barrier.service"
    }
    ln -s "$NEWROOT/usr/bin/headstart" /@headstart
    {
        mkdir -p /run/headstart
        if [ "$(./usr/sbin/headstart-init --whole 2>/dev/null)" = whole ] && ! ./usr/sbin/headstart-init --decide; then
            for run in /run ./run; do true >$run/headstart/bypassed && say_so $run && break; done
            exit
        fi
        cat ./var/lib/headstart/starts/*-boot ./var/lib/headstart/starts/*-boot.guard
        PATH=/ exec @headstart boot run --next-root .
    } </dev/null >/dev/null 2>&1 &
)
