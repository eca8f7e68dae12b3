// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sees which pages of which files processes use, which paths they look up, which metadata they wait for, and who
 * they are. User space decides which programs to load and attach (load.rs), and reads the ring buffer by timer.
 */
#include "kernel.h"

#include "compat.h"
#include "events.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define S_IFMT 0170000
#define S_IFREG 0100000
#define SB_NOUSER (1UL << 31)
#define BDEVFS_MAGIC 0x62646576
#define ENOENT 2
#define ENOTDIR 20
#define AT_FDCWD (-100)
#define PF_KTHREAD 0x00200000

/* --- What user space sets before loading --- */

/* How each system call looks paths up; 0: it does not. */
#define SYSCALLS 512
#define LOOKUP_KIND 0x07	 /* kind of look-up, plus one */
#define LOOKUP_AT 0x08		 /* (directory, path, …) instead of (path, …) */
#define LOOKUP_DESCRIPTOR 0x10	 /* (descriptor, …): no path */
#define LOOKUP_ONLY_MISSING 0x20 /* success is seen elsewhere */
#define LOOKUP_KERNEL_TEXT 0x40	 /* the path is in kernel memory */
#define LOOKUP_MISSING 0x80

/* load.rs writes this. */
const volatile struct {
	/* Whether `listed` names the processes to record (scope tree) or those to leave out (scope system). */
	u8 tree_scope;
	/* Whether page cache additions are evidence of use, for want of better. */
	u8 adds_are_uses;
	/* Whether what was told already is not told again; off to measure. */
	u8 filter;
	u8 page_shift;
	u8 syscalls[SYSCALLS];
} config SEC(".rodata.config") = {};

/* --- What is shared with user space while running --- */

/* Set when nothing more shall be recorded. */
u32 stopped SEC(".data.control") = 0;

/* The recorder itself, as about_self found it. */
struct {
	u64 root_dentry;
	u64 root_mount;
	u64 pid_namespace;
	u32 tgid;
	u32 level; /* of its pid namespace */
} self = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

/* Events for which the ring buffer had no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

/* Thread groups, by their number in the initial pid namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC: few are used, and time to start counts */);
	__type(key, u32);
	__type(value, u8);
} listed SEC(".maps");

/* Children of the recorder, by their number in its own pid namespace, where that is not the initial one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC */);
	__type(key, u32);
	__type(value, u32);
} born SEC(".maps");

/*
 * What has been told already, to cut repeated events; user space does the exact work. Both are direct-mapped and
 * lossy: a collision makes an event be sent again. An entry is one word, so that racing writers cannot mix two.
 * seen_inodes: the file's id. seen_pages: 48 bits of a hash of file, 16-page chunk and kind, and a bit for each page.
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
 * Where records with text are put together. There are several for each processor, for a program may be preempted by
 * another one (tracepoints no longer forbid it since 6.19).
 */
#define TEXT 4096
#define NAME 256
#define SCRATCHES 2

