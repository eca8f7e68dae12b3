// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Attached to nothing: what the recorder itself runs (BPF_PROG_RUN), to learn what only the kernel knows of
 * it.
 */
#ifndef RECORDER_H
#define RECORDER_H

/*
 * What the programs need to know of the recorder. The argument is by how many levels the pid namespace that
 * its /proc shows lies above its own.
 */
SEC("raw_tp")
int about_self(u64 *ctx)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 level = BPF_CORE_READ(pid, level);

	self.executable = (u64)BPF_CORE_READ(task, mm, exe_file, f_path.dentry, d_inode);
	self.root_dentry = (u64)BPF_CORE_READ(task, fs, root.dentry);
	self.root_mount = (u64)BPF_CORE_READ(task, fs, root.mnt);
	self.level = ctx[0] < level ? level - ctx[0] : 0;
	self.pid_namespace = pid_namespace_of(upid_at(pid, self.level));
	return 0;
}

/*
 * The process of this number in a pid namespace, by the tree that the kernel itself looks in (find_pid_ns);
 * 0: none.
 */
static __always_inline struct pid *find_pid(const struct pid_namespace *namespace, u64 number)
{
	u64 entry = entry_at((u64)BPF_CORE_READ(namespace, idr.idr_rt.xa_head), number);

	/* Nor is anything at the root of an empty tree. */
	return entry & 3 || !number ? NULL : (struct pid *)entry;
}

#define NO_ROOM (~0U)

/*
 * Lists the process of which the first argument is the number in the recorder's own pid namespace, as the
 * second. Returns its number as records will have it; 0: there is no such process, or it cannot be named so.
 */
SEC("raw_tp")
int list_process(u64 *ctx)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	struct pid *own = BPF_CORE_READ(task, thread_pid), *pid;
	u32 tgid = 0, number = 0;
	u64 mark = ctx[1];

	pid = find_pid((const void *)pid_namespace_of(upid_at(own, BPF_CORE_READ(own, level))), ctx[0]);
	if (!pid)
		return 0;
	bpf_probe_read_kernel(&tgid, sizeof(tgid), upid_at(pid, 0) + bpf_core_field_offset(struct upid, nr));
	if (BPF_CORE_READ(pid, level) >= self.level)
		bpf_probe_read_kernel(&number, sizeof(number),
				      upid_at(pid, self.level) + bpf_core_field_offset(struct upid, nr));
	if (bpf_map_update_elem(&listed, &tgid, &mark, BPF_ANY))
		return NO_ROOM;
	return number;
}

/* A descriptor of a name that is only looked up. */
#define NAME_ALONE (1ULL << 32)

/*
 * Keeps until when (the second argument) a user's executions of a program (the first, of_user) begin no
 * start: as long as what the recorder has open behind those, descriptors, is in memory as it is now. Returns
 * how many these are; 0: of one no page is there, or pages are counted elsewhere, as on an overlay.
 */
SEC("raw_tp")
int keep_warm(u64 *ctx)
{
	/* Where one of them lies the verifier wants to know beforehand. */
	u64 open[LOOKED_AT] = { ctx[2], ctx[3], ctx[4], ctx[5], ctx[6], ctx[7], ctx[8], ctx[9] };
	const struct task_struct *task = (const void *)bpf_get_current_task();
	struct scratch *s = take_scratch();
	u64 program = ctx[0];
	struct in_memory *found;
	u32 count = 0, absent = 0;

	if (!s)
		return 0;
	found = (void *)s->bytes;
	found->until = ctx[1];
	found->since = bpf_ktime_get_ns();
	for (u32 i = 0; i < LOOKED_AT; i++) {
		const struct file *file = file_of(task, open[i]);

		found->files[i].dentry = 0;
		if (!file)
			continue;
		remember(&found->files[i], BPF_CORE_READ(file, f_path.dentry));
		if (open[i] & NAME_ALONE)
			found->files[i].pages = 0;
		else if (!found->files[i].pages)
			absent++;
		count++;
	}
	if (absent || !count || bpf_map_update_elem(&warm, &program, found, BPF_ANY))
		count = 0;
	give_scratch(s);
	return count;
}

#endif
