// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which paths are looked up. */
#ifndef SYS_EXIT_H
#define SYS_EXIT_H

/*
 * Whether a look-up by this user is sent. Anybody can make a million of them a second, of paths that nobody
 * else needs: so there is an end to them, users other than root have one of their own and, where everybody is
 * recorded, at most half of the ring buffer.
 */
static __always_inline bool lookup_fits(u32 uid)
{
	if (!uid)
		return take_one(&left.lookups_of_root);
	return take_one(&left.lookups_of_others) && (config.scope != SCOPE_SYSTEM || has_half(lookups));
}

/*
 * Sends a look-up by the current process: a path (0: none), relative to a descriptor. By numbers: see
 * send_file.
 */
__noinline int send_lookup(u64 text, int descriptor, u32 how)
{
	u32 uid = bpf_get_current_uid_gid();
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct fs_struct *fs = BPF_CORE_READ(task, fs);
	u32 at = sizeof(struct record_lookup);
	struct scratch *s;
	struct record_lookup *r;
	bool absolute = false;
	u64 dentry = 0, mnt = 0;
	long n = 0;

	s = lookup_fits(uid) ? take_scratch() : NULL;
	if (!s) {
		count(&dropped);
		return -1;
	}
	r = (void *)s->bytes;
	if (text) {
		if (how & LOOKUP_KERNEL_TEXT)
			n = bpf_probe_read_kernel_str(s->bytes + at, TEXT, (const void *)text);
		else
			n = bpf_probe_read_user_str(s->bytes + at, TEXT, (const void *)text);
		/* An empty path means the descriptor itself: nothing is looked up. */
		if (n <= 1 || n > TEXT) {
			give_scratch(s);
			return 0;
		}
		absolute = s->bytes[at] == '/';
		at += n;
	}
	head(&r->head, RECORD_LOOKUP, (how & LOOKUP_KIND) - 1, current_number());
	r->length = n;
	r->uid = uid;
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
			const struct file *file = file_of(task, descriptor);

			if (file) {
				dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
				mnt = (u64)BPF_CORE_READ(file, f_path.mnt);
			}
		}
		if (!dentry) {
			give_scratch(s);
			return 0;
		}
		r->head.flags |= LOOKUP_HAS_BASE;
		at += place(&r->base, s, at, dentry, mnt);
	}
	return send(&lookups, false, &dropped, s, at);
}

#ifdef HAVE_BPF_LOOP
/*
 * A system call has read from a file; of those that ended where the file does it may be that nothing else
 * tells.
 */
static __always_inline int read_done(const struct pt_regs *regs, u32 abi, u32 how, u64 bytes)
{
	const struct file *file;

	if ((how & LOOKUP_KIND) == READ_COUNTED && bytes >= syscall_argument(regs, 2, abi))
		return 0;
	if (!current_is_wanted())
		return 0;
	file = read_file((const void *)bpf_get_current_task(), regs, abi, how);
	if (!file)
		return 0;
	/*
	 * What is given less than it asks for has come to the end. Where another thread may have moved the
	 * position, that holds too.
	 */
	if ((how & LOOKUP_KIND) != READ_COUNTED && read_position(file, regs, abi, how, bytes) < BPF_CORE_READ(file, f_inode, i_size))
		return 0;
	return read_to_the_end((u64)file, bytes);
}
#else
/* There the functions that read are traced, or additions to the page cache. */
static __always_inline int read_done(const struct pt_regs *regs, u32 abi, u32 how, u64 bytes)
{
	return 0;
}
#endif

/*
 * Whether a call that describes what it has found describes a symbolic link: then it did not follow it, as
 * readlink(2) does not.
 */
static __always_inline bool describes_link(const struct pt_regs *regs, u32 abi, u32 how, u32 fills)
{
	u64 at;
	u16 mode = 0;

	if (fills == LOOKUP_FILLS_STATX)
		at = syscall_argument(regs, 4, abi) + STATX_MODE;
	else if (fills == LOOKUP_FILLS_STAT)
		at = syscall_argument(regs, how & LOOKUP_AT ? 2 : 1, abi) + (abi == COMPAT ? COMPAT_MODE : NATIVE_MODE);
	else
		return false;
	bpf_probe_read_user(&mode, sizeof(mode), (const void *)at);
	return (mode & S_IFMT) == S_IFLNK;
}

#define ERROR(number) (1ULL << (number))

/*
 * What a call has found out about its path: LOOKUP_MISSING, or how it was looked up; 0: nothing that a later
 * start finds again. Of errors count those that come of what the name stands for. EPERM and ENOSYS do not: a
 * filter of system calls returns them, and then nothing was looked up. Where a directory may not be searched
 * (EACCES), the name is not known either; a replay then asks in vain.
 */
static __always_inline u32 looked_up(u32 how, long ret)
{
	u64 there = ERROR(ENXIO) | ERROR(EACCES) | ERROR(EEXIST) | ERROR(EISDIR) | ERROR(ETXTBSY) | ERROR(EROFS) |
		    ERROR(ERANGE) | ERROR(ELOOP) | ERROR(ENODATA);

	if (ret == -ENOENT || ret == -ENOTDIR)
		return how | LOOKUP_MISSING;
	if (ret >= 0)
		return how & (LOOKUP_EXECUTES | LOOKUP_CHANGES) ? 0 : how;
	/* Where a name could not be made, other errors than this one say that it is not there. */
	if (how & LOOKUP_CHANGES)
		there = ERROR(EEXIST);
	/* What is no link (realpath(3) asks of each directory). Elsewhere an argument may be wrong. */
	else if ((how & LOOKUP_KIND) == LOOKUP_LINK)
		there |= ERROR(EINVAL);
	if ((ret > -64 && there >> -ret & 1) || ret == -EOVERFLOW || ret == -EOPNOTSUPP)
		return (how & ~LOOKUP_KIND) | LOOKUP_STAT;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	u32 number = syscall_number(regs), abi, how, fills;
	int descriptor = AT_FDCWD;
	u64 text = 0;

	if (!(syscall_meaning(number, NATIVE) | syscall_meaning(number, COMPAT)))
		return 0;
	abi = syscall_abi(regs);
	how = syscall_meaning(number, abi);
	if (!how)
		return 0;
	/* Older kernels for arm64 do not extend the sign of what a 32-bit program is given. */
	if (abi == COMPAT)
		ret = (s32)ret;
	if ((how & LOOKUP_KIND) >= READ_COUNTED)
		return ret > 0 ? read_done(regs, abi, how, ret) : 0;
	fills = how & LOOKUP_FLAGS;
	if (fills == LOOKUP_FILLS_STAT || fills == LOOKUP_FILLS_STATX)
		how &= ~LOOKUP_FLAGS;
	how = looked_up(how, ret);
	if (!how || !current_is_wanted())
		return 0;
	if (ret == 0 && describes_link(regs, abi, how, fills))
		how = (how & ~LOOKUP_KIND) | LOOKUP_LINK;
	if (how & (LOOKUP_AT | LOOKUP_DESCRIPTOR))
		descriptor = syscall_argument(regs, 0, abi);
	if (!(how & LOOKUP_DESCRIPTOR)) {
		text = syscall_argument(regs, how & (LOOKUP_AT | LOOKUP_SECOND) ? 1 : 0, abi);
		if (!text)
			return 0;
	} else if (how & LOOKUP_MISSING) {
		return 0;
	}
	send_lookup(text, descriptor, how);
	return 0;
}

#endif