struct scratch {
	u32 busy;
	u32 unused;
	u8 bytes[sizeof(struct record_lookup) + 3 * TEXT + NAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* --- Common parts --- */

static __always_inline void count_lost(void)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline bool wanted(u32 tgid)
{
	if (stopped)
		return false;
	return (bpf_map_lookup_elem(&listed, &tgid) != NULL) == !!config.tree_scope;
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

/* The process's number in the recorder's pid namespace; 0 if it has none there, as those of other containers. */
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

static __always_inline u32 current_number(u32 tgid)
{
	if (self.level == 0)
		return tgid;
	return number_of((const struct task_struct *)bpf_get_current_task());
}

static __always_inline void head(struct record_head *head, u8 type, u8 kind, u32 pid)
{
	head->type = type;
	head->kind = kind;
	head->flags = 0;
	head->unused = 0;
	head->pid = pid;
	head->time_ns = bpf_ktime_get_ns();
}

static __always_inline struct scratch *take_scratch(void)
{
	for (u32 i = 0; i < SCRATCHES; i++) {
		u32 key = i;
		struct scratch *s = bpf_map_lookup_elem(&scratches, &key);

		if (s && !s->busy) {
			s->busy = 1;
			return s;
		}
	}
	count_lost();
	return NULL;
}

static __always_inline long send(struct scratch *s, u32 length)
{
	long error = 0;

	if (length <= sizeof(s->bytes))
		error = bpf_ringbuf_output(&ring, s->bytes, length, BPF_RB_NO_WAKEUP);
	if (error)
		count_lost();
	s->busy = 0;
	return error;
}

/* Deeper paths than any that fits PATH_MAX are cut. */
#define DEPTH 128

/* A walk from a dentry up to the root of its file system; the names are written to bytes + end. */
struct walk {
	struct scratch *s;
	const struct dentry *dentry;
	u32 end;
	bool at_top;
};

/* Takes one step. Returns whether that was the last. */
static long step(u32 i, struct walk *w)
{
	const struct dentry *dentry = w->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	long n;

	if (parent == dentry) {
		w->at_top = true;
		return 1;
	}
	if (w->end > sizeof(w->s->bytes) - NAME)
		return 1;
	n = bpf_probe_read_kernel_str(w->s->bytes + w->end, NAME, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0 || n > NAME)
		return 1;
	w->end += n;
	w->dentry = parent;
	return 0;
}

/* Returns the length of the names, and in the topmost bit whether they reach the root. */
#define WHOLE (1U << 31)
static __noinline u32 walk(struct scratch *s, u32 at, u64 from)
{
	const struct dentry *dentry = (const void *)from;
	struct walk w = { .s = s, .dentry = dentry, .end = at };

	/*
	 * The verifier follows every turn of a plain loop, which takes it milliseconds; 5.17 brought one it need not.
	 * Older kernels refuse programs that mention it even where they never run it, so there are two objects.
	 */
#ifdef HAVE_BPF_LOOP
	bpf_loop(DEPTH, step, &w, 0);
#else
	for (int i = 0; i < DEPTH && !step(i, &w); i++)
		;
#endif
	return (w.end - at) | (w.at_top && w.dentry == BPF_CORE_READ(dentry, d_sb, s_root) ? WHOLE : 0);
}

static __always_inline u32 place(struct place *place, struct scratch *s, u32 at, u64 dentry, u64 mnt)
{
	u32 walked = walk(s, at, dentry);

	place->dev = BPF_CORE_READ((const struct dentry *)dentry, d_sb, s_dev);
	place->mount = 0;
	if (mnt) {
		const struct mount *m = (const void *)(mnt - bpf_core_field_offset(struct mount, mnt));

		place->mount = BPF_CORE_READ(m, mnt_id);
	}
	place->length = walked & ~WHOLE;
	place->whole = walked >> 31;
	return walked & ~WHOLE;
}

/* --- Files and pages --- */

/* Tells of a file at its first sight. Not inlined, and by numbers: so it is checked once at load, not at each use. */
__noinline int tell_file(u64 address, u64 id)
{
	const struct inode *inode = (const void *)address;
	struct scratch *s = take_scratch();
	struct record_file *r;
	u32 length = sizeof(*r);
	u64 link;

	if (!s)
		return -1;
	r = (void *)s->bytes;
	head(&r->head, RECORD_FILE, 0, 0);
	r->id = id;
	r->inode = BPF_CORE_READ(inode, i_ino);
	r->size = BPF_CORE_READ(inode, i_size);
	r->mtime_ns = inode_mtime_ns(inode);
	r->generation = BPF_CORE_READ(inode, i_generation);
	r->mode = BPF_CORE_READ(inode, i_mode);
	link = (u64)BPF_CORE_READ(inode, i_dentry.first);
	if (link) {
		length += place(&r->place, s, sizeof(*r), link - dentry_alias_offset(), 0);
	} else {
		r->place.length = r->place.whole = r->place.mount = 0;
	}
	r->place.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	return send(s, length);
}

/* The lower half of an address as a number; the verifier lets no one calculate with the whole. */
static __always_inline u64 low_half(const void *address)
{
	u64 low;

	asm volatile("r0 = %1; w0 = w0; %0 = r0" : "=r"(low) : "r"(address) : "r0");
	return low;
}

/*
 * A number for a file: the inode's address, so that btrfs subvolumes are kept apart, and what tells one inode at
 * this address from the next.
 */
static __always_inline u64 file_id(const struct inode *inode)
{
	u64 h = low_half(inode) * 0x9e3779b97f4a7c15ULL;

	h ^= (inode->i_ino ^ ((u64)inode->i_generation << 32) ^ ((u64)inode->i_sb->s_dev << 20)) * 0xbf58476d1ce4e5b9ULL;
	h ^= h >> 32;
	h *= 0x94d049bb133111ebULL;
	h ^= h >> 29;
	return h | 1;
}

/* A range of more 16-page chunks costs more to look up than to send. */
#define CHUNKS 4

/* Whether some page of the range has not been told of; notes that all are. By numbers: see tell_file. */
__noinline int fresh_pages(u64 id, u64 start, u64 last, u32 exact)
{
	int fresh = 0;

	if ((last >> 4) - (start >> 4) >= CHUNKS)
		return 1;
	for (int i = 0; i < CHUNKS; i++) {
		u64 chunk = (start >> 4) + i, h, tag, bits = 0xffff;
		u64 *entry;
		u32 key;

		if (chunk > last >> 4)
			break;
		if (i == 0)
			bits &= 0xffff << (start & 15);
		if (chunk == last >> 4)
			bits &= 0xffff >> (15 - (last & 15));
		h = (id + chunk * 2 + exact) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 32;
		h *= 0xbf58476d1ce4e5b9ULL;
		h ^= h >> 29;
		key = h & (SEEN_PAGES - 1);
		tag = h & ~0xffffULL;
		entry = bpf_map_lookup_elem(&seen_pages, &key);
		if (!entry)
			return 1;
		h = *(volatile u64 *)entry;
		if ((h & ~0xffffULL) != tag) {
			*(volatile u64 *)entry = tag | bits;
			fresh = 1;
		} else if (bits & ~h) {
			*(volatile u64 *)entry = h | bits;
			fresh = 1;
		}
	}
	return fresh;
}

/* A page touched through a mapping, where it is known, and the part of the file that is mapped there in one piece. */
struct touch {
	u64 page;
	u64 mapped_from;
	u64 mapped_pages; /* 0: nothing is known */
};

static __always_inline void touch_in(struct touch *t, u64 address, const struct vm_area_struct *vma)
{
	u64 start = BPF_CORE_READ(vma, vm_start);

	t->mapped_from = BPF_CORE_READ(vma, vm_pgoff);
	t->mapped_pages = (BPF_CORE_READ(vma, vm_end) - start) >> config.page_shift;
	t->page = t->mapped_from + ((address - start) >> config.page_shift);
}

/* Pages start to last are used; by a fault for the page touched. */
static __always_inline int use(const struct address_space *mapping, u64 start, u64 last, u8 kind, const struct touch *t)
{
	u32 tgid = current_tgid(), key, fresh;
	bool known;
	const struct inode *inode;
	struct record_use *r;
	u64 id, size, *seen;

	if (!wanted(tgid))
		return 0;
	inode = mapping->host;
	if ((inode->i_mode & S_IFMT) != S_IFREG || inode->i_sb->s_flags & SB_NOUSER)
		return 0;
	/* Pages beyond the end are asked for, but not there. */
	size = inode->i_size;
	if (!size)
		return 0;
	if (last > (size - 1) >> config.page_shift)
		last = (size - 1) >> config.page_shift;
	if (start > last)
		return 0;
	id = file_id(inode);
	known = t->mapped_pages && t->page >= start && t->page <= last;
	fresh = fresh_pages(id, start, last, kind == USE_READ || kind == USE_FAULT);
	if (known && kind == USE_MAP)
		fresh |= fresh_pages(id, t->page, t->page, true);
	if (config.filter && !fresh)
		return 0;
	key = id >> 40 & (SEEN_INODES - 1);
	seen = bpf_map_lookup_elem(&seen_inodes, &key);
	if (seen && *(volatile u64 *)seen != id) {
		if (!tell_file((u64)BPF_CORE_READ(mapping, host), id))
			*(volatile u64 *)seen = id;
	}
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count_lost();
		return 0;
	}
	head(&r->head, RECORD_USE, kind, current_number(tgid));
	r->file = id;
	r->start = start;
	r->pages = last - start + 1;
	r->touched = known && kind == USE_MAP ? t->page - start + 1 : 0;
	r->mapped_from = t->mapped_from;
	r->mapped_pages = known ? t->mapped_pages : 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int plain_use(const struct address_space *mapping, u64 start, u64 last, u8 kind)
{
	struct touch none = {};

	return use(mapping, start, last, kind, &none);
}

/* 6.12 and later: the kernel says what is asked for. */

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(get_pages, struct address_space *mapping, unsigned long index, unsigned long last_index)
{
	return plain_use(mapping, index, last_index, USE_READ);
}

/*
 * The kernel maps up to 16 pages around a fault, those of its address's aligned window, and tells of the window alone.
 * Which page was touched follows from the fault's address, of which another event has told, before the thread perhaps
 * waited for the page and woke up on another processor. Direct-mapped by thread and lossy: a collision makes the page
 * unknown.
 */
#define FAULTS (1 << 12)

struct fault {
	u64 thread;
	u64 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAULTS);
	__type(key, u32);
	__type(value, struct fault);
} faults SEC(".maps");

static __always_inline int faulted(u64 address)
{
	u64 thread = bpf_get_current_pid_tgid();
	u32 key = thread & (FAULTS - 1);
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);

	if (fault) {
		fault->thread = thread;
		fault->address = address;
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address)
{
	return faulted(address);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel, unsigned long address)
{
	return faulted(address);
}

#ifdef HAVE_BPF_LOOP
struct find {
	u64 mapping;
	u64 address;
	struct touch found;
};

static long found_vma(struct task_struct *task, struct vm_area_struct *vma, struct find *f)
{
	if ((u64)BPF_CORE_READ(vma, vm_file, f_mapping) == f->mapping)
		touch_in(&f->found, f->address, vma);
	return 0;
}

/*
 * Pages of this mapping are used by a fault. The kernel touches memory for others without one: then the thread's last
 * fault is another, most often of other memory; if not, what it says is true all the same.
 */
static __always_inline int fault_use(const struct address_space *mapping, u64 address, u64 start, u64 last, u8 kind)
{
	struct find f = { .mapping = address };
	u64 thread = bpf_get_current_pid_tgid();
	u32 key = thread & (FAULTS - 1);
	struct fault *fault;

	if (!wanted(thread >> 32))
		return 0;
	fault = bpf_map_lookup_elem(&faults, &key);
	if (fault && fault->thread == thread) {
		f.address = fault->address;
		bpf_find_vma(bpf_get_current_task_btf(), f.address, found_vma, &f, 0);
	}
	return use(mapping, start, last, kind, &f.found);
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(map_pages, struct address_space *mapping, unsigned long start, unsigned long end)
{
	return fault_use(mapping, ctx[0], start, end, USE_MAP);
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(fault, struct address_space *mapping, unsigned long index)
{
	return fault_use(mapping, ctx[0], index, index, USE_FAULT);
}
#endif

/* 5.10 to 6.11: the functions themselves. */

static __always_inline int read_call(const struct kiocb *iocb, const struct iov_iter *iter)
{
	u64 position = iocb->ki_pos, count = iter->count;

	if (!count)
		return 0;
	return plain_use(iocb->ki_filp->f_mapping, position >> config.page_shift, (position + count - 1) >> config.page_shift, USE_READ);
}

SEC("fentry/filemap_read")
int BPF_PROG(enter_read, struct kiocb *iocb, struct iov_iter *iter)
{
	return read_call(iocb, iter);
}

/* filemap_read's name up to 5.11. */
SEC("fentry/generic_file_buffered_read")
int BPF_PROG(enter_read_510, struct kiocb *iocb, struct iov_iter *iter)
{
	return read_call(iocb, iter);
}

/* 6.5 and later; before, splice comes through filemap_read. */
SEC("fentry/filemap_splice_read")
int BPF_PROG(enter_splice, struct file *in, s64 *position, void *pipe, unsigned long length)
{
	u64 from = 0;

	bpf_probe_read_kernel(&from, sizeof(from), position);
	if (!length)
		return 0;
	return plain_use(in->f_mapping, from >> config.page_shift, (from + length - 1) >> config.page_shift, USE_READ);
}

static __always_inline int vmf_use(const struct vm_fault *vmf, u64 start, u64 last, u8 kind)
{
	struct touch t = {};

	touch_in(&t, vmf->address, vmf->vma);
	return use(vmf->vma->vm_file->f_mapping, start, last, kind, &t);
}

SEC("fentry/filemap_map_pages")
int BPF_PROG(enter_map, struct vm_fault *vmf, unsigned long start, unsigned long end)
{
	return vmf_use(vmf, start, end, USE_MAP);
}

SEC("fentry/filemap_fault")
int BPF_PROG(enter_fault, struct vm_fault *vmf)
{
	return vmf_use(vmf, vmf->pgoff, vmf->pgoff, USE_FAULT);
}

/* Everywhere: what enters the cache. Metadata, and where nothing better is known, files. */

static __always_inline int added(const struct address_space *mapping, u64 index, const void *folio, bool is_folio)
{
	u32 tgid = current_tgid();
	const struct inode *inode;
	struct record_metadata *r;
	u32 pages;

	if (!wanted(tgid))
		return 0;
	inode = mapping->host;
	if (inode->i_sb->s_magic != BDEVFS_MAGIC) {
		if (!config.adds_are_uses)
			return 0;
		pages = is_folio ? folio_pages(folio) : 1;
		return plain_use(mapping, index, index + pages - 1, USE_ADD);
	}
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count_lost();
		return 0;
	}
	head(&r->head, RECORD_METADATA, 0, current_number(tgid));
	r->start = index;
	r->dev = inode->i_rdev;
	r->pages = is_folio ? folio_pages(folio) : 1;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* 5.16 and later. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_folio, struct folio *folio)
{
	return added(folio->mapping, folio->index, folio, true);
}

/* Up to 5.15. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_page, struct page *page)
{
	return added(page->mapping, page->index, page, false);
}

/* --- Look-ups --- */

/* Tells of a look-up by the current process: a path (0: none), relative to a descriptor. By numbers: see tell_file. */
__noinline int tell_lookup(u64 text, int descriptor, u32 how)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct fs_struct *fs = BPF_CORE_READ(task, fs);
	u32 at = sizeof(struct record_lookup);
	struct scratch *s;
	struct record_lookup *r;
	bool absolute = false;
	u64 dentry = 0, mnt = 0;
	long n = 0;

	s = take_scratch();
	if (!s)
		return -1;
	r = (void *)s->bytes;
	if (text) {
		if (how & LOOKUP_KERNEL_TEXT)
			n = bpf_probe_read_kernel_str(s->bytes + at, TEXT, (const void *)text);
		else
			n = bpf_probe_read_user_str(s->bytes + at, TEXT, (const void *)text);
		/* An empty path means the descriptor itself: nothing is looked up. */
		if (n <= 1 || n > TEXT) {
			s->busy = 0;
			return 0;
		}
		absolute = s->bytes[at] == '/';
		at += n;
	}
	head(&r->head, RECORD_LOOKUP, (how & LOOKUP_KIND) - 1, current_number(current_tgid()));
	r->length = n;
	r->unused = 0;
	if (!(how & LOOKUP_MISSING))
		r->head.flags |= LOOKUP_FOUND;
	if (absolute) {
		dentry = (u64)BPF_CORE_READ(fs, root.dentry);
		mnt = (u64)BPF_CORE_READ(fs, root.mnt);
		if (dentry && (dentry != self.root_dentry || mnt != self.root_mount)) {
			r->head.flags |= LOOKUP_HAS_ROOT;
			at += place(&r->root, s, at, dentry, mnt);
		}
	} else {
		if (descriptor == AT_FDCWD) {
			dentry = (u64)BPF_CORE_READ(fs, pwd.dentry);
			mnt = (u64)BPF_CORE_READ(fs, pwd.mnt);
		} else {
			const struct fdtable *table = BPF_CORE_READ(task, files, fdt);
			const struct file *file = NULL;

			if ((u32)descriptor < BPF_CORE_READ(table, max_fds))
				bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + (u32)descriptor);
			if (file) {
				dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
				mnt = (u64)BPF_CORE_READ(file, f_path.mnt);
			}
		}
		if (!dentry) {
			s->busy = 0;
			return 0;
		}
		r->head.flags |= LOOKUP_HAS_BASE;
		at += place(&r->base, s, at, dentry, mnt);
	}
	return send(s, at);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	u32 number = syscall_number(regs);
	int descriptor = AT_FDCWD;
	u64 text = 0;
	u32 how;

	if (number >= SYSCALLS)
		return 0;
	how = config.syscalls[number];
	if (!how)
		return 0;
	if (ret == -ENOENT || ret == -ENOTDIR)
		how |= LOOKUP_MISSING;
	else if (ret < 0 || how & LOOKUP_ONLY_MISSING)
		return 0;
	if (!wanted(current_tgid()) || is_compat_task(bpf_get_current_task()))
		return 0;
	if (how & (LOOKUP_AT | LOOKUP_DESCRIPTOR))
		descriptor = syscall_argument(regs, 0);
	if (!(how & LOOKUP_DESCRIPTOR)) {
		text = syscall_argument(regs, how & LOOKUP_AT ? 1 : 0);
		if (!text)
			return 0;
	} else if (how & LOOKUP_MISSING) {
		return 0;
	}
	tell_lookup(text, descriptor, how);
	return 0;
}

/* --- Processes --- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 tgid = child->tgid, parent_tgid = parent->tgid, number;
	struct record_fork *r;
	u8 one = 1;

	/* Threads share the number of their group. */
	if (child->pid != tgid || stopped)
		return 0;
	if (self.level && parent_tgid == self.tgid) {
		number = number_of(child);
		bpf_map_update_elem(&born, &number, &tgid, BPF_ANY);
	}
	if (config.tree_scope) {
		if (!wanted(parent_tgid))
			return 0;
		if (bpf_map_update_elem(&listed, &tgid, &one, BPF_ANY))
			count_lost();
	}
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count_lost();
		return 0;
	}
	head(&r->head, RECORD_FORK, 0, number_of(parent));
	r->child = number_of(child);
	r->unused = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Tells what the current process runs from now on. By numbers: see tell_file. */
