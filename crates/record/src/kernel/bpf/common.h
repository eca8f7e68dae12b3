// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the programs share: settings, what goes to and from user space, whom to record. */
#ifndef COMMON_H
#define COMMON_H

#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFLNK 0120000
#define SB_NOUSER (1UL << 31)
#define BDEVFS_MAGIC 0x62646576
#define ENOENT 2
#define ENXIO 6
#define EACCES 13
#define EEXIST 17
#define ENOTDIR 20
#define EISDIR 21
#define EINVAL 22
#define ETXTBSY 26
#define EROFS 30
#define ERANGE 34
#define ELOOP 40
#define ENODATA 61
#define EOVERFLOW 75
#define EOPNOTSUPP 95
#define AT_FDCWD (-100)
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

/* --- What user space sets before loading --- */

/* How each system call looks paths up or reads a file; 0: it does neither. */
#define SYSCALLS 512
#define LOOKUP_KIND 0x07	 /* kind of look-up, plus one; or one of the three of reads */
#define LOOKUP_AT 0x08		 /* (directory, path, …) instead of (path, …) */
#define LOOKUP_DESCRIPTOR 0x10	 /* (descriptor, …): no path */
#define LOOKUP_EXECUTES 0x20	 /* an execution: success is seen elsewhere */
#define LOOKUP_CHANGES 0x40	 /* success makes the name or removes it */
#define LOOKUP_SECOND 0x80	 /* (…, path, …): not relative to the first argument */
/* Two of these that never stand together: what is found is described behind the path, as by stat(2) or by statx(2). */
#define LOOKUP_FLAGS 0xe0
#define LOOKUP_FILLS_STAT (LOOKUP_EXECUTES | LOOKUP_CHANGES)
#define LOOKUP_FILLS_STATX (LOOKUP_EXECUTES | LOOKUP_SECOND)
#define LOOKUP_KERNEL_TEXT 0x100 /* the path is in kernel memory */
#define LOOKUP_MISSING 0x200

#define LOOKUP_STAT 2 /* a kind of look-up, plus one */
#define LOOKUP_LINK 3

#define READ_COUNTED 5	/* (descriptor, …, bytes, …) */
#define READ_VECTOR 6	/* (descriptor, vector, its length, …) */
#define READ_SPLICED 7	/* (descriptor, pointer to the position, …) */
#define READ_AT 0x08	/* the position is the fourth argument */
#define READ_SECOND 0x08 /* of READ_SPLICED: (other descriptor, descriptor, pointer to the position, …) */

#define SCOPE_SYSTEM 0
#define SCOPE_TREE 1
#define SCOPE_WATCH 2

/* load.rs writes this. */
const volatile struct {
	/* What `listed` names: the processes to leave out, those to record, or those of several starts. */
	u8 scope;
	/* Whether page cache additions are evidence of use, for want of better. */
	u8 adds_are_uses;
	/* Whether what was sent already is not sent again; off to measure. */
	u8 filter;
	u8 page_shift;
	/* Numbers of structures in the kernel's own BTF. */
	u32 address_space;
	u32 folio;
	/* Of 64-bit programs, and of 32-bit ones. */
	u8 syscalls[2][SYSCALLS];
} config SEC(".rodata.config") = {};

/* --- What is shared with user space while running --- */

/* Set when nothing more shall be recorded. */
u32 stopped SEC(".data.control") = 0;

/*
 * Scope watch: the starts that are recorded at the same time. User space has this mapped (watch.rs), and all
 * of it is changed atomically.
 */
#define SLOTS 32
#define SESSIONS 4

