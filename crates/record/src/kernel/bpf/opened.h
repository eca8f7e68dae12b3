// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* By which open file an inode is used: where it has several names, that tells which was meant. */
#ifndef OPENED_H
#define OPENED_H

#define OVERLAYFS_MAGIC 0x794c7630

/* Whether an open file is this inode by its name. */
static __always_inline bool names(const struct file *file, const struct inode *inode)
{
	const struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);

	return dentry && BPF_CORE_READ(dentry, d_inode) == inode;
}

#ifdef HAVE_BPF_LOOP
static __always_inline bool is_file(const struct file *file)
{
	const struct inode *inode = BPF_CORE_READ(file, f_inode);

	return inode && BPF_CORE_READ(file, f_mapping, host) == inode;
}

/* An overlay may have another as its layer; no more are allowed (FILESYSTEM_MAX_STACK_DEPTH). */
#define OVERLAYS 2

/* The file whose pages are read through this one: on an overlay, the layer's. */
static __always_inline const struct file *real_file(const struct file *file)
{
	for (int i = 0; i < OVERLAYS; i++) {
		const struct file *inner, *first = NULL;

		if (BPF_CORE_READ(file, f_inode, i_sb, s_magic) != OVERLAYFS_MAGIC)
			break;
		inner = BPF_CORE_READ(file, private_data);
		/*
		 * From 6.13 on it is the first thing that a struct ovl_file has (fs/overlayfs/file.c), which
		 * a module's types tell and the kernel's do not.
		 */
		if (inner && !is_file(inner)) {
			bpf_probe_read_kernel(&first, sizeof(first), inner);
			inner = is_file(first) ? first : NULL;
		}
		file = inner;
	}
	return file;
}

struct opened {
	const struct inode *inode;
	u64 file;
};

static long mapped_there(struct task_struct *task, struct vm_area_struct *vma, struct opened *o)
{
	const struct file *file = BPF_CORE_READ(vma, vm_file);

	if (names(file, o->inode))
		o->file = (u64)file;
	return 0;
}

/* Calls that read name the descriptor first, or second (sendfile). */
#define DESCRIPTORS 2

/*
 * The file by which the current thread uses an inode: the one that it reads from, has mapped where it faulted
 * last, or runs. 0: none of these, as for whoever reads by io_uring. By numbers: see send_file.
 */
__noinline u64 opened_as(u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);
	struct opened o = { .inode = (const void *)address };
	u64 thread = bpf_get_current_pid_tgid();
	u32 abi = syscall_abi(regs), key = thread & (FAULTS - 1);
	const struct file *file;
	struct fault *fault;

	if ((syscall_meaning(syscall_number(regs), abi) & LOOKUP_KIND) >= READ_COUNTED) {
		for (int i = 0; i < DESCRIPTORS; i++) {
			file = file_of(task, syscall_argument(regs, i, abi));
			file = file ? real_file(file) : NULL;
			if (file && names(file, o.inode))
				return (u64)file;
		}
	}
	fault = bpf_map_lookup_elem(&faults, &key);
	if (fault && fault->thread == thread)
		bpf_find_vma(task, fault->address, mapped_there, &o, 0);
	if (o.file)
		return o.file;
	file = BPF_CORE_READ(task, mm, exe_file);
	return file && names(file, o.inode) ? (u64)file : 0;
}
#else
static __always_inline u64 opened_as(u64 address)
{
	return 0;
}
#endif

#endif
