// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the kernel's own threads read of files: the loop driver's, of the image that a file system lies in.
 * Nobody's process does that, and a file system that is mounted in the start's own namespace alone has no
 * other path. User space keeps it only for such starts.
 */
#ifndef LOOP_READS_H
#define LOOP_READS_H

static __always_inline int read_by_kernel(const struct address_space *mapping, u64 start, u64 last)
{
	/* Not as a pointer that may be followed: Linux 5.10 gives none. */
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct inode *inode;
	struct record_use *r;
	u64 id;

	if (config.scope != SCOPE_TREE || !(BPF_CORE_READ(task, flags) & PF_KTHREAD) || *(volatile u32 *)&stopped)
		return 0;
	inode = untrusted(mapping, address_space)->host;
	if (!are_there(inode, start, &last))
		return 0;
	id = file_id(inode);
	if (!fresh_pages(id, start, last, true) && config.filter)
		return 0;
	r = begin_use(mapping, id, id, 0, 0);
	if (!r)
		return 0;
	/* No process has the number 0. */
	head(&r->head, RECORD_USE, USE_READ, 0);
	of_pages(r, id, start, last);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
