#!/bin/sh
# Sourced by dracut before it leaves the initramfs: headstart, read from the root, waits in the background until that is the root, and begins.
# systemd ends what is left of the initramfs, but for processes whose names begin with @ (https://systemd.io/ROOT_STORAGE_DAEMONS).
(
    # What is left in /run/headstart is root's alone: who can open a pipe there could take headstart's words.
    umask 077
    words=" $(cat /proc/cmdline) "
    case "$words" in *" headstart=off "* | *" elfcorehdr="*) exit ;; esac
    # The kernel that saves the memory of one that has crashed.
    [ ! -e /proc/vmcore ] || exit
    cd "${NEWROOT:?}" || exit
    [ -L ./etc/systemd/system/sysinit.target.wants/headstart-boot.service ] || exit
    # Who waits there finds this pipe, see packaging/initramfs-tools.
    case "$words" in *" init=/usr/sbin/headstart-init "*)
        mkdir -p /run/headstart && mkfifo /run/headstart/init && exec 3<>/run/headstart/init && export HEADSTART_INITRAMFS=3 ;;
    esac
    # Who asks systemd for the unit finds in one line that the boot is bypassed, and nothing was skipped (crates/boot/src/runtime_unit.rs). The
    # directory says that systemd runs, so it is made for nobody else.
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
        # Where this boot is bypassed, headstart is not executed, and the unit does not ask again. When that is known, /run may be the root's already.
        mkdir -p /run/headstart
        if [ "$(./usr/sbin/headstart-init --whole 2>/dev/null)" = whole ] && ! ./usr/sbin/headstart-init --decide; then
            for run in /run ./run; do true >$run/headstart/bypassed && say_so $run && break; done
            exit
        fi
        # While headstart comes. The key "boot" has a number before its name.
        cat ./var/lib/headstart/starts/*-boot ./var/lib/headstart/starts/*-boot.guard
        PATH=/ exec @headstart boot run --next-root .
    } </dev/null >/dev/null 2>&1 &
)
