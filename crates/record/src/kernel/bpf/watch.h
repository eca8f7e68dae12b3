// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Scope watch: which executions begin a start. A process of a start that is recorded stays with it, and so do
 * those that it forks; any other execution takes a slot and is a start of its own, unless a standing says
 * that it is not worth one. What a process executes before user space has answered is told as a start, too,
 * and of which one it was: a program that only starts another has no start, and the other must not be lost
 * with it. What it executes in another control group than the start's is a start of its own: a service or a
 * desktop has started a program apart (systemd-run --scope, a login). But the process that began it takes the
 * start with it: flatpak, snap and desktops move it to a scope of its own. And of a session, which is a
 * user's, all is part that is executed in that user's control groups, whoever has forked it.
 */
#ifndef WATCH_H
#define WATCH_H

#include "session.h"

/* What an execution came to. */
#define LEAVE 0	 /* nobody's business */
#define JOINED 1 /* of a start that is recorded */
#define BEGAN 2	 /* a start */

/* An interpreter: its standings are by what it is given to do. */
#define BY_ARGUMENTS 1

/* A process that began no start and had so much read from a device: its standing does not hold any more. */
#define REVISIT_BYTES (1 << 20)

/*
 * What user space found about programs: 0: known, always worth a start; and about a program of one user
 * (of_user): until when (CLOCK_MONOTONIC) its executions begin no start. The kernel forgets those that were
 * not asked for longest. An executable that the kernel had to read anew has another inode, and so no
 * standing: nothing else of it is in memory either.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, u64);
} standings SEC(".maps");

/*
 * Executables of known programs, also where the kernel has to read them anew: their starts take no turn, and
 * any slot. Of what an interpreter is given some is known, and what is not seen has turns of its own: others
 * do not take them.
 */
#define PROGRAM 1
#define INTERPRETER 2

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u8);
} known SEC(".maps");

/*
 * What a start of a program found in memory, by of_user: some of the names that it looks up, and of some
 * files how many pages there were. While those are there its executions begin no start, but one in so many:
 * what else it reads is looked at then.
 */
#define LOOKED_AT 8
#define ONE_IN 8
/* And none within so long of the last look. */
#define LOOKED_AT_NS 5000000000ULL

struct in_memory {
	u64 until; /* CLOCK_MONOTONIC */
	u64 since;
	struct remembered {
		u64 dentry; /* 0: none */
		u64 parent;
		u64 name;
		u64 inode;
		u64 pages;
	} files[LOOKED_AT];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 512);
	__type(key, u64);
	__type(value, struct in_memory);
} warm SEC(".maps");

static __always_inline u64 mix(u64 h)
{
	h ^= h >> 32;
	h *= 0x94d049bb133111ebULL;
	h ^= h >> 29;
	return h;
}

/*
 * What a user's executions of a program are left alone under: what others find of theirs is no reason to miss
 * those that are known.
 */
static __always_inline u64 of_user(u64 program, u32 user)
{
	return mix(program ^ user) | STANDING;
}

/* What is the same of a file as long as it exists. User space makes it, too (Executable::of). */
static __always_inline u64 file_hash(const struct inode *inode)
{
	return mix(BPF_CORE_READ(inode, i_ino) ^ (u64)BPF_CORE_READ(inode, i_generation) << 32 ^
		   (u64)BPF_CORE_READ(inode, i_sb, s_dev) << 20);
}

/* A name as the kernel remembers it, and the pages of its file that are in memory. */
static __always_inline void remember(struct remembered *it, const struct dentry *dentry)
{
	it->dentry = (u64)dentry;
	it->parent = (u64)BPF_CORE_READ(dentry, d_parent);
	it->name = BPF_CORE_READ(dentry, d_name.hash_len);
	it->inode = (u64)BPF_CORE_READ(dentry, d_inode);
	it->pages = BPF_CORE_READ(dentry, d_inode, i_mapping, nrpages);
}

/*
 * Whether a program's start would find in memory what the last one did. Where a name was remembered there may
 * be anything by now, but nothing that is hashed as that name of that directory, unless it is that name; and
 * then its inode is there, too. By numbers: see send_file.
 */
__noinline int is_warm(u64 program)
{
	const struct in_memory *found = bpf_map_lookup_elem(&warm, &program);
	u64 now_ns = bpf_ktime_get_ns();

	if (!found || found->until < now_ns)
		return 0;
	/* What is executed a hundred times a second, as in a build, was looked at just now. */
	if (now_ns - found->since > LOOKED_AT_NS && bpf_get_prandom_u32() % ONE_IN == 0)
		return 0;
	for (u32 i = 0; i < LOOKED_AT; i++) {
		const struct remembered *then = &found->files[i];
		const struct dentry *dentry = (const void *)then->dentry;
		struct remembered now;

		if (!dentry)
			continue;
		remember(&now, dentry);
		/* A sixteenth may be gone: of a file much is there that the program does not read. */
		if (!BPF_CORE_READ(dentry, d_hash.pprev) || now.parent != then->parent || now.name != then->name ||
		    now.inode != then->inode || now.pages < then->pages - then->pages / 16)
			return 0;
	}
	return 1;
}

