#!/usr/bin/perl
# An unprivileged user who does everything that could hurt a recorder: hostile.pl DIRECTORY SECONDS FILES [GUARDED…]
#
# DIRECTORY is the user's own, GUARDED are headstart's files and directories, which the user attacks. Each kind of work is a process that goes
# on until SECONDS have passed. Lines on the standard output, one for each kind:
#   did KIND COUNT       how often
#   refused KIND WHY     this machine does not let the user do that
#   broke KIND WHAT      an attack that should have been refused was not
# and `done` at the end, after which the process group kills itself. Nothing but Debian's perl-base is needed, so a container can run it.
use strict;
use warnings;
no warnings qw(newline exec void);
use Fcntl qw(:DEFAULT :flock SEEK_SET);
use POSIX ();
use Socket;

my ($home, $seconds, $files, @guarded) = @ARGV;
die "usage: hostile.pl DIRECTORY SECONDS FILES [GUARDED...]\n" unless defined $files;
die "hostile.pl: not as root\n" if $> == 0;
chdir $home or die "$home: $!\n";
my $count = 0;
my @system = grep { -f $_ && -r _ } glob('/usr/lib/*/*.so* /usr/bin/*');

# One write for a line: the processes share the standard output.
sub tell_all { my $line = join(' ', @_); $line =~ s/\n/ /g; syswrite STDOUT, "$line\n"; }

sub bytes_of {
    my ($path, $bytes) = @_;
    sysopen(my $file, $path, O_WRONLY | O_CREAT | O_TRUNC, 0755) or die "$path: $!\n";
    syswrite $file, $bytes;
    return $path;
}