struct {
	/* How many are recorded. */
	u32 active;
	/* Of the last start. */
	u32 generation;
	/*
	 * Starts of programs of which nothing is known that may still begin; user space adds to it as time
	 * goes by.
	 */
	s32 unknown_left;
	/* The mount namespaces, by number, whose programs are recorded. */
	u32 namespaces[2];
	/* Starts that were not recorded: no slot was free, too many unknown, in another mount namespace. */
	u32 without_slot;
	u32 without_turn;
	u32 foreign;
	/* By slot, the number of the start that is recorded; 0: free, ENDED: not to be taken yet. */
	u32 numbers[SLOTS];
	/*
	 * By slot, whether user space has said that it is recorded. Until then what it executes is asked
	 * about, too, but in another mount namespace.
	 */
	u32 answered[SLOTS];
	/* By slot, the control group in which the start began; 0: whichever it is in. */
	u64 cgroups[SLOTS];
	/*
	 * By slot, whose start it is: a user's number; of those whose processes have executed something in
	 * it, by note_user().
	 */
	u32 users[SLOTS];
	/* By slot, the process that began it; 0: none did. */
	u32 leaders[SLOTS];
	/* As unknown_left, of what interpreters are given of which some is known. */
	s32 given_left;
	/* By slot, how many claim it: claim(). */
	u32 claims[SLOTS];
	/* How many sessions there are. */
	u32 in_sessions;
	/*
	 * Sessions: the number of a control group, and that of the start to which all belongs that is executed
	 * in it and below it; 0: none.
	 */
	u64 session_groups[SESSIONS];
	u32 sessions[SESSIONS];
} starts SEC(".data.starts") = {};

#define ENDED (~0U)

/*
 * What may still be sent: look-ups by root and by all others, of which a boot makes some hundred thousand
 * together, and where everybody is recorded uses of pages by others, four times what a trace has room for.
 * Anybody can make a million a second.
 */
struct {
	s64 lookups_of_root;
	s64 lookups_of_others;
	s64 uses_of_others;
} left SEC(".data.budget") = { .lookups_of_root = 4 << 20, .lookups_of_others = 1 << 20, .uses_of_others = 512 << 10 };

/* The recorder itself, as about_self found it. */
struct {
	u64 root_dentry;
	u64 root_mount;
	u64 pid_namespace; /* whose numbers records have: the one that the recorder's /proc shows */
	u64 executable;	   /* its inode */
	u32 level;	   /* of that; 0: the initial one */
} self = {};

/* Pages, files and processes. User space says how large it is. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} ring SEC(".maps");

/* Look-ups, apart: whoever floods it takes no room from what is used. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} lookups SEC(".maps");

/* What threads and block devices do, apart for the same reason; made only where that is recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} activity SEC(".maps");

/*
 * Events for which `ring` had no room, what was left out of what users do, and activity for which there was
 * no room.
 */
struct counter {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
};
struct counter lost SEC(".maps"), dropped SEC(".maps"), unseen SEC(".maps");

/*
 * Thread groups, by their number in the initial pid namespace. In scope watch: to which start they belong, or
 * OURS, or what the standing is kept under for which no start began.
 */
#define OURS (1ULL << 32)
#define STANDING (1ULL << 63)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC: few are used, and time to start counts */);
	__type(key, u32);
	__type(value, u64);
} listed SEC(".maps");

/*
 * What has been sent already, to cut repeated events; user space does the exact work. Both are direct-mapped
 * and lossy: a collision makes an event be sent again. An entry is one word, so that racing writers cannot
 * mix two. seen_inodes: the file's id. seen_pages: 48 bits of a hash of file, 16-page chunk and kind, and a
 * bit for each page.
 */
#define SEEN_INODES (1 << 16)
#define SEEN_PAGES (1 << 17)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_INODES);
	__type(key, u32);
	__type(value, u64);
} seen_inodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_PAGES);
	__type(key, u32);
	__type(value, u64);
} seen_pages SEC(".maps");

/*
 * Where records with text are put together. There are several for each processor, for a program may be
 * preempted by another one (tracepoints no longer forbid it since 6.19).
 */
#define TEXT 4096
#define NAME 256
#define SCRATCHES 2