/*
 * Adds an argument to a hash, and says in the topmost bits what follows: how long it was. By numbers: see
 * send_file.
 */
#define ARGUMENT 256

static __always_inline u64 add_argument(struct scratch *s, u64 h, u32 length)
{
	for (u32 i = 0; i < ARGUMENT / 8; i++) {
		u64 word;

		if (i * 8 >= length)
			break;
		word = ((u64 *)s->bytes)[i];
		if (length - i * 8 < 8)
			word &= (1ULL << (length - i * 8) * 8) - 1;
		h = mix(h ^ word);
	}
	return mix(h + length);
}

/*
 * A hash of what an interpreter is given to do: its name, its first argument, and if that is an option the
 * second. The text of a one-liner is left out: all of them are one, which has no key. What is not absolute is
 * relative to a directory.
 */
__noinline u64 what_it_does(u64 h)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	u64 at = BPF_CORE_READ(task, mm, arg_start), end = BPF_CORE_READ(task, mm, arg_end);
	struct scratch *s = take_scratch();
	bool absolute = false;

	if (!s)
		return h;
	for (u32 i = 0; i < 3; i++) {
		long n = at < end ? bpf_probe_read_user_str(s->bytes, ARGUMENT, (const void *)at) : 0;
		u8 first, second;

		if (n <= 1 || n > ARGUMENT)
			break;
		first = s->bytes[0];
		second = s->bytes[1];
		h = add_argument(s, h, n);
		at += n;
		if (i == 0)
			continue;
		absolute = first == '/';
		if (first != '-' || (n == 3 && (second == 'c' || second == 'e')))
			break;
	}
	if (!absolute) {
		const struct dentry *directory = BPF_CORE_READ(task, fs, pwd.dentry);

		h = mix(h ^ (u64)BPF_CORE_READ(directory, d_inode));
	}
	give_scratch(s);
	return h;
}

/*
 * Slots that starts of programs of which nothing is known may take: the others are left to those that are
 * known, however many new ones somebody starts. And slots that a user may have, who is not root, when a start
 * begins: the others are left to other users, of those for what is unknown one half.
 */
#define SLOTS_OF_UNKNOWN (SLOTS / 4 * 3)
#define SLOTS_OF_A_USER (SLOTS / 4 * 3)
#define SLOTS_OF_UNKNOWN_OF_A_USER (SLOTS_OF_UNKNOWN / 2)

/* So many turns of each kind a user has in a second, who is not root: half of `UNKNOWN`, watch.rs. */
#define TURNS_OF_A_USER 32

struct turns {
	u64 since;
	u32 unknown;
	u32 given;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct turns);
} turns SEC(".maps");

/* Takes a turn of this user's; whether there was one. */
__noinline int take_turn(u32 user, u32 given)
{
	struct turns none = {}, *of;
	u64 now = bpf_ktime_get_ns();
	u32 *taken;

	if (!user)
		return 1;
	of = bpf_map_lookup_elem(&turns, &user);
	if (!of || now - of->since > 1000000000ULL) {
		none.since = now;
		bpf_map_update_elem(&turns, &user, &none, BPF_ANY);
		of = bpf_map_lookup_elem(&turns, &user);
	}
	if (!of)
		return 0;
	taken = given ? &of->given : &of->unknown;
	/* Of several at once each may be the last. */
	if (*(volatile u32 *)taken >= TURNS_OF_A_USER)
		return 0;
	__sync_fetch_and_add(taken, 1);
	return 1;
}

/*
 * Notes that a user has executed something in the start in a slot. A person counts before the system's own
 * users, whose numbers are below and above (`is_ordinary`, watch.rs), and then the highest number.
 */
static __always_inline u64 rank(u32 user)
{
	bool ordinary = user >= 1000 && (user < 60578 || user > 65534);

	return (u64)ordinary << 32 | user;
}

static __always_inline void note_user(u32 slot, u32 user)
{
	if (rank(user) > rank(*(volatile u32 *)&starts.users[slot]))
		*(volatile u32 *)&starts.users[slot] = user;
}

/* 1 for 0, and 0 for all else: without a branch, each of which would be twice as many states in a loop. */
static __always_inline u64 is_zero(u32 x)
{
	return ((u64)x - 1) >> 63;
}

/* The slots that starts of a user have. */
__noinline u32 slots_of(u32 user)
{
	u64 taken = 0;

	for (u32 i = 0; i < SLOTS; i++)
		taken += is_zero(*(volatile u32 *)&starts.users[i] ^ user) & ~is_zero(*(volatile u32 *)&starts.numbers[i]);
	return taken;
}

