// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which pages of which files are used; each is sent but once. */
#ifndef PAGES_H
#define PAGES_H

/* What send_file returns where the file has several names and nobody knows by which of them it is used. */
#define BY_SOME_NAME 1

/*
 * Sends a file at its first sight, as used through an open file (0: through whichever the thread uses). Not
 * inlined, and by numbers: so it is checked once at load, not at each use.
 */
__noinline int send_file(u64 address, u64 id, u32 user, u64 through)
{
	const struct inode *inode = (const void *)address;
	const struct file *file = (const void *)through;
	struct scratch *s = take_scratch();
	u32 length = sizeof(struct record_file);
	bool by_some_name;
	struct record_file *r;
	u64 dentry = 0, mnt = 0;
	long error;

	if (!s) {
		count(&lost);
		return -1;
	}
	r = (void *)s->bytes;
	head(&r->head, RECORD_FILE, 0, watching ? current_number() : 0);
	if (!watching)
		r->head.whose = user;
	r->id = id;
	r->inode = BPF_CORE_READ(inode, i_ino);
	r->size = BPF_CORE_READ(inode, i_size);
	r->mtime_ns = inode_mtime_ns(inode);
	r->generation = BPF_CORE_READ(inode, i_generation);
	r->mode = BPF_CORE_READ(inode, i_mode);
	by_some_name = BPF_CORE_READ(inode, i_nlink) > 1;
	if (by_some_name || is_on_nfs(BPF_CORE_READ(inode, i_sb))) {
		if (!file)
			file = (const void *)opened_as(address);
		if (file && names(file, inode)) {
			by_some_name = false;
			dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
			mnt = (u64)BPF_CORE_READ(file, f_path.mnt);
		}
	}
	if (by_some_name)
		r->head.flags |= FILE_BY_SOME_NAME;
	/* The first name of an inode's list is the one that was looked up last. */
	if (!dentry) {
		dentry = (u64)BPF_CORE_READ(inode, i_dentry.first);
		dentry = dentry ? dentry - dentry_alias_offset() : 0;
	}
	if (dentry) {
		length += place(&r->place, s, sizeof(*r), dentry, mnt);
	} else {
		r->place.length = r->place.whole = r->place.mount = 0;
	}
	r->place.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	error = send(&ring, is_kept_free(ring), &lost, s, length);
	return error ? -1 : by_some_name ? BY_SOME_NAME : 0;
}

/* The lower half of an address as a number; the verifier lets no one calculate with the whole. */
static __always_inline u64 low_half(const void *address)
{
	u64 low;

	asm volatile("r0 = %1; w0 = w0; %0 = r0" : "=r"(low) : "r"(address) : "r0");
	return low;
}

/*
 * A number for a file: the inode's address, so that btrfs subvolumes are kept apart, and what tells one inode
 * at this address from the next.
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

/* Whether some page of the range has not been sent; notes that all are. By numbers: see send_file. */
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

/*
 * A page touched through a mapping, where it is known, and the part of the file that is mapped there in one
 * piece.
 */
struct touch {
	u64 known; /* 0: not even the page */
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
	t->known = 1;
}

/*
 * Whether pages start to last are those of a file that user space sees; those beyond its end are asked for,
 * but not there.
 */
static __always_inline bool are_there(const struct inode *inode, u64 start, u64 *last)
{
	u64 size;

	if ((inode->i_mode & S_IFMT) != S_IFREG || inode->i_sb->s_flags & SB_NOUSER)
		return false;
	size = inode->i_size;
	if (!size)
		return false;
	if (*last > (size - 1) >> config.page_shift)
		*last = (size - 1) >> config.page_shift;
	return start <= *last;
}

/*
 * Tells of a file if it was not, and then of a use of its pages: the record, to be completed and submitted.
 * NULL: there is no room.
 */
static __always_inline struct record_use *begin_use(const struct address_space *mapping, u64 id, u64 seen_as, u32 user, u64 through)
{
	u32 key = seen_as >> 40 & (SEEN_INODES - 1);
	u64 *seen = bpf_map_lookup_elem(&seen_inodes, &key);
	struct record_use *r;

	if (seen && *(volatile u64 *)seen != seen_as) {
		int sent = send_file((u64)BPF_CORE_READ(mapping, host), id, user, through);

		/* The name may be known at the second use: of what execve begins to read it is not. */
		if (!sent || (sent == BY_SOME_NAME && *(volatile u64 *)seen == ~seen_as))
			*(volatile u64 *)seen = seen_as;
		else if (sent == BY_SOME_NAME)
			*(volatile u64 *)seen = ~seen_as;
	}
	r = is_kept_free(ring) ? NULL : bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r)
		count(&lost);
	return r;
}

static __always_inline void of_pages(struct record_use *r, u64 id, u64 start, u64 last)
{
	r->file = id;
	r->start = start;
	r->pages = last - start + 1;
	r->touched = 0;
	r->mapped_from = 0;
	r->mapped_pages = 0;
}

/* Pages start to last are used, through an open file if that is known; by a fault for the page touched. */
static __always_inline int use(const struct address_space *mapping, u64 start, u64 last, u8 kind, const struct touch *t, u64 through)
{
	u32 fresh, user;
	bool known;
	const struct inode *inode;
	struct record_use *r;
	u64 id, seen_as;

	if (!current_is_wanted())
		return 0;
	inode = untrusted(mapping, address_space)->host;
	if (!are_there(inode, start, &last))
		return 0;
	id = file_id(inode);
	/* To each start every file is new. */
	if (watching)
		id = (id ^ start_of(current_tgid()) * 0xd6e8feb86659fd93ULL) | 1;
	known = t->known && t->page >= start && t->page <= last;
	/*
	 * What was sent of one group of users is sent of another again: the first may have been over its
	 * share.
	 */
	user = group_of_user();
	seen_as = id + user * 0x2545f4914f6cdd1dULL;
	if (user && (*(volatile s64 *)&left.uses_of_others <= 0 || !has_half(ring))) {
		count(&dropped);
		return 0;
	}
	fresh = fresh_pages(seen_as, start, last, kind == USE_READ || kind == USE_FAULT);
	if (known && kind == USE_MAP)
		fresh |= fresh_pages(seen_as, t->page, t->page, true);
	if (config.filter && !fresh)
		return 0;
	if (user)
		take_one(&left.uses_of_others);
	r = begin_use(mapping, id, seen_as, user, through);
	if (!r)
		return 0;
	head(&r->head, RECORD_USE, kind, current_number());
	if (!watching)
		r->head.whose = user;
	of_pages(r, id, start, last);
	if (known) {
		r->touched = kind == USE_MAP ? t->page - start + 1 : 0;
		r->mapped_pages = t->mapped_pages;
	}
	r->mapped_from = t->mapped_from;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int plain_use(const struct address_space *mapping, u64 start, u64 last, u8 kind, const struct file *through)
{
	struct touch none = {};

	return use(mapping, start, last, kind, &none, (u64)through);
}

#endif
