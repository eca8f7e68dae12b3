// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the kernel's own threads read of files: the loop driver's, of the image that a file system lies in. Nobody's process does that, and a file
 * system that is mounted in the start's own namespace alone has no other path. User space keeps it only for such starts.
 */
#ifndef LOOP_READS_H
#define LOOP_READS_H

static __always_inline int read_by_kernel(const struct address_space *mapping, u64 start, u64 last)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	const struct inode *inode;
	struct record_use *r;
	u64 id, size, *seen;
	u32 key;

	if (config.scope != SCOPE_TREE || !(task->flags & PF_KTHREAD) || *(volatile u32 *)&stopped)
		return 0;
	inode = untrusted(mapping, address_space)->host;
	if ((inode->i_mode & S_IFMT) != S_IFREG || inode->i_sb->s_flags & SB_NOUSER)
		return 0;
	size = inode->i_size;
	if (!size)
		return 0;
	if (last > (size - 1) >> config.page_shift)
		last = (size - 1) >> config.page_shift;
	if (start > last)
		return 0;
	id = file_id(inode);
	if (!fresh_pages(id, start, last, true) && config.filter)
		return 0;
	key = id >> 40 & (SEEN_INODES - 1);
	seen = bpf_map_lookup_elem(&seen_inodes, &key);
	if (seen && *(volatile u64 *)seen != id) {
		if (send_file((u64)BPF_CORE_READ(mapping, host), id, 0, 0) >= 0)
			*(volatile u64 *)seen = id;
	}
	r = is_kept_free(ring) ? NULL : bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		count(&lost);
		return 0;
	}
	/* No process has the number 0. */
	head(&r->head, RECORD_USE, USE_READ, 0);
	r->file = id;
	r->start = start;
	r->pages = last - start + 1;
	r->touched = 0;
	r->mapped_from = 0;
	r->mapped_pages = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