/*
 * Takes one of the first `most` slots for a start of a user and gives its number; 0: all of them are taken. A
 * function that the verifier looks at by itself: amid the branches of watch_exec the loop would be too many
 * states.
 */
__noinline u32 take_slot(u32 most, u32 user)
{
	u32 generation, first;

	if (user && slots_of(user) >= (most < SLOTS ? SLOTS_OF_UNKNOWN_OF_A_USER : SLOTS_OF_A_USER))
		return 0;
	/*
	 * Several may read the same number here, but take different slots: between two that take the same one
	 * a start began and ended.
	 */
	__sync_fetch_and_add(&starts.generation, 1);
	generation = *(volatile u32 *)&starts.generation & 0x3ffffff;
	/*
	 * Each processor begins at another slot: two that go the same way fail at the same slots, all of them,
	 * for each waits for the other's additions.
	 */
	first = bpf_get_smp_processor_id() * 5;
	for (u32 i = 0; i < SLOTS; i++) {
		u32 slot = (first + i) & (SLOTS - 1), number = (generation + 1) * SLOTS + slot;

		if (slot >= most || *(volatile u32 *)&starts.numbers[slot] || !claim(&starts.claims[slot]))
			continue;
		__sync_fetch_and_add(&starts.active, 1);
		*(volatile u32 *)&starts.users[slot] = user;
		*(volatile u32 *)&starts.numbers[slot] = number;
		return number;
	}
	return 0;
}

static __always_inline void give_back(u32 number)
{
	*(volatile u32 *)&starts.numbers[number & (SLOTS - 1)] = 0;
	__sync_fetch_and_add(&starts.active, -1);
	unclaim(&starts.claims[number & (SLOTS - 1)]);
}

/*
 * So much of a start's arguments is told, bytes. Here they are in memory, for execve has just written them;
 * whoever asked /proc for them later would wait for a file system of the process's own, if that has mapped
 * one there.
 */
#define ARGUMENTS (2 * TEXT)

/*
 * Adds the current process's arguments to what is sent, and returns how long they are. By numbers: see
 * send_file.
 */
static __noinline u32 arguments(struct scratch *s, u32 at)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	u64 from = BPF_CORE_READ(task, mm, arg_start), end = BPF_CORE_READ(task, mm, arg_end), length = end - from;

	if (from >= end || at > sizeof(s->bytes) - ARGUMENTS)
		return 0;
	if (length > ARGUMENTS)
		length = ARGUMENTS;
	return bpf_probe_read_user(s->bytes + at, length, (const void *)from) ? 0 : length;
}

/*
 * Tells of a start, and wakes who waits for one. In the upper half of its number is that of the one before.
 */
__noinline int send_start(u64 address, u64 program, u64 executable, u64 numbers, u32 apart)
{
	const struct file *file = (const void *)address;
	struct scratch *s = take_scratch();
	u32 at = sizeof(struct record_start);
	struct record_start *r;
	long error = -1;

	if (!s)
		return -1;
	r = (void *)s->bytes;
	head(&r->head, RECORD_START, 0, current_number());
	r->head.whose = numbers & (SLOTS - 1);
	r->program = program;
	r->ignored = of_user(program, whose());
	r->executable = executable;
	r->file = file_hash(BPF_CORE_READ(file, f_path.dentry, d_inode));
	r->start = numbers;
	r->before = numbers >> 32;
	r->apart = apart;
	r->parent = number_of(BPF_CORE_READ((const struct task_struct *)bpf_get_current_task(), real_parent));
	r->zero = 0;
	at += place(&r->place, s, at, (u64)BPF_CORE_READ(file, f_path.dentry), (u64)BPF_CORE_READ(file, f_path.mnt));
	r->arguments = arguments(s, at);
	at += r->arguments;
	if (at <= sizeof(s->bytes))
		error = bpf_ringbuf_output(&ring, s->bytes, at, BPF_RB_FORCE_WAKEUP);
	give_scratch(s);
	return error;
}

