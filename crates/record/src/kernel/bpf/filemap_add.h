// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Everywhere: what enters the cache. Metadata, and where nothing better is known, files. */
#ifndef FILEMAP_ADD_H
#define FILEMAP_ADD_H

#ifdef HAVE_BPF_LOOP
#define PF_MEMALLOC_NOFS 0x00040000

/*
 * Whether a read makes this page itself, of which the kernel gives no event (filemap_create_folio): where a
 * file system reads nothing ahead, as of what lies in the inode (ext4, f2fs, ntfs3, udf) or is compressed
 * (ntfs3). All that is read ahead is added while that flag is set, and what a file system adds beside (the
 * rest of a block) was not asked for; what a call writes is of another file than what it reads, and execve
 * writes none. By numbers: see send_file.
 */
__noinline int made_by_read(u64 mapping, u64 index)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);
	u32 abi = syscall_abi(regs), how = syscall_meaning(syscall_number(regs), abi);
	const struct file *file;
	u64 start;

	if ((how & LOOKUP_KIND) < READ_COUNTED)
		return !!(how & LOOKUP_EXECUTES);
	if (!asks_for(task, regs, abi, how, index, &start))
		return 0;
	file = read_file(task, regs, abi, how);
	file = file ? real_file(file) : NULL;
	return file && (u64)BPF_CORE_READ(file, f_mapping) == mapping;
}

static __always_inline bool is_made(const struct folio *folio)
{
	const struct task_struct *task = bpf_get_current_task_btf();

	return !(task->flags & PF_MEMALLOC_NOFS) && made_by_read((u64)BPF_CORE_READ(folio, mapping), BPF_CORE_READ(folio, index));
}
#else
static __always_inline bool is_made(const struct folio *folio)
{
	return false;
}
#endif

static __always_inline int added(const struct address_space *mapping, u64 index, const void *folio, bool is_folio)
{
	const struct inode *inode;
	struct record_metadata *r;
	u32 pages;

	pages = is_folio ? folio_pages(folio) : 1;
	if (!current_is_wanted())
		return read_by_kernel(mapping, index, index + pages - 1);
	inode = mapping->host;
	if (inode->i_sb->s_magic != BDEVFS_MAGIC) {
		if (config.adds_are_uses)
			return plain_use(mapping, index, index + pages - 1, USE_ADD, NULL);
		return is_made(folio) ? plain_use(mapping, index, index + pages - 1, USE_READ, NULL) : 0;
	}
	r = is_kept_free(ring) ? NULL : bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(&lost);
		return 0;
	}
	head(&r->head, RECORD_METADATA, 0, current_number());
	r->start = index;
	r->dev = inode->i_rdev;
	r->pages = pages;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* 5.16 and later. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_folio, struct folio *folio)
{
	return added(untrusted(folio, folio)->mapping, folio->index, folio, true);
}

/* Up to 5.15. */
SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(add_page, struct page *page)
{
	return added(page->mapping, page->index, page, false);
}

#endif
