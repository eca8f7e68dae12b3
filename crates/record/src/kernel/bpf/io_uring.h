// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads by io_uring: those that end where the file does (reads.h), whose page a read makes itself
 * (filemap_add.h: here a thread of the kernel's own does), or that were given in parts, of which the former
 * has no event. Of all others each page has been told.
 */
#ifndef IO_URING_H
#define IO_URING_H

#ifdef HAVE_BPF_LOOP
/* enum io_uring_op. */
#define IORING_OP_READV 1
#define IORING_OP_READ_FIXED 4
#define IORING_OP_READ 22

#define IOCB_DIRECT (1 << 17)

SEC("tp_btf/io_uring_complete")
int io_uring_complete(u64 *ctx)
{
	const struct io_kiocb *request = (const void *)ctx[1];
	const struct kiocb *read = &((const struct io_rw *)request)->kiocb;
	struct touch none = {};
	const struct file *file;
	u64 start, end;
	u32 opcode;
	s32 result;

	if (!current_is_wanted())
		return 0;
	opcode = BPF_CORE_READ(request, opcode);
	if (opcode != IORING_OP_READ && opcode != IORING_OP_READV && opcode != IORING_OP_READ_FIXED)
		return 0;
	result = BPF_CORE_READ(request, cqe.res);
	end = BPF_CORE_READ(read, ki_pos);
	if (result <= 0 || end < result || BPF_CORE_READ(read, ki_flags) & IOCB_DIRECT)
		return 0;
	start = (end - result) >> config.page_shift;
	file = BPF_CORE_READ(read, ki_filp);
	if (start == (end - 1) >> config.page_shift && end < BPF_CORE_READ(file, f_inode, i_size))
		return 0;
	file = real_file(file);
	return use(BPF_CORE_READ(file, f_mapping), start, (end - 1) >> config.page_shift, USE_READ, &none, (u64)file);
}
#endif

#endif