struct scratch {
	u32 claims;
	u32 which; /* of them, where that is needed: */
#ifndef HAVE_BPF_LOOP
	/* where a walk is (paths.h) */
	u64 dentry;
	u64 top;
	u32 end;
	u32 at_top;
#endif
	u8 bytes[sizeof(struct record_lookup) + 3 * TEXT + NAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* --- Common parts --- */

/*
 * The same pointer, of which the verifier knows the type (a number in `config`) and nothing else. Where a
 * program reads a pointer through one that it gets from a tracepoint, the verifier wants to know whether that
 * may be trusted too, and searches the kernel's BTF for up to four names, some 0.5 ms each (6.3 and later:
 * btf_nested_type_is_trusted). Nothing here needs it. bpf_rdonly_cast came with 6.2.
 */
#ifdef HAVE_BPF_LOOP
#define untrusted(pointer, structure) ((const struct structure *)bpf_rdonly_cast(pointer, config.structure))
#else
#define untrusted(pointer, structure) (pointer)
#endif

static __always_inline void count(struct counter *counter)
{
	u32 zero = 0;
	u64 *sum = bpf_map_lookup_elem(counter, &zero);

	if (sum)
		__sync_fetch_and_add(sum, 1);
}

#define watching (config.scope == SCOPE_WATCH)

/*
 * Takes what belongs to one at a time, if nobody else has it or is trying to. Two that try at once may both
 * fail. An addition that returns nothing is the one atomic operation that Linux has before 5.12: whoever
 * reads 1 behind its own is alone, and nobody else is as long as it has not given that back.
 */
static __always_inline bool claim(u32 *claims)
{
	__sync_fetch_and_add(claims, 1);
	if (*(volatile u32 *)claims == 1)
		return true;
	__sync_fetch_and_add(claims, -1);
	return false;
}

static __always_inline void unclaim(u32 *claims)
{
	__sync_fetch_and_add(claims, -1);
}

/* Whether what `listed` has is a start that is recorded. */
static __always_inline bool is_recorded(u64 of)
{
	return of && of < OURS && *(volatile u32 *)&starts.numbers[of & (SLOTS - 1)] == (u32)of;
}

/* Scope watch: the start that a process belongs to, if it is recorded; else 0. */
static __always_inline u32 start_of(u32 tgid)
{
	u64 *of;

	if (!*(volatile u32 *)&starts.active)
		return 0;
	of = bpf_map_lookup_elem(&listed, &tgid);
	return of && is_recorded(*of) ? *of : 0;
}

/* Whether a process is recorded, as far as its number says. */
static __always_inline bool wanted(u32 tgid)
{
	if (stopped)
		return false;
	if (watching)
		return start_of(tgid) != 0;
	return (bpf_map_lookup_elem(&listed, &tgid) != NULL) == (config.scope == SCOPE_TREE);
}

static __always_inline u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* What a process is called in the pid namespace of this level. */
static __always_inline void *upid_at(struct pid *pid, u32 level)
{
	return (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
}

static __always_inline u64 pid_namespace_of(void *upid)
{
	u64 namespace = 0;

	bpf_probe_read_kernel(&namespace, sizeof(namespace), upid + bpf_core_field_offset(struct upid, ns));
	return namespace;
}

/*
 * The process's number in the recorder's pid namespace; 0 if it has none there, as those outside of its
 * container.
 */
static __always_inline u32 number_of(const struct task_struct *task)
{
	struct pid *pid;
	u32 number = 0;
	void *upid;

	if (self.level == 0)
		return BPF_CORE_READ(task, tgid);
	pid = BPF_CORE_READ(task, group_leader, thread_pid);
	if (BPF_CORE_READ(pid, level) < self.level)
		return 0;
	upid = upid_at(pid, self.level);
	if (pid_namespace_of(upid) == self.pid_namespace)
		bpf_probe_read_kernel(&number, sizeof(number), upid + bpf_core_field_offset(struct upid, nr));
	return number;
}

static __always_inline u32 current_number(void)
{
	if (self.level == 0)
		return current_tgid();
	return number_of((const struct task_struct *)bpf_get_current_task());
}

/*
 * In a container "everybody" are those in it: what its neighbours do is not its business, and a flood to wade
 * through.
 */
static __always_inline bool current_is_wanted(void)
{
	return wanted(current_tgid()) && (config.scope != SCOPE_SYSTEM || !self.level || current_number());
}

/* The open file of a descriptor; NULL if there is none. */
static __always_inline const struct file *file_of(const struct task_struct *task, u32 descriptor)
{
	const struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	const struct file *file = NULL;

	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	return file;
}

/* The slot of a record about the current process; of a start that has just ended none. */
#define NO_SLOT 255

static __always_inline u8 current_slot(void)
{
	u32 start = start_of(current_tgid());

	return start ? start & (SLOTS - 1) : NO_SLOT;
}

/* User namespaces are nested so deep at most (create_user_ns, kernel/user_namespace.c). */
#define USER_NAMESPACES 33

/*
 * Whose the current process is, for all that a user has a share of: its real user; in a user namespace
 * whoever has made that, and has the ids in it: the owner of the outermost one that is not root's
 * (headstart_system::process::owner).
 */
__noinline u32 whose(void)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct user_namespace *namespace = BPF_CORE_READ(task, real_cred, user_ns);
	u32 user = bpf_get_current_uid_gid();

	for (u32 i = 0; i < USER_NAMESPACES; i++) {
		u32 owner;

		if (!namespace || BPF_CORE_READ(namespace, level) <= 0)
			break;
		owner = BPF_CORE_READ(namespace, owner.val);
		if (owner)
			user = owner;
		namespace = BPF_CORE_READ(namespace, parent);
	}
	return user;
}

/*
 * Which of 255 groups of users the current process is of, where everybody is recorded; 0: root, and whoever
 * is recorded alone. Each group has a share of what a recording keeps (builder/shares.rs).
 */
static __always_inline u8 group_of_user(void)
{
	u32 uid = config.scope == SCOPE_SYSTEM ? whose() : 0;

	return !uid ? 0 : 1 + uid % 255;
}

/* Takes one of what may still be sent; whether there was one. */
static __always_inline bool take_one(s64 *left)
{
	if (*(volatile s64 *)left <= 0)
		return false;
	__sync_fetch_and_add(left, -1);
	return true;
}

/* Whether a ring buffer is filled by less than half: what is beyond is for root. */
#define has_half(buffer) \
	(bpf_ringbuf_query(&buffer, BPF_RB_AVAIL_DATA) <= bpf_ringbuf_query(&buffer, BPF_RB_RING_SIZE) / 2)

/*
 * While starts are noticed a quarter of the ring is for what tells of one, and for ends: else what one start
 * does could keep others from being seen.
 */
#define is_kept_free(buffer)                                                                                                              \
	(watching && bpf_ringbuf_query(&buffer, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(&buffer, BPF_RB_RING_SIZE) / 4 * 3)

static __always_inline void head(struct record_head *head, u8 type, u8 kind, u32 pid)
{
	head->type = type;
	head->kind = kind;
	head->flags = 0;
	head->whose = watching ? current_slot() : 0;
	head->pid = pid;
	head->time_ns = bpf_ktime_get_ns();
}

static __always_inline struct scratch *take_scratch(void)
{
	for (u32 i = 0; i < SCRATCHES; i++) {
		u32 key = i;
		struct scratch *s = bpf_map_lookup_elem(&scratches, &key);

		/* Another program may come between the look and the taking. */
		if (s && claim(&s->claims)) {
#ifndef HAVE_BPF_LOOP
			s->which = i;
#endif
			return s;
		}
	}
	return NULL;
}

static __always_inline void give_scratch(struct scratch *s)
{
	unclaim(&s->claims);
}

/* Sends what was put together; if there is no room, or what there is has another purpose, counts that. */
static __always_inline long send(void *buffer, bool kept_free, struct counter *counter, struct scratch *s, u32 length)
{
	long error = -1;

	if (!kept_free && length <= sizeof(s->bytes))
		error = bpf_ringbuf_output(buffer, s->bytes, length, BPF_RB_NO_WAKEUP);
	if (error)
		count(counter);
	give_scratch(s);
	return error;
}

#endif