/* What an execution by the current process comes to. By numbers: see send_file. */
__noinline int watch_exec(u64 address)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct inode *inode = BPF_CORE_READ((const struct file *)address, f_path.dentry, d_inode);
	u32 tgid = current_tgid(), namespace = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum), number;
	u64 *of = bpf_map_lookup_elem(&listed, &tgid), *standing, *until;
	u8 *in_known;
	u64 executable, program, ignored, mark, lasting, before = 0, cgroup = bpf_get_current_cgroup_id();
	u32 most = SLOTS_OF_UNKNOWN, apart = 0, user = whose(), role;
	bool foreign = namespace != starts.namespaces[0] && namespace != starts.namespaces[1];

	if (stopped || (of && *of == OURS))
		return LEAVE;
	if ((u64)inode == self.executable) {
		/* The recorder's own program, and all that it starts. */
		mark = OURS;
		bpf_map_update_elem(&listed, &tgid, &mark, BPF_ANY);
		return LEAVE;
	}
	if (of && is_recorded(*of)) {
		u32 slot = *of & (SLOTS - 1);
		u64 began_in = *(volatile u64 *)&starts.cgroups[slot];

		apart = !foreign && began_in && began_in != cgroup;
		if (apart && *(volatile u32 *)&starts.leaders[slot] == tgid) {
			*(volatile u64 *)&starts.cgroups[slot] = cgroup;
			apart = 0;
		}
		/*
		 * A service that has shut itself in by now is part of what began it, whatever is answered
		 * about that.
		 */
		if (foreign || (!apart && *(volatile u32 *)&starts.answered[slot])) {
			note_user(slot, user);
			return JOINED;
		}
		before = *of;
	}
	/* What is in no directory any more nobody starts again. */
	if (!BPF_CORE_READ(inode, i_nlink) || !current_number())
		return LEAVE;
	if ((!before || apart) && *(volatile u32 *)&starts.in_sessions) {
		mark = session();
		if (mark && !bpf_map_update_elem(&listed, &tgid, &mark, BPF_ANY)) {
			note_user(mark & (SLOTS - 1), user);
			return JOINED;
		}
	}
	if (foreign) {
		__sync_fetch_and_add(&starts.foreign, 1);
		return LEAVE;
	}
	lasting = file_hash(inode);
	executable = mix((u64)inode ^ lasting) | STANDING;
	program = executable;
	standing = bpf_map_lookup_elem(&standings, &program);
	if (standing && *standing == BY_ARGUMENTS) {
		program = what_it_does(executable) | STANDING;
		standing = bpf_map_lookup_elem(&standings, &program);
	}
	ignored = of_user(program, user);
	until = bpf_map_lookup_elem(&standings, &ignored);
	if ((until && *until > bpf_ktime_get_ns()) || is_warm(ignored)) {
		bpf_map_update_elem(&listed, &tgid, &ignored, BPF_ANY);
		return LEAVE;
	}
	/*
	 * What is looked up is looked into: the verifier refuses a pointer that the compiler adds to another
	 * to test both at once.
	 */
	in_known = bpf_map_lookup_elem(&known, &lasting);
	role = in_known ? *in_known : 0;
	if ((standing && !*standing) || role == PROGRAM) {
		most = SLOTS;
	} else if (!until && role == INTERPRETER && *(volatile s32 *)&starts.given_left > 0 && take_turn(user, 1)) {
		most = SLOTS;
		__sync_fetch_and_add(&starts.given_left, -1);
	} else if (!until) {
		if (*(volatile s32 *)&starts.unknown_left <= 0 || !take_turn(user, 0)) {
			__sync_fetch_and_add(&starts.without_turn, 1);
			return LEAVE;
		}
		__sync_fetch_and_add(&starts.unknown_left, -1);
	}
	number = take_slot(most, user);
	if (!number) {
		__sync_fetch_and_add(&starts.without_slot, 1);
		return LEAVE;
	}
	mark = number;
	*(volatile u64 *)&starts.cgroups[number & (SLOTS - 1)] = cgroup;
	*(volatile u32 *)&starts.leaders[number & (SLOTS - 1)] = tgid;
	if (bpf_map_update_elem(&listed, &tgid, &mark, BPF_ANY) ||
	    send_start(address, program, executable, before << 32 | number, apart)) {
		give_back(number);
		__sync_fetch_and_add(&starts.without_slot, 1);
		return LEAVE;
	}
	return BEGAN;
}

/* Whether a process that is forked has something from its parent, and what. */
static __always_inline bool inherited(u32 parent, u32 child, u64 *mark)
{
	u64 *of = bpf_map_lookup_elem(&listed, &parent);

	if (!of)
		return false;
	*mark = *of;
	if (*mark == OURS)
		bpf_map_update_elem(&listed, &child, mark, BPF_ANY);
	return is_recorded(*mark);
}

/* At the end of a process: one that was left alone and had much to read is to be looked at the next time. */
static __always_inline void revisit(struct task_struct *task, u32 tgid)
{
	u64 *of = bpf_map_lookup_elem(&listed, &tgid), program;

	if (!of || !(*of & STANDING) || !bpf_core_field_exists(task->ioac.read_bytes))
		return;
	program = *of;
	if (BPF_CORE_READ(task, ioac.read_bytes) + BPF_CORE_READ(task, signal, ioac.read_bytes) >= REVISIT_BYTES) {
		bpf_map_delete_elem(&standings, &program);
		bpf_map_delete_elem(&warm, &program);
	}
}

#endif
