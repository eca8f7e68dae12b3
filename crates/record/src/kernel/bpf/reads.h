// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads that end where the file does, of which the kernel gives no event. A file system that reads a whole
 * block ahead (SquashFS) leaves pages behind the end of a file in memory that never become up to date. Where
 * the buffer reaches as far, the kernel takes the pages up to the end and returns early, without
 * mm_filemap_get_pages (filemap_get_pages, where filemap_update_page fails), whether or not they were in
 * memory already. That the read was given less than it asked for, or ended there, tells the same.
 */
#ifndef READS_H
#define READS_H

/* The file that a call reads; NULL: none. */
static __always_inline const struct file *read_file(const struct task_struct *task, const struct pt_regs *regs, u32 abi, u32 how)
{
	u32 second = (how & LOOKUP_KIND) == READ_SPLICED && how & READ_SECOND;

	return file_of(task, syscall_argument(regs, second, abi));
}

/*
 * Where a call that is no READ_COUNTED reads: where it says, if it does, or else where the file stands. Once
 * it has ended: behind what it read.
 */
static __always_inline u64 read_position(const struct file *file, const struct pt_regs *regs, u32 abi, u32 how, u64 bytes)
{
	u64 position = BPF_CORE_READ(file, f_pos), pointer;

	if ((how & LOOKUP_KIND) == READ_SPLICED) {
		pointer = syscall_argument(regs, how & READ_SECOND ? 2 : 1, abi);
		if (pointer)
			bpf_probe_read_user(&position, sizeof(position), (const void *)pointer);
	} else if (how & READ_AT && (s64)syscall_argument(regs, 3, abi) != -1) {
		position = syscall_argument(regs, 3, abi) + bytes;
	}
	return position;
}

/*
 * Whether a call that reads has asked for this page, and the one that it begins with. Of others than
 * READ_COUNTED the end is not known.
 */
static __always_inline bool asks_for(const struct task_struct *task, const struct pt_regs *regs, u32 abi, u32 how, u64 index, u64 *start)
{
	bool counted = (how & LOOKUP_KIND) == READ_COUNTED;
	const struct file *file;
	u64 position;

	if (counted && how & READ_AT) {
		position = syscall_position(regs, abi);
	} else {
		file = read_file(task, regs, abi, how);
		if (!file)
			return false;
		position = counted ? BPF_CORE_READ(file, f_pos) : read_position(file, regs, abi, how, 0);
	}
	*start = position >> config.page_shift;
	if (*start > index)
		return false;
	return !counted || (position + syscall_argument(regs, 2, abi) - 1) >> config.page_shift >= index;
}

#ifdef HAVE_BPF_LOOP
/* Whether a page is in memory behind the last one of a file. */
static __always_inline bool goes_on(const struct address_space *mapping, u64 size)
{
	u64 head = (u64)BPF_CORE_READ(mapping, i_pages.xa_head);

	/* A tree of one page has no node. */
	if (!size || (head & 3) != 2)
		return false;
	head = entry_at(head, ((size - 1) >> config.page_shift) + 1);
	return head && !(head & 3);
}

/*
 * The last `bytes` of a file were read by the current process, through `file`, or else a descriptor. By
 * numbers: see send_file.
 */
__noinline int read_to_the_end(u64 address, u64 bytes)
{
	const struct file *file = real_file((const void *)address);
	const struct address_space *mapping = BPF_CORE_READ(file, f_mapping);
	u64 size = BPF_CORE_READ(mapping, host, i_size), start;
	struct touch none = {};

	if (!goes_on(mapping, size))
		return 0;
	start = bytes < size ? size - bytes : 0;
	return use(mapping, start >> config.page_shift, (size - 1) >> config.page_shift, USE_READ, &none, (u64)file);
}
#endif

#endif