sub run { my $pid = fork; return unless defined $pid; if (!$pid) { exec { $_[0] } @_[1 .. $#_]; POSIX::_exit(127) } waitpid $pid, 0; return $? }

# Look-ups of distinct missing paths of 4,000 bytes, as fast as one processor can.
sub missing {
    my $which = shift;
    my $tail = ('/' . 'x' x 199) x 19;
    while (1) { stat sprintf('/%d%0190d%s', $which, $count, $tail); $count++ }
}

# Distinct files, each written and read once, then read in random order.
sub files {
    mkdir 'files';
    for my $n (0 .. $files - 1) {
        my $directory = 'files/' . int($n / 1000);
        mkdir $directory if $n % 1000 == 0;
        bytes_of("$directory/$n", 'x');
        one("$directory/$n");
    }
    while (1) { my $n = int rand $files; one('files/' . int($n / 1000) . "/$n") }
}

sub one { open my $file, '<', $_[0] or return; sysread $file, my $byte, 4096; $count++ }

# 2,000 processes that end at once, with long arguments and long names.
sub forks {
    my $directory = join '/', map { $_ x 200 } 'a' .. 'e';
    my $made = '';
    for my $part (split m{/}, $directory) { $made .= "$part/"; mkdir $made }
    my $program = $made . 'p' x 250;
    symlink '/bin/true', $program or die "$program: $!\n";
    for (1 .. 500) {
        # Four at a time.
        my @children = map { my $pid = fork; if (defined $pid && !$pid) { exec { $program } "\xff\n" x 100, map { 'y' x 1000 } 1 .. 100; POSIX::_exit(127) } $pid } 1 .. 4;
        for my $pid (grep { defined } @children) { waitpid $pid, 0; $count++ }
    }
    sleep 1 while 1;
}

# Pages of many files, read one by one in random order.
sub pages {
    while (1) {
        open my $file, '<', $system[rand @system] or next;
        my $pages = int(((-s $file) + 4095) / 4096) or next;
        for (1 .. 200) { sysseek $file, 4096 * int(rand $pages), SEEK_SET; sysread $file, my $page, 4096; $count++ }
    }
}

# The same through mappings.
sub mapped {
    my %numbers = (x86_64 => [9, 11], aarch64 => [222, 215]);
    my $numbers = $numbers{(POSIX::uname())[4]} or die "no number of mmap is known here\n";
    while (1) {
        open my $file, '<', $system[rand @system] or next;
        my $size = -s $file or next;
        my $at = syscall $numbers->[0], 0, $size, 1, 1, fileno $file, 0;
        next if $at == -1;
        for (1 .. 200) { unpack 'P1', pack 'J', $at + 4096 * int(rand(int(($size + 4095) / 4096))); $count++ }
        syscall $numbers->[1], $at, $size;
    }
}

# Files of up to 8 TiB without blocks: pages far away, 512 MiB of them until the file goes and the memory with it.
sub giants {
    while (1) {
        my $path = "giant$count";
        sysopen my $file, $path, O_RDWR | O_CREAT, 0600 or die "$path: $!\n";
        my ($size) = grep { truncate $file, $_ } 1 << 62, 1 << 43, 1 << 40, 1 << 34;
        die "no large files here\n" unless $size;
        for (1 .. 131072) { sysseek $file, 4096 * int(rand($size / 4096)), SEEK_SET; sysread $file, my $page, 4096; $count++ }
        unlink $path;
    }
}

# Files renamed, linked, replaced and unlinked while they are read.
sub renames {
    while (1) {
        my ($path, $other) = ("churn" . $count % 7, "churned" . $count % 5);
        bytes_of($path, 'x' x 20000);
        open my $file, '<', $path or next;
        sysread $file, my $part, 5000;
        rename $path, $other;
        link $other, $path;
        bytes_of("$path.new", 'y');
        rename "$path.new", $path;
        unlink $other;
        sysread $file, $part, 15000;
        $count++;
    }
}

# Directories below one another until no path reaches them, and paths with thousands of components up and down.
sub deep {
    my $name = 'd' x 250;
    for (1 .. 60) { mkdir $name; chdir $name or die "deep: $!\n"; one(bytes_of('leaf', 'x')) }
    my $up = "../$name/";
    while (1) { one($up x (1 + $count % 15) . 'leaf'); one('../' x (1 + $count % 1300) . 'etc/passwd'); stat('.//' x 1300 . "missing$count"); $count++ }
}

# Symbolic links that lead to themselves, to one another, and far along.
sub links {
    symlink 'loop', 'loop';
    symlink 'pong', 'ping';
    symlink 'ping', 'pong';
    symlink '.', 'here';
    symlink '/proc/self/root', 'top';
    bytes_of('link0', 'x');
    symlink "link" . ($_ - 1), "link$_" for 1 .. 39;
    while (1) { one($_) for 'loop', 'ping/x', 'here/' x 39 . 'link0', 'link39', 'here/' x 800 . "no$count", 'top/' x 30 . 'etc/passwd'; $count++ }
}

# A file that becomes a FIFO, a socket and a directory under one name.
sub fifos {
    while (1) {
        one(bytes_of('shape', 'x'));
        POSIX::mkfifo('shape.new', 0666);
        rename 'shape.new', 'shape';
        sysopen my $fifo, 'shape', O_RDONLY | O_NONBLOCK;
        unlink 'shape';
        socket my $socket, AF_UNIX, SOCK_STREAM, 0;
        bind $socket, pack_sockaddr_un('shape');
        stat 'shape';
        unlink 'shape';
        mkdir 'shape';
        stat 'shape/../shape/x';
        rmdir 'shape';
        $count++;
    }
}

# Names of any bytes, for files and for programs.
sub names {
    mkdir 'names';
    my @odd = ("\n", "\xff\xfe", "\e[2J", ' ', '%s%n', "a\n/etc/passwd", "\xc3", '...', '-rf', "\"'\\", "\x01");
    while (1) {
        my $name = join '', map { $odd[rand @odd] } 1 .. 1 + rand 8;
        my $path = "names/./../names//$name";
        eval { bytes_of($path, "#!/bin/true\n"); 1 } or next;
        one($path);
        run($path, $name) if $count % 8 == 0;
        stat "names/$name/../$count\n";
        unlink $path;
        $count++;
    }
}

# Mounts in a user namespace of the user's own.
sub namespaces {
    mkdir 'mounts';
    my $script = 'mount -t tmpfs none mounts && cp /bin/true mounts/a && mounts/a && mount --bind / mounts && cat mounts/etc/passwd >/dev/null; '
        . 'umount -l mounts; exit 0';
    my @line = ('unshare', 'unshare', '-Urmpf', 'sh', '-c', $script);
    # What they say of a mount that is not permitted is of no use to anybody.
    open STDERR, '>', '/dev/null';
    while (1) { my $status = run(@line); die "unshare: $status\n" if !defined $status || $status; $count++ }
}

# A FUSE mount that never answers: its descriptor lies in a socket that nobody reads.
sub dead {
    mkdir 'dead';
    socketpair my $kept, my $given, AF_UNIX, SOCK_STREAM, 0 or die "socketpair: $!\n";
    fcntl $given, F_SETFD, 0;
    $ENV{_FUSE_COMMFD} = fileno $given;
    open STDERR, '>', '/dev/null';
    my $status = run('fusermount3', 'fusermount3', '-o', 'rw,nosuid,nodev', '--', "$home/dead");
    die "fusermount3: $status\n" if !defined $status || $status;
    for my $path ('dead/x', 'w/../dead/x', './/dead/../dead/x', 'dead') {
        my $pid = fork;
        if (defined $pid && !$pid) { stat $path; sleep 1 while 1 }
        $count++;
    }
    sleep 1 while 1;
}

# headstart's own files and processes.
sub attacks {
    my $broke = sub { tell_all('broke', 'attacks', @_) };
    while (1) {
        for my $path (map { ($_, "$_/lock", "$_/boot.lock", "$_/keys", "$_/x") } @guarded) {
            for my $how (O_RDONLY, O_WRONLY, O_RDWR | O_CREAT) {
                # Where headstart is may be seen, its directory's modes say; what it keeps may not.
                next if -d $path && $how == O_RDONLY;
                sysopen my $file, $path, $how | O_NONBLOCK, 0666 or next;
                $broke->('opened', $path, flock($file, LOCK_EX | LOCK_NB) ? 'and locked it' : '');
            }
            unlink $path and $broke->('unlinked', $path);
            rename $path, "$home/stolen" and $broke->('renamed', $path);
            symlink '/etc/passwd', $path and $broke->('linked', $path);
            chmod 0777, $path and $broke->('chmod', $path);
            opendir(my $directory, $path);
            $count++;
        }
        for my $process (glob '/proc/[0-9]*') {
            open my $comm, '<', "$process/comm" or next;
            (<$comm> // '') =~ /^headstart/ or next;
            my $uid = (stat $process)[4] // next;
            next if $uid == $>;
            my ($pid) = $process =~ /(\d+)$/;
            for my $signal ('ZERO', 'STOP', 'TERM', 'KILL') { kill $signal, $pid and $broke->("sent $signal to", $pid) }
            open(my $memory, "<", "$process/mem") and $broke->('opened the memory of', $pid);
            $count++;
        }
        select undef, undef, undef, 0.01;
    }
}

my @works = (
    ['missing', sub { missing(1) }], ['missing', sub { missing(2) }], ['files', \&files], ['forks', \&forks], ['pages', \&pages],
    ['mapped', \&mapped], ['giants', \&giants], ['renames', \&renames], ['deep', \&deep], ['links', \&links], ['fifos', \&fifos],
    ['names', \&names], ['namespaces', \&namespaces], ['dead', \&dead], ['attacks', \&attacks],
);
# Fails for the leader of a session, which leads a group already.
setpgrp 0, 0;
my @workers;
my $kind = 0;
for my $work (@works) {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        my $name = $work->[0];
        srand ++$kind;
        my $pid = $$;
        # Not in what a worker has forked.
        $SIG{TERM} = sub { tell_all('did', $name, $count) if $$ == $pid; POSIX::_exit(0) };
        no warnings;
        eval { $work->[1]->() };
        tell_all('refused', $name, $@);
        POSIX::_exit(0);
    }
    $kind++;
    push @workers, $pid;
}
tell_all('begun');
sleep 1 for 1 .. $seconds;
kill 'TERM', @workers;
sleep 1;
system 'fusermount3 -uz dead 2>/dev/null' if -x '/usr/bin/fusermount3';
tell_all('done');
kill 'KILL', -$$;
