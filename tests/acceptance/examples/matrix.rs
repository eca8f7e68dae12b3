//! Boots under conditions that real machines have: another tracer, auditd, a root that cannot be written, a
//! full disk, a kernel without BTF, without BPF, without either. Each must boot, and `headstart boot status`
//! must say what it could do.
//!
//! `cargo run --release -p headstart-acceptance --example matrix -- [KERNEL [CASE…]]`
//!
//! KERNEL is 6.1, 6.12 or all (the default); a case is named as in the table that is printed. Virtual
//! machines with emulated processors, on a disk without delays: a case takes about a minute.

use anyhow::{Context, Result, bail, ensure};
use headstart_acceptance::boots::{Boots, FROM_INITRAMFS, ROOT_CHECKED};
use headstart_lab::paths;
use headstart_lab::registry::Registry;

/// A condition.
struct Case {
    name: &'static str,
    /// Whether the initramfs checks the root.
    checked: bool,
    /// Run on the host with the root at `$R`, before the first boot and before the last.
    first: &'static str,
    before_last: &'static str,
    kernel: &'static [&'static str],
    boots: usize,
    /// Whether it is shut down in order; else it is switched off.
    orderly: bool,
    /// Whether the state is on the root, where it can be looked at.
    on_root: bool,
    /// What `headstart boot status` must say in the last boot; `RECORDER` is what this kernel can do without
    /// BPF.
    says: &'static [&'static str],
    /// Run on the host after the last boot; it must succeed.
    check: &'static str,
}

const PLAIN: Case = Case {
    name: "plain",
    checked: false,
    first: "",
    before_last: "",
    kernel: &[],
    boots: 2,
    orderly: true,
    on_root: true,
    says: &["read ahead; recorded (bpf,", "learned", "next boot is read ahead"],
    check: "",
};

/// A unit that runs before headstart's.
macro_rules! early_unit {
    ($name:literal, $start:literal) => {
        concat!(
            "printf '[Unit]\\nDefaultDependencies=no\\nConflicts=shutdown.target\\nBefore=headstart-boot.service sysinit.target shutdown.target\\n[Service]\\n",
            $start,
            "\\n' >$R/etc/systemd/system/",
            $name,
            "; ln -s ../",
            $name,
            " $R/etc/systemd/system/sysinit.target.wants/",
            $name
        )
    };
}

