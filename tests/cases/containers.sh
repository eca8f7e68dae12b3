# What the cases of containers share: words about the daemon's keys, and a small root. To be sourced.
# shellcheck shell=bash
directory=/var/lib/containers-case
state=/var/lib/hs
export HEADSTART_STATE=$state XDG_RUNTIME_DIR=/run HOME=/root
mkdir -p $directory /etc/containers
cd $directory || exit 1
failed=0
fails() {
    echo "not right: $*"
    failed=1
}
# json KEY WORDS: what a word of Python makes of a key's status.
json() { headstart status "$1" --json 2>/dev/null | python3 -c "import json, sys; k = json.load(sys.stdin); o = k['outcomes']; print($2)" 2>/dev/null || echo 0; }
kept() { json "$1" 'len(o)'; }
last() { json "$1" 'o[-1]["mode"] if o else "none"'; }
issued() { json "$1" 'sum(s["issued_pages"] for s in o[-1]["stages"])'; }
keys() { headstart status --json | python3 -c 'import json, sys; print("\n".join(k["key"] for k in json.load(sys.stdin)))'; }
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }
# start KEY COMMAND…: starts it cold until the daemon has kept one start more, three times at most.
start() {
    local key=$1 before
    shift
    before=$(kept "$key")
    for _ in 1 2 3; do
        cold
        "$@" >$directory/out 2>&1 || { fails "$* ended with $?: $(tail -n 3 $directory/out)"; return; }
        for _ in $(seq 40); do
            [ "$(kept "$key")" -gt "$before" ] && { echo "$key: $(last "$key"), $(issued "$key") pages"; return; }
            sleep 0.5
        done
    done
    fails "no start of $key was kept; there are: $(keys | tr '\n' ';')"
}
# Of its second start by the daemon at least so many pages are read ahead.
learned() {
    local key=$1 pages=$2
    shift 2
    start "$key" "$@"
    [ "$(last "$key")" = record ] || fails "the first start of $key: $(last "$key")"
    start "$key" "$@"
    [ "$(last "$key")" = replay ] && [ "$(issued "$key")" -ge "$pages" ] || fails "the second start of $key: $(last "$key"), $(issued "$key") pages"
}
# resident FILE: its pages that are in memory, by mmap(2) and mincore(2).
resident() {
    perl -e 'open F, "<", $ARGV[0] or die; my $n = -s F; my $at = syscall 9, 0, $n, 1, 1, fileno F, 0; my $pages = "\0" x (($n + 4095) / 4096);
        $at > 0 && syscall(27, $at, $n, $pages) == 0 or die $!; print scalar grep { $_ & 1 } unpack "C*", $pages' "$1"
}
daemon=
begin() {
    headstart daemon --least-wait 1 --control-every 0 >>$directory/daemon 2>&1 &
    daemon=$!
    sleep 6
}
end() { kill $daemon && wait $daemon || fails "the daemon ended with $?"; }

# A root of busybox, Perl and 3 MiB of data.
mkdir -p root/{bin,etc,usr/bin,usr/lib64,proc,sys,dev,tmp,run,opt,var}
cp "$(command -v busybox)" root/bin/busybox
for name in sh cat sleep true; do ln -sf busybox root/bin/$name; done
cp /usr/bin/perl root/usr/bin/
for file in $(ldd /usr/bin/perl | grep -o '/[^ ]*'); do mkdir -p "root/$(dirname "$file")"; cp -L "$file" "root/$file"; done
perl_base=$(perl -e 'print grep { m{/perl-base$} } @INC')
mkdir -p "root/$(dirname "$perl_base")"
cp -r "$perl_base" "root/$perl_base"
head -c 3M /dev/urandom >root/opt/data
echo ID=small >root/etc/os-release
cat >root/opt/work.pl <<'P'
open F, q(<), q(/opt/data); 1 while sysread F, $b, 65536;
P
# It takes 40 MiB, and says whether it may write to its root, how much memory it may have, and whether anything was killed for that.
cat >root/opt/limits.pl <<'P'
open F, q(<), q(/dev/zero); sysread F, $memory, 40 << 20;
open F, q(<), q(/opt/data); 1 while sysread F, $b, 65536;
open F, q(>), q(/opt/new) or print "$!\n";
open F, q(<), q(/sys/fs/cgroup/memory.max); print <F>;
open F, q(<), q(/sys/fs/cgroup/memory.events); print grep /oom_kill/, <F>;
exit 7;
P
tar -C root -cf small.tar .
# What no container may have read.
head -c 3M /dev/urandom >/root/secret
chmod 600 /root/secret