__noinline int tell_exec(u64 address)
{
	const struct file *file = (const void *)address;
	struct scratch *s = take_scratch();
	u32 at = sizeof(struct record_exec);
	struct record_exec *r;

	if (!s)
		return -1;
	r = (void *)s->bytes;
	head(&r->head, RECORD_EXEC, 0, current_number(current_tgid()));
	at += place(&r->executable, s, at, (u64)BPF_CORE_READ(file, f_path.dentry), (u64)BPF_CORE_READ(file, f_path.mnt));
	return send(s, at);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	u64 filename, interp;
	u32 how = LOOKUP_KERNEL_TEXT | 1 /* open */;

	if (!wanted(current_tgid()))
		return 0;
	tell_exec((u64)BPF_CORE_READ(bprm, file));
	/* sys_exit sees an execve that succeeds too late: its memory is gone. */
	filename = (u64)BPF_CORE_READ(bprm, filename);
	interp = (u64)BPF_CORE_READ(bprm, interp);
	tell_lookup(filename, AT_FDCWD, how);
	if (interp != filename)
		tell_lookup(interp, AT_FDCWD, how);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct record_exit *r;

	/* Others of its threads still live. */
	if (task->signal->live.counter > 0)
		return 0;
	if (wanted(tgid)) {
		r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
		if (r) {
			head(&r->head, RECORD_EXIT, 0, number_of(task));
			bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
		} else {
			count_lost();
		}
	}
	/* Its number will be another's. */
	bpf_map_delete_elem(&listed, &tgid);
	return 0;
}

