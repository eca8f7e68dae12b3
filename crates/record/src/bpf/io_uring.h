// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Reads by io_uring that end where the file does: see reads.h. */
#ifndef IO_URING_H
#define IO_URING_H

#ifdef HAVE_BPF_LOOP
/* enum io_uring_op. */
#define IORING_OP_READV 1
#define IORING_OP_READ_FIXED 4
#define IORING_OP_READ 22

SEC("tp_btf/io_uring_complete")
int io_uring_complete(u64 *ctx)
{
	const struct io_kiocb *request = (const void *)ctx[1];
	const struct kiocb *read = &((const struct io_rw *)request)->kiocb;
	const struct file *file;
	u32 opcode;
	s32 result;

	if (!current_is_wanted())
		return 0;
	opcode = BPF_CORE_READ(request, opcode);
	if (opcode != IORING_OP_READ && opcode != IORING_OP_READV && opcode != IORING_OP_READ_FIXED)
		return 0;
	result = BPF_CORE_READ(request, cqe.res);
	file = BPF_CORE_READ(read, ki_filp);
	if (result > 0 && BPF_CORE_READ(read, ki_pos) >= BPF_CORE_READ(file, f_inode, i_size))
		read_to_the_end((u64)file, result);
	return 0;
}
#endif

#endif
