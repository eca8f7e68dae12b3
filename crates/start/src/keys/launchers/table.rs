//! The launchers that are known, and what stands before the command of each. Names and options are words with
//! spaces between them.

/// How a launcher's arguments are read.
pub struct Launcher {
    /// What its executable is called.
    pub(super) names: &'static str,
    pub(super) valued: Valued,
    /// Plain arguments before the command.
    pub(super) before: usize,
    /// The subcommands that start something, where there are subcommands; with any other the program itself
    /// is meant.
    pub(super) subcommands: &'static str,
    pub(super) reading: Reading,
}

/// Options with a value, which is the rest of their word or the next argument. One whose value must be in its
/// word is as one without.
pub(super) enum Valued {
    These(&'static str),
    AllBut(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reading {
    /// Options, plain arguments, then the command.
    Plain,
    /// Assignments before the command, too, as of env(1), which has other options besides.
    Env,
    /// A number before the command, which may be left out: chrt(1).
    Number,
    /// The lock's file before the command, and the command perhaps as a text for a shell: flock(1).
    Lock,
    /// An architecture first of all, unless it is called by that: setarch(8).
    Architecture,
    /// An image, and a command in that.
    Container,
    /// A container that one of these options names, the first of them that is given; or else the first plain
    /// argument, where that is a name. Then a command in it.
    Machine(Named),
    /// A container that a bundle describes: runc(8).
    Bundle,
    /// The same, before the root is mounted: containerd executes a shim first for each container, Docker's
    /// ones included.
    Shim,
    /// Options, then a program that is loaded in the place of this one, which is the dynamic linker:
    /// ld.so(8).
    Loader,
    /// Too much may stand before the command, or it changes what is seen of files.
    Opaque,
}

/// How the command line of [`Reading::Machine`] names a container.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Named {
    /// Options whose value is a path.
    pub(super) paths: &'static str,
    /// Options whose value is a name.
    pub(super) names: &'static str,
    /// Whether a plain argument may be the name.
    pub(super) by_argument: bool,
}

/// ld.so(8) called by name, of glibc and musl.
pub(super) const LOADER: Launcher = Launcher {
    names: "",
    valued: Valued::These(
        "--library-path --glibc-hwcaps-prepend --glibc-hwcaps-mask --inhibit-rpath --audit \
         --preload --argv0",
    ),
    before: 0,
    subcommands: "",
    reading: Reading::Loader,
};

const fn plain(names: &'static str, valued: &'static str) -> Launcher {
    Launcher {
        names,
        valued: Valued::These(valued),
        before: 0,
        subcommands: "",
        reading: Reading::Plain,
    }
}

const fn behind(names: &'static str, valued: &'static str, before: usize) -> Launcher {
    Launcher {
        before,
        ..plain(names, valued)
    }
}

const fn read_as(reading: Reading, names: &'static str, valued: &'static str) -> Launcher {
    Launcher {
        reading,
        ..plain(names, valued)
    }
}

const fn by_subcommand(names: &'static str, subcommands: &'static str, valued: &'static str) -> Launcher {
    Launcher {
        subcommands,
        ..plain(names, valued)
    }
}

/// Of containers' clients: most options have a value, and these have none.
const fn container(names: &'static str, subcommands: &'static str, without_value: &'static str) -> Launcher {
    Launcher {
        names,
        valued: Valued::AllBut(without_value),
        before: 0,
        subcommands,
        reading: Reading::Container,
    }
}

/// Of what starts the system or a command in a directory or an image.
const fn machine(names: &'static str, named: Named, without_value: &'static str) -> Launcher {
    Launcher {
        reading: Reading::Machine(named),
        ..container(names, "", without_value)
    }
}

/// Options are those of the manual pages of coreutils 9.7, util-linux 2.41, procps 4.0, systemd 257,
/// numactl 2.0.19, fakeroot 1.37, strace 6.13, ltrace 0.8, perf 6.12, ccache 4.11, Apptainer 1.4, Podman 5.4,
/// Docker 26, LXC 6.0, crun 1.21 and runc 1.1.
pub(super) const ALL: &[Launcher] = &[
    read_as(Reading::Env, "env", "-u -C"),
    plain("nice", "-n --adjustment"),
    plain("ionice", "-c -n -p -P -u --class --classdata --pid --pgid --uid"),
    plain("nohup setsid chronic catchsegv", ""),
    plain("stdbuf", "-i -o -e --input --output --error"),
    behind("timeout", "-k -s --kill-after --signal", 1),
    read_as(
        Reading::Number,
        "chrt",
        "-T -P -D --sched-runtime --sched-period --sched-deadline",
    ),
    behind("taskset", "", 1),
    plain("uclampset", "-m -M -p --util-min --util-max --pid"),
    plain("choom", "-n -p --adjust --pid"),
    plain("prlimit", "-o -p --output --pid"),
    read_as(
        Reading::Lock,
        "flock",
        "-w -E --timeout --wait --conflict-exit-code --start --length",
    ),
    read_as(
        Reading::Architecture,
        "setarch linux32 linux64 i386 i486 i586 i686 x86_64 uname26",
        "-p --pid",
    ),
    plain(
        "numactl",
        "-i -w -N -m -p -P -C -S -f -o -L -M -I --interleave --weighted-interleave \
         --cpunodebind --membind --preferred --preferred-many --physcpubind --cpubind --shm \
         --file --offset --length --shmmode --shmid",
    ),
    plain("time", "-f -o --format --output"),
    plain(
        "systemd-cat",
        "-t -p --identifier --priority --stderr-priority --level-prefix --namespace",
    ),
    plain("systemd-inhibit", "--what --who --why --mode"),
    plain(
        "fakeroot fakeroot-sysv fakeroot-tcp fakeroot-ng",
        "-l -s -i -b --lib --faked",
    ),
    plain("eatmydata gamemoderun mangohud prime-run primusrun", ""),
    plain("optirun", "-b -c -d -l -s -t"),
    plain("torsocks torify", "-a -u -p -P --address --user --pass --port"),
    plain("proxychains proxychains4", "-f"),
    behind("faketime", "-p", 1),
    plain("cgexec", "-g"),
    plain("rlwrap", "-b -C -f -g -H -I -l -O -P -q -s -S -t -w -z"),
    plain("tini tini-static", "-p -e"),
    plain("dumb-init", "-r --rewrite"),
    plain(
        "strace",
        "-a -b -e -E -I -o -O -p -P -s -S -u -U -X --attach --argv0 --columns \
         --const-print-style --detach-on --env --inject --fault --interruptible --kvm \
         --output --raw --read --reads --signal --signals --status --string-limit \
         --strings-in-hex --summary-columns --summary-sort-by --summary-syscall-overhead \
         --trace --trace-path --user --write --writes --abbrev --verbose --syscall-limit",
    ),
    plain(
        "ltrace",
        "-a -A -D -e -F -l -n -o -p -s -u -w -x --align --config --debug --indent --library \
         --output --where",
    ),
    by_subcommand(
        "perf",
        "record stat trace top",
        "-e -o -p -t -r -c -m -F -C -D -u -G -j -k -I -x -M -i -w -W --event --filter \
         --output --pid --tid --realtime --count --mmap-pages --freq --cpu --delay --uid \
         --cgroup --branch-filter --clockid --call-graph --interval-print --interval-count \
         --field-separator --metrics --repeat --timeout --post --pre --log-fd --expr --input \
         --duration --max-stack --min-stack --max-size --proc-map-timeout --control \
         --debuginfod --aux-sample --affinity --exec-path --for-each-cgroup --td-level",
    ),
    // The compiler comes behind assignments of its configuration.
    read_as(Reading::Env, "ccache sccache", "-d -F -k -M -o -p -X"),
    plain("distcc icecc", ""),
    plain("dbus-run-session", "--config-file --dbus-daemon"),
    plain(
        "xvfb-run",
        "-e -f -n -p -s -w --error-file --auth-file --server-num --server-args",
    ),
    container(
        "podman docker nerdctl",
        "run create start",
        "-d -i -t -P -q -D --debug --detach --interactive --tty --rm --rmi --init \
         --privileged --read-only --read-only-tmpfs --quiet --publish-all --no-hosts \
         --no-hostname --no-healthcheck --oom-kill-disable --replace --sig-proxy --tls \
         --tlsverify --tls-verify --disable-content-trust --env-host --http-proxy --passwd \
         --rootfs --syslog --remote --transient-store --help --version",
    ),
    container(
        "apptainer singularity",
        "run exec shell test",
        "-e -c -C -f -i -n -p -u -w -s -q -v -d -h --cleanenv --contain --containall \
         --fakeroot --ipc --net --pid --userns --uts --writable --writable-tmpfs --no-home \
         --no-init --no-eval --no-umask --no-https --nohttps --no-privs --keep-privs \
         --allow-setuid --nv --nvccli --rocm --compat --no-compat --underlay --unsquash \
         --disable-cache --vm --docker-login --sif-fuse --no-tmp-sandbox --no-pid --sharens \
         --authfile-none --silent --quiet --verbose --debug --nocolor --help --version",
    ),
    machine(
        "systemd-nspawn",
        Named {
            paths: "-D --directory -i --image --oci-bundle",
            names: "-M --machine",
            by_argument: false,
        },
        "-q -x -a -b -U -n -j -P -h --quiet --no-pager --ephemeral --read-only --volatile \
         --as-pid2 --boot --private-users --private-network --network-veth \
         --no-new-privileges --pipe --keep-unit --help --version",
    ),
    machine(
        "lxc-start",
        Named {
            paths: "",
            names: "-n --name",
            by_argument: true,
        },
        "-d -F -C -q --daemon --foreground --close-all-fds --quiet --help --usage --version",
    ),
    Launcher {
        reading: Reading::Bundle,
        ..container(
            "crun runc",
            "run create",
            "-d -v -V -h --debug --detach --keep --no-new-keyring --no-pivot --no-subreaper \
         --systemd-cgroup --help --usage --version",
        )
    },
    read_as(Reading::Shim, "containerd-shim-runc-v2", ""),
    // Too much may stand before the command, or it changes what is seen of files. systemd-executor is the
    // first execution in each service's process (systemd 255 and later).
    read_as(
        Reading::Opaque,
        "arch-chroot bwrap chroot dbus-launch doas fakechroot firejail flatpak-bwrap gosu \
         nsenter parallel pkexec proot runuser schroot sem setpriv snap-confine snap-exec \
         start-stop-daemon su-exec sudo systemd-executor systemd-run unshare xargs",
        "",
    ),
];