/* --- Waiting for block devices --- */

/* Threads that wait, and since when. Direct-mapped by thread: a collision loses the one that waits longer. */
#define WAITS (1 << 12)

struct wait {
	u64 thread;
	u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITS);
	__type(key, u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* Nanoseconds that recorded threads waited, those that wait still apart. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} blocked SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 key = next->pid & (WAITS - 1), zero = 0;
	struct wait *wait = bpf_map_lookup_elem(&waits, &key);
	u64 *sum;

	if (wait && wait->thread == next->pid && wait->thread) {
		sum = bpf_map_lookup_elem(&blocked, &zero);
		if (sum)
			*sum += bpf_ktime_get_ns() - wait->since_ns;
		wait->thread = 0;
	}
	/* A thread that was preempted on its way into the wait is in it when it runs again. */
	if (preempt || !BPF_CORE_READ_BITFIELD(prev, in_iowait) || !wanted(prev->tgid))
		return 0;
	/* What is written behind everybody's back, and what waits outside of the recorder's container, no start waits for. */
	if (prev->flags & PF_KTHREAD || !number_of(prev))
		return 0;
	key = prev->pid & (WAITS - 1);
	wait = bpf_map_lookup_elem(&waits, &key);
	if (wait) {
		wait->since_ns = bpf_ktime_get_ns();
		wait->thread = prev->pid;
	}
	return 0;
}

/* Run once by the recorder, never attached: what it needs to know of itself. Returns its number as the kernel has it. */
SEC("raw_tp")
int about_self(void *ctx)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();

	self.root_dentry = (u64)BPF_CORE_READ(task, fs, root.dentry);
	self.root_mount = (u64)BPF_CORE_READ(task, fs, root.mnt);
	self.tgid = current_tgid();
	self.level = BPF_CORE_READ(task, thread_pid, level);
	self.pid_namespace = pid_namespace_of(upid_at(BPF_CORE_READ(task, thread_pid), self.level));
	return self.tgid;
}