fn cases() -> Vec<Case> {
    let tracefs: &[&str] = &[
        "read ahead; recorded (tracefs, RECORDER)",
        "learned",
        "next boot is read ahead",
    ];
    vec![
        PLAIN,
        Case {
            name: "headstart=off",
            kernel: &["headstart=off"],
            says: &["enabled yes"],
            check: "! ls $R/var/lib/headstart/keys 2>&1 | grep -q boot",
            ..PLAIN
        },
        Case {
            name: "auditd running",
            first: "mkdir -p $R/etc/audit/rules.d; echo '-a always,exit -F arch=b64 -S openat -k opens' >$R/etc/audit/rules.d/opens.rules; \
                    ln -s /usr/lib/systemd/system/auditd.service $R/etc/systemd/system/multi-user.target.wants/auditd.service",
            check: "grep -q 'key=\"opens\"' $R/var/log/audit/audit.log",
            ..PLAIN
        },
        Case {
            name: "bpftrace running",
            first: early_unit!(
                "trace.service",
                // The root is not writable yet.
                "ExecStart=/usr/bin/bpftrace -o /run/trace.out -e \"tracepoint:filemap:mm_filemap_add_to_page_cache { @added = count(); }\"\\nExecStopPost=/bin/cp /run/trace.out /var/log/trace.out"
            ),
            check: "grep -q '@added: [1-9]' $R/var/log/trace.out",
            ..PLAIN
        },
        Case {
            name: "read-only root",
            first: "echo '/dev/sda / ext4 ro,noatime 0 1' >$R/etc/fstab",
            // logind, which listens to the power button, does not start there.
            orderly: false,
            says: &[
                "not read ahead",
                "recorded (bpf,",
                "is on a read-only file system",
            ],
            ..PLAIN
        },
        Case {
            name: "full /var",
            // Also what ext4 keeps back for itself: at the next mount it does so again, and what a boot
            // removes is not free for it.
            before_last: "device=$(findmnt -no SOURCE $R); echo 0 >/sys/fs/ext4/${device##*/}/reserved_clusters; \
                          ! fallocate -l 1T $R/var/full 2>/dev/null; sync -f $R; [ $(stat -f -c %f $R) -eq 0 ]",
            boots: 3,
            says: &["read ahead; recorded (bpf,", "No space left on device"],
            ..PLAIN
        },
        Case {
            name: "separate /var",
            on_root: false,
            first: "truncate -s 400M $R/var.img; mkfs.ext4 -q -d $R/var $R/var.img; rm -rf $R/var; mkdir $R/var; \
                    echo '/var.img /var ext4 loop,noatime 0 2' >>$R/etc/fstab",
            ..PLAIN
        },
        Case {
            name: "encrypted disk, mounted late",
            // Formatted and filled in the first boot, unlocked anew, for it is before the root is writable.
            // In the others it is counted what of it is in memory before it is read.
            first: "truncate -s 48M $R/srv.img; head -c 64 /dev/urandom >$R/srv.key; \
                    echo 'srv /srv.img /srv.key plain,cipher=aes-xts-plain64,size=512,nofail' >$R/etc/crypttab; \
                    echo '/dev/mapper/srv /srv ext4 ro,noatime,nofail 0 0' >>$R/etc/fstab; \
                    printf '[Service]\\nType=oneshot\\nExecStart=/bin/sh /root/srv\\n' >$R/etc/systemd/system/srv.service; \
                    ln -s ../srv.service $R/etc/systemd/system/multi-user.target.wants/srv.service; \
                    cat >$R/root/srv <<'END'\n\
                    until [ \"$(blockdev --getsz /dev/mapper/srv)\" -gt 0 ]; do sleep 1; done\n\
                    if blkid -p /dev/mapper/srv; then\n\
                        until mountpoint -q /srv; do sleep 1; done\n\
                        for second in $(seq 15); do\n\
                            there=$(fincore -n -b -o RES /srv/[0-9]* | grep -c [1-9])\n\
                            [ $there -lt 50 ] || break\n\
                            sleep 1\n\
                        done\n\
                        echo $there >>/var/log/srv\n\
                        cat /srv/[0-9]* >/dev/null\n\
                    else\n\
                        systemctl restart systemd-cryptsetup@srv.service\n\
                        mkfs.ext4 -qF /dev/mapper/srv && mount -o rw /dev/mapper/srv /mnt || exit\n\
                        for i in $(seq 50); do head -c 200000 /dev/urandom >/mnt/$i; done\n\
                        umount /mnt\n\
                    fi\nEND\n",
            boots: 4,
            // Not before it was known, and then all of it.
            check: "set -- $(cat $R/var/log/srv); echo in memory: $* >&2; [ $1 -eq 0 ] && [ $3 -eq 50 ]",
            ..PLAIN
        },
        Case {
            name: "no BTF",
            first: early_unit!(
                "no-btf.service",
                "Type=oneshot\\nExecStart=mount --bind /dev/null /sys/kernel/btf/vmlinux"
            ),
            says: tracefs,
            ..PLAIN
        },
        Case {
            name: "no BPF",
            first: "mkdir -p $R/etc/systemd/system/headstart-boot.service.d; \
                    printf '[Service]\\nSystemCallFilter=~bpf\\n' >$R/etc/systemd/system/headstart-boot.service.d/no-bpf.conf",
            says: tracefs,
            ..PLAIN
        },
        Case {
            name: "neither BPF nor tracefs",
            kernel: &["lockdown=confidentiality"],
            says: &[
                "not recorded",
                "nothing was known",
                "it is locked down to confidentiality",
            ],
            ..PLAIN
        },
        Case {
            name: "initramfs hook",
            first: FROM_INITRAMFS,
            says: &["read ahead; recorded (bpf,", "from the initramfs on", "learned"],
            ..PLAIN
        },
        Case {
            name: "initramfs hook, root checked",
            checked: true,
            first: FROM_INITRAMFS,
            says: &[
                "read ahead; recorded (bpf,",
                "from the initramfs on, with the root made writable for it",
                "learned",
            ],
            ..PLAIN
        },
    ]
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kernels: &[(&str, &str, &str)] = match arguments.next().as_deref() {
        None | Some("all") => &[("6.1", "small12", "adds"), ("6.12", "small13", "uses")],
        Some("6.1") => &[("6.1", "small12", "adds")],
        Some("6.12") => &[("6.12", "small13", "uses")],
        Some(other) => bail!("unknown kernel {other:?}: give 6.1, 6.12 or all"),
    };
    let chosen: Vec<String> = arguments.collect();
    let cases = cases();
    if let Some(wrong) = chosen
        .iter()
        .find(|name| !cases.iter().any(|case| case.name == **name))
    {
        let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        bail!("unknown case {wrong:?}: there are {}", names.join(", "));
    }
    let registry = Registry::open(&paths::base()?)?;
    registry.undo_on_signals()?;
    let mut failed = Vec::new();
    println!("| kernel | condition | boots | says |\n|---|---|---|---|");
    for (kernel, image, recorder) in kernels {
        for case in cases
            .iter()
            .filter(|case| chosen.is_empty() || chosen.iter().any(|name| name == case.name))
        {
            match run(case, image, recorder, &registry) {
                Ok(says) => println!(
                    "| {kernel} | {} | {} of {} | {says} |",
                    case.name, case.boots, case.boots
                ),
                Err(error) => {
                    println!("| {kernel} | {} | FAILED | |", case.name);
                    eprintln!("{kernel}, {}: {error:#}", case.name);
                    failed.push(format!("{} on {kernel}", case.name));
                }
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Boots under a condition; what the last boot said of itself.
fn run(case: &Case, image: &str, recorder: &str, registry: &Registry) -> Result<String> {
    let here = env!("CARGO_MANIFEST_DIR");
    let mut boots = Boots::new(&format!("{here}/images/{image}.toml"), "none", registry)?;
    boots.setup.kernel = case.kernel.iter().map(|word| (*word).to_owned()).collect();
    if case.checked {
        boots.shell(ROOT_CHECKED)?;
    }
    if !case.first.is_empty() {
        boots.shell(case.first).context("setting it up")?;
    }
    let mut status = Vec::new();
    for boot in 1..=case.boots {
        if boot == case.boots && !case.before_last.is_empty() {
            boots
                .shell(case.before_last)
                .context("setting up the last boot")?;
        }
        let (console, _) = boots
            .boot_and(case.orderly)
            .with_context(|| format!("boot {boot}"))?;
        let lines = console.lines().filter_map(|line| line.split_once("status: "));
        status = lines.map(|(_, said)| words(said)).collect();
    }
    let text = status.join("\n");
    for wanted in case.says {
        let wanted = wanted.replace("RECORDER", recorder);
        ensure!(
            text.contains(&wanted),
            "the status does not say {wanted:?}:\n{text}"
        );
    }
    if !case.check.is_empty() {
        boots
            .shell(case.check)
            .with_context(|| format!("afterwards `{}` fails; status:\n{text}", case.check))?;
    }
    // Whatever happened, what is kept is whole.
    if case.on_root {
        boots.state()?;
    }
    let told = status.iter().filter(|line| {
        ["this boot", "an earlier boot", "ended", "note"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    let told: Vec<&str> = told.map(String::as_str).collect();
    Ok(told.join("; ").replace('|', "/"))
}

/// A line with one space between words.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
