// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Pages used, 5.10 to 6.11: the functions themselves. */
#ifndef FILEMAP_FUNCTIONS_H
#define FILEMAP_FUNCTIONS_H

/*
 * By which file is told as a number that was read: a pointer that the kernel gave no function takes that is
 * checked by itself.
 */
static __always_inline int read_call(const struct kiocb *iocb, const struct iov_iter *iter)
{
	u64 position = iocb->ki_pos, count = iter->count;

	if (!count || !current_is_wanted())
		return 0;
	return plain_use(iocb->ki_filp->f_mapping, position >> config.page_shift, (position + count - 1) >> config.page_shift, USE_READ,
			 (const void *)BPF_CORE_READ(iocb, ki_filp));
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

	if (!length || !current_is_wanted())
		return 0;
	bpf_probe_read_kernel(&from, sizeof(from), position);
	return plain_use(in->f_mapping, from >> config.page_shift, (from + length - 1) >> config.page_shift, USE_READ, NULL);
}

static __always_inline int vmf_use(const struct vm_fault *vmf, u64 start, u64 last, u8 kind)
{
	struct touch t = {};

	if (!current_is_wanted())
		return 0;
	touch_in(&t, vmf->address, vmf->vma);
	/*
	 * Until 5.11 the address is moved to the beginning of what is mapped around the fault
	 * (do_fault_around), the page is not.
	 */
	t.page = vmf->pgoff;
	return use(vmf->vma->vm_file->f_mapping, start, last, kind, &t, (u64)BPF_CORE_READ(vmf, vma, vm_file));
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

#endif
